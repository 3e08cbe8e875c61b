#include "tensord/client/internal/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

constexpr absl::string_view kMetadataKey = "__metadata__";

struct FormatDType {
  absl::string_view name;
  int bits;
  DType dtype;
};

constexpr FormatDType kDTypes[] = {
    {"BOOL", 8, DType::kBool},
    {"U8", 8, DType::kUInt8},
    {"I8", 8, DType::kInt8},
    {"I32", 32, DType::kInt32},
    {"I64", 64, DType::kInt64},
    {"F16", 16, DType::kFloat16},
    {"BF16", 16, DType::kBFloat16},
    {"F32", 32, DType::kFloat32},
    {"F64", 64, DType::kFloat64},
    {"I16", 16, DType::kInt16},
    {"U16", 16, DType::kUInt16},
    {"U32", 32, DType::kUInt32},
    {"U64", 64, DType::kUInt64},
    {"C64", 64, DType::kComplex64},
    {"F8_E4M3", 8, DType::kUnspecified},
    {"F8_E5M2", 8, DType::kUnspecified},
    {"F8_E8M0", 8, DType::kUnspecified},
    {"F6_E2M3", 6, DType::kUnspecified},
    {"F6_E3M2", 6, DType::kUnspecified},
    {"F4", 4, DType::kUnspecified},
};

const FormatDType* FindDType(absl::string_view name) {
  const auto* it = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                [&](const FormatDType& d) { return d.name == name; });
  return it == std::end(kDTypes) ? nullptr : it;
}

// Returns a name for a message: quoted, escaped and truncated.
std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxShown = 200;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name.substr(0, kMaxShown)),
                      name.size() > kMaxShown ? "…\"" : "\"");
}

