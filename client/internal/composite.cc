#include "tensord/client/internal/composite.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"

namespace tensord::internal {

Tensor Composite(absl::string_view function, std::initializer_list<Operand> operands,
                 Tensor result) {
  // Other codes than INVALID_ARGUMENT concern the session, and not the function's arguments.
  const absl::Status status = result.status();
  if (!absl::IsInvalidArgument(status)) return result;
  for (const Operand& operand : operands) {
    if (operand.tensor() != nullptr && !operand.tensor()->ok()) return result;
  }
  return Tensor::Failed(WithPrefix(status, absl::StrCat(function, ": ")));
}

Tensor Widen(const Tensor& x) { return Has16Bits(x.dtype()) ? x.To(DType::kFloat32) : x; }

Tensor Narrow(Tensor result, absl::Span<const Tensor* const> operands) {
  DType dtype = operands[0]->dtype();
  for (const Tensor* operand : operands.subspan(1)) {
    const absl::StatusOr<DType> promoted = PromoteTypes(dtype, operand->dtype());
    if (!promoted.ok()) return result;
    dtype = *promoted;
  }
  return Has16Bits(dtype) ? result.To(dtype) : std::move(result);
}

}  // namespace tensord::internal
