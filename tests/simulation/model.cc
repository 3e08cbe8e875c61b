#include "tensord/tests/simulation/model.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_details.h"

namespace tensord::simulation {
namespace {

template <typename T>
void AppendAs(int64_t element, std::string* bytes) {
  const T value = static_cast<T>(element);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool IsAt(absl::string_view bytes, size_t index, int64_t element) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value == static_cast<T>(element);
}

// Returns the number after `before` in an error's text.
std::optional<uint64_t> NumberAfter(absl::string_view text, absl::string_view before) {
  const size_t at = text.find(before);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + before.size());
  uint64_t number = 0;
  const size_t end = text.find_first_not_of("0123456789");
  if (!absl::SimpleAtoi(text.substr(0, end), &number)) return std::nullopt;
  return number;
}

// Returns whether this is the error of a value whose handle the client has deleted before its
// upload finished. The server reports it only for tensors that are computed from the value.
bool IsDroppedPromise(const Value& value, const absl::Status& error) {
  return value.upload && absl::IsFailedPrecondition(error) &&
         absl::StrContains(error.message(), "deleted before its upload") &&
         NumberAfter(error.message(), "tensor ") == value.handle;
}

// Adds the value, and all values from which it is computed, to `found`.
void Ancestors(const Value& value, std::set<const Value*>* found) {
  if (!found->insert(&value).second) return;
  for (const ValueRef& input : value.inputs) Ancestors(*input, found);
}

}  // namespace

std::string Encode(const TensorSpec& spec, const std::vector<int64_t>& elements) {
  std::string bytes;
  for (int64_t element : elements) {
    if (spec.dtype == DType::kFloat32) AppendAs<float>(element, &bytes);
    if (spec.dtype == DType::kInt32) AppendAs<int32_t>(element, &bytes);
    if (spec.dtype == DType::kInt64) AppendAs<int64_t>(element, &bytes);
  }
  return bytes;
}

bool Matches(const TensorSpec& spec, absl::string_view bytes,
             const std::vector<int64_t>& elements) {
  if (static_cast<int64_t>(bytes.size()) != spec.size_bytes()) return false;
  if (spec.num_elements() != static_cast<int64_t>(elements.size())) return false;
  for (size_t i = 0; i < elements.size(); ++i) {
    bool same = false;
    if (spec.dtype == DType::kFloat32) same = IsAt<float>(bytes, i, elements[i]);
    if (spec.dtype == DType::kInt32) same = IsAt<int32_t>(bytes, i, elements[i]);
    if (spec.dtype == DType::kInt64) same = IsAt<int64_t>(bytes, i, elements[i]);
    if (!same) return false;
  }
  return true;
}

bool Model::IsLimitOf(const absl::Status& error) const {
  const std::string reason = ErrorReason(error);
  if (reason == "SESSION_BYTES_EXCEEDED") return expected_errors_.session_bytes;
  if (reason == "PRINCIPAL_BYTES_EXCEEDED") return expected_errors_.principal_bytes;
  if (reason == "SESSION_HANDLES_EXCEEDED") return expected_errors_.session_handles;
  if (reason == "PRINCIPAL_HANDLES_EXCEEDED") return expected_errors_.principal_handles;
  if (reason == "PRINCIPAL_UPLOAD_BYTES_EXCEEDED") return expected_errors_.upload_bytes;
  const std::string text(error.message());
  if (absl::StrContains(text, "a fault that was asked for"))
    return expected_errors_.allocations_fail;
  if (absl::StrContains(text, "ops waiting to run")) return expected_errors_.ops_in_flight;
  return absl::StrContains(text, "is out of memory") && expected_errors_.small_devices;
}

bool Model::IsValueError(const std::set<const Value*>& ancestors, const absl::Status& error) {
  return std::any_of(ancestors.begin(), ancestors.end(), [&error](const Value* ancestor) {
    const uint64_t handle = ancestor->siblings.empty() ? ancestor->handle : ancestor->siblings[0];
    return !ancestor->value_error.empty() &&
           error.message() ==
               absl::StrCat(ancestor->made_by, " (tensor ", handle, "): ", ancestor->value_error);
  });
}

// Returns whether a session gives this error for a handle that it doesn't have: NOT_FOUND, or the
// latest refusal of a handle at a limit.
bool MeansMissing(const absl::Status& error) {
  return absl::IsNotFound(error) ||
         (absl::IsResourceExhausted(error) && absl::StrContains(error.message(), "--max-handles-"));
}

bool Model::MayBeMissing(const Value& value) const {
  // A failed tensor takes a handle, too, unless the limit is reached.
  return !value.error.ok() &&
         (expected_errors_.session_handles || expected_errors_.principal_handles);
}