// Handles the parser's events, and accepts only headers of this form:
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"k":
//   "v"}}
// It rejects deeper nesting, so it needs no stack.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::string error;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        if (!expecting_value_) break;
        expecting_value_ = false;
        place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
        fields_.clear();
        return true;
      default:
        break;
    }
    return Fail("an object");
  }

  bool end_object() override {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    if (place_ == Place::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) return FailTensor(absl::StrCat("has no \"", field, "\""));
      }
    }
    place_ = Place::kTop;
    return true;
  }

  bool key(string_t& key) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(key).second) return Set(absl::StrCat(Quoted(key), " occurs twice"));
      in_metadata_ = key == kMetadataKey;
      expecting_value_ = true;
      if (!in_metadata_) header.entries.emplace_back().name = key;
      return true;
    }
    field_ = key;
    if (!fields_.insert(key).second) {
      return FailTensor(absl::StrCat("has ", Quoted(key), " twice"));
    }
    if (place_ == Place::kTensor && key != "dtype" && key != "shape" && key != "data_offsets") {
      return FailTensor(absl::StrCat("has an unknown field ", Quoted(key)));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header.metadata[field_] = value;
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return Fail("a string");
    header.entries.back().dtype_name = value;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") return Fail("a list");
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    num_offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      return FailTensor("must have two data_offsets");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    SafetensorsEntry* entry = header.entries.empty() ? nullptr : &header.entries.back();
    if (place_ == Place::kShape) {
      if (value > uint64_t{kMaxElements}) {
        return FailTensor(
            absl::StrCat("has a dimension of ", value, "; the limit is ", kMaxElements));
      }
      if (entry->shape.rank() == kMaxRank) {
        return FailTensor(absl::StrCat("has more than ", kMaxRank, " dimensions"));
      }
      entry->shape.AppendDim(static_cast<int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsets) return Fail("a number");
    if (num_offsets_ == 2) return FailTensor("must have two data_offsets");
    (num_offsets_++ == 0 ? entry->begin : entry->end) = value;
    return true;
  }

  bool number_integer(number_integer_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return Fail("a number");
    return FailTensor(absl::StrCat("has ", value, " in its ", field_));
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return Fail("a number");
    return FailTensor(absl::StrCat("has ", text, " in its ", field_,
                                   ", which must be an integer of at most 64 bits"));
  }
  bool null() override { return Fail("null"); }
  bool boolean(bool) override { return Fail("a bool"); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Set(absl::StrCat("the header isn't JSON at its byte ", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Set(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }
  bool Fail(absl::string_view found) {
    return Set(absl::StrCat(
        "the header has ", found, " in a wrong place",
        header.entries.empty() ? "" : ", in or after " + Quoted(header.entries.back().name)));
  }
  bool FailTensor(absl::string_view what) {
    return Set(place_ == Place::kMetadata
                   ? absl::StrCat(Quoted(kMetadataKey), " ", what)
                   : absl::StrCat("tensor ", Quoted(header.entries.back().name), " ", what));
  }

  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  bool expecting_value_ = false;
  int num_offsets_ = 0;
  std::string field_;
  std::set<std::string, std::less<>> fields_;
  std::set<std::string> names_;
};

absl::Status TensorError(const SafetensorsEntry& entry, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(entry.name), " ", what));
}

// Resolves the dtype, and checks that the offsets fit the dtype, the shape and the file.
absl::Status CheckEntry(SafetensorsEntry* entry, uint64_t data_bytes) {
  const FormatDType* dtype = FindDType(entry->dtype_name);
  if (dtype == nullptr) {
    return TensorError(*entry, absl::StrCat("has the unknown dtype ", Quoted(entry->dtype_name)));
  }
  entry->dtype = dtype->dtype;
  const absl::Status valid = entry->shape.Validate();
  if (!valid.ok()) return TensorError(*entry, absl::StrCat("is too large: ", valid.message()));
  if (entry->begin > entry->end || entry->end > data_bytes) {
    return TensorError(*entry, absl::StrCat("has data_offsets ", entry->begin, " to ", entry->end,
                                            "; the file has ", data_bytes, " bytes of data"));
  }
  const uint64_t bits = static_cast<uint64_t>(entry->shape.num_elements()) * dtype->bits;
  if (bits % 8 != 0 || entry->end - entry->begin != bits / 8) {
    return TensorError(
        *entry, absl::StrCat("has ", entry->end - entry->begin, " bytes; ", entry->dtype_name,
                             entry->shape.ToString(), " takes ", (bits + 7) / 8));
  }
  return absl::OkStatus();
}

absl::Status CheckCoverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  uint64_t covered = 0;
  for (size_t i : order) {
    if (entries[i].begin != covered) {
      return TensorError(entries[i], absl::StrCat("begins at byte ", entries[i].begin,
                                                  entries[i].begin < covered
                                                      ? ", inside another tensor, which ends at "
                                                      : ", leaving a hole after byte ",
                                                  covered));
    }
    covered = entries[i].end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tensors end at byte ", covered, " of the data, which has ", data_bytes));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes) {
  if (!absl::StartsWith(json, "{")) {
    return absl::InvalidArgumentError("the header doesn't begin with \"{\"");
  }
  // The parser would treat a zero byte as the end of its input.
  if (absl::StrContains(json, absl::string_view("\0", 1))) {
    return absl::InvalidArgumentError("the header has a zero byte");
  }
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    return absl::InvalidArgumentError(reader.error);
  }
  for (SafetensorsEntry& entry : reader.header.entries) {
    TENSORD_RETURN_IF_ERROR(CheckEntry(&entry, data_bytes));
  }
  TENSORD_RETURN_IF_ERROR(CheckCoverage(reader.header.entries, data_bytes));
  return std::move(reader.header);
}

absl::string_view SafetensorsDTypeName(DType dtype) {
  const auto* it = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                [&](const FormatDType& d) { return d.dtype == dtype; });
  return it == std::end(kDTypes) ? "" : it->name;
}

}  // namespace tensord::internal
