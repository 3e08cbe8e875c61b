#include "tensord/common/tensor_spec.h"

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

absl::Status TensorSpec::Validate() const {
  if (!IsValid(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype number ", static_cast<int>(dtype), " is ",
        dtype == DType::kUnspecified ? "unspecified" : "unknown", ": name one, such as float32"));
  }
  return shape.Validate();
}

std::string TensorSpec::ToString() const {
  return absl::StrCat(DTypeName(dtype), shape.ToString());
}

}  // namespace tensord
