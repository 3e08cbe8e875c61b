#include "tensord/common/attributes.h"

#include <cstdio>
#include <cstdlib>

namespace tensord {
namespace {

[[noreturn]] void AbortOnWrongType(absl::string_view name, const AttrValue* value) {
  const absl::string_view found = value == nullptr ? "missing" : AttrTypeName(*value);
  std::fprintf(stderr, "Attributes: \"%.*s\" doesn't have the requested type: %.*s\n",
               static_cast<int>(name.size()), name.data(), static_cast<int>(found.size()),
               found.data());
  std::abort();
}

// The estimated cost of an allocation in addition to its bytes.
constexpr size_t kAllocationBytes = 16;

size_t AllocatedBytesOf(const std::string& text) {
  static const size_t inline_capacity = std::string().capacity();
  return text.capacity() > inline_capacity ? text.capacity() + kAllocationBytes : 0;
}

struct AllocatedByValue {
  template <typename T>
  size_t operator()(const T& /*value*/) const {
    return 0;
  }
  size_t operator()(const std::string& value) const { return AllocatedBytesOf(value); }
  size_t operator()(const Bytes& value) const { return AllocatedBytesOf(value.data); }
  size_t operator()(const std::vector<int64_t>& values) const {
    return kAllocationBytes + values.capacity() * sizeof(int64_t);
  }
};

}  // namespace

absl::string_view AttrTypeName(AttrType type) {
  static constexpr absl::string_view kNames[] = {"bool", "int",   "float", "string",
                                                 "ints", "dtype", "bytes", "scalar"};
  static_assert(std::size(kNames) == std::variant_size_v<AttrValue> + 1);
  return kNames[static_cast<size_t>(type)];
}

absl::string_view AttrTypeName(const AttrValue& value) {
  return value.valueless_by_exception() ? "nothing"
                                        : AttrTypeName(static_cast<AttrType>(value.index()));
}

const AttrValue* Attributes::Find(absl::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::Set(absl::string_view name, AttrValue value) {
  for (auto& [key, old_value] : entries_) {
    if (key == name) {
      old_value = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::string(name), std::move(value));
}

size_t Attributes::AllocatedBytes() const {
  size_t bytes = entries_.size() > kInlineEntries ? entries_.capacity() * sizeof(Entry) : 0;
  for (const auto& [name, value] : entries_) {
    bytes += AllocatedBytesOf(name) + std::visit(AllocatedByValue(), value);
  }
  return bytes;
}

template <typename T>
const T& TypedValue(absl::string_view name, const AttrValue* value) {
  const T* typed = value == nullptr ? nullptr : std::get_if<T>(value);
  if (typed == nullptr) AbortOnWrongType(name, value);
  return *typed;
}

template const bool& TypedValue(absl::string_view, const AttrValue*);
template const int64_t& TypedValue(absl::string_view, const AttrValue*);
template const double& TypedValue(absl::string_view, const AttrValue*);
template const std::string& TypedValue(absl::string_view, const AttrValue*);
template const std::vector<int64_t>& TypedValue(absl::string_view, const AttrValue*);
template const DType& TypedValue(absl::string_view, const AttrValue*);
template const Bytes& TypedValue(absl::string_view, const AttrValue*);

}  // namespace tensord