std::string Model::CheckPossible(const Value& value, const absl::Status& error) const {
  const std::string text(error.message());
  const std::string what =
      absl::StrCat("tensor ", value.handle, " (", value.made_by, ") fails with ", error.ToString());
  std::set<const Value*> ancestors;
  Ancestors(value, &ancestors);
  if (absl::IsResourceExhausted(error) && MeansMissing(error)) {
    for (const Value* ancestor : ancestors) {
      if (MayBeMissing(*ancestor)) return "";
    }
  }
  if (absl::IsNotFound(error)) {
    const auto root = NumberAfter(text, "this session has no tensor ");
    for (const Value* ancestor : ancestors) {
      if (root == ancestor->handle && MayBeMissing(*ancestor)) return "";
    }
    return absl::StrCat(what, ", but the server accepted that handle");
  }
  if (absl::IsFailedPrecondition(error) && absl::StrContains(text, "deleted before its upload")) {
    for (const Value* ancestor : ancestors) {
      if (ancestor->upload) return "";
    }
  }
  if (absl::IsInvalidArgument(error) && IsValueError(ancestors, error)) return "";
  if (!absl::IsResourceExhausted(error) || !IsLimitOf(error)) {
    return absl::StrCat(what, ", and nothing in this world explains this");
  }
  const auto root = NumberAfter(text, "(tensor ");
  if (!root.has_value()) return "";
  for (const Value* ancestor : ancestors) {
    if (ancestor->handle == *root) {
      return ancestor->good ? what + ", but that tensor has been read" : "";
    }
    for (uint64_t sibling : ancestor->siblings) {
      if (sibling == *root) return "";
    }
  }
  return absl::StrCat(what, ", but it doesn't depend on that tensor");
}

std::string Model::RecordFailure(Value& value, const absl::Status& error) {
  if (value.good) {
    return absl::StrCat("tensor ", value.handle, " fails with ", error.ToString(),
                        ", but it was read before");
  }
  value.error = error;
  return CheckPossible(value, error);
}

std::string Model::RecordSuccess(Value& value) {
  if (!value.error.ok()) {
    return absl::StrCat("tensor ", value.handle, " has failed (", value.error.ToString(),
                        "), but a tensor that depends on it is good");
  }
  if (!value.value_error.empty()) {
    return absl::StrCat("tensor ", value.handle, " (", value.made_by,
                        "), or a tensor that depends on it, is good in spite of ",
                        value.value_error);
  }
  if (value.good) return "";
  value.good = true;
  for (const ValueRef& input : value.inputs) {
    if (std::string wrong = RecordSuccess(*input); !wrong.empty()) return wrong;
  }
  return "";
}

std::string Model::OnHandleError(const v1::HandleError& reported) {
  const absl::Status error =
      StatusFromCode(reported.code(), reported.message(), reported.status_details());
  const auto found = values_.find(reported.handle());
  if (found == values_.end()) {
    return absl::StrCat("an error of tensor ", reported.handle(),
                        ", which the client hasn't made: ", error.ToString());
  }
  Value& value = *found->second;
  if (reported.command() != value.command) {
    return absl::StrCat("tensor ", value.handle, " was made by command ", value.command,
                        ", but the error is of command ", reported.command(), ": ",
                        error.ToString());
  }
  if (!value.error.ok()) {
    return absl::StrCat("a second error of tensor ", value.handle, ": ", error.ToString());
  }
  if (IsDroppedPromise(value, error)) {
    return absl::StrCat("the stream reports an error of tensor ", value.handle,
                        ", which the client has dropped: ", error.ToString());
  }
  return RecordFailure(value, error);
}

std::string Model::Read(const Value& read, const absl::StatusOr<v1::Elements>& answer) {
  Value& value = *values_.at(read.handle);
  if (answer.ok()) {
    const absl::StatusOr<TensorSpec> spec = internal::SpecFromProto(answer->spec());
    if (!spec.ok() || *spec != value.spec || !Matches(*spec, answer->data(), value.elements)) {
      return absl::StrCat("tensor ", value.handle, " (", value.made_by, ", ", value.spec.ToString(),
                          ") has wrong elements");
    }
    return RecordSuccess(value);
  }
  const absl::Status& error = answer.status();
  if (value.error.ok() && IsDroppedPromise(value, error)) return RecordFailure(value, error);
  if (value.error.ok()) {
    return absl::StrCat("a read of tensor ", value.handle, " fails with ", error.ToString(),
                        ", but the stream hasn't reported this error");
  }
  if (error == value.error) return "";
  if (MeansMissing(error) && MayBeMissing(value)) return "";
  return absl::StrCat("tensor ", value.handle, " fails with ", error.ToString(),
                      ", but failed before with ", value.error.ToString());
}

std::string Model::OnUnaryRead(const Value& read, const absl::StatusOr<std::string>& bytes) {
  Value& value = *values_.at(read.handle);
  if (bytes.ok() && Matches(value.spec, *bytes, value.elements)) return RecordSuccess(value);
  if (bytes.ok()) {
    return absl::StrCat("a unary read of tensor ", value.handle, " (", value.made_by, ", ",
                        value.spec.ToString(), ") returns wrong elements");
  }
  // The stream may report the error later.
  if (bytes.status().message() == value.error.message()) return "";
  if (MeansMissing(bytes.status())) {
    return expected_errors_.session_handles || expected_errors_.principal_handles
               ? ""
               : absl::StrCat("a unary read doesn't find tensor ", value.handle);
  }
  if (!value.error.ok()) {
    return absl::StrCat("a unary read of tensor ", value.handle, " fails with ",
                        bytes.status().ToString(), ", but the stream reported ",
                        value.error.ToString());
  }
  return CheckPossible(value, bytes.status());
}

}  // namespace tensord::simulation
