#include "tensord/client/internal/operands.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/scalar_typing.h"
#include "tensord/common/dtype.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"

namespace tensord::internal {
namespace {

// Returns a dtype of the same kind that holds the scalar, for an error.
DType WiderDType(DType dtype, Scalar scalar) {
  if (IsInteger(dtype)) return scalar.is_large() ? DType::kUInt64 : DType::kInt64;
  const double real = std::visit([](auto v) { return static_cast<double>(v); }, scalar.value());
  if (IsComplex(dtype)) return DType::kComplex128;
  return FitsFloating(DType::kFloat32, real) ? DType::kFloat32 : DType::kFloat64;
}

// Returns a scalar of an op as a tensor of shape [].
Tensor MakeConstant(absl::string_view op, const Device& device, Scalar scalar, DType dtype) {
  Tensor constant = Full(device, {}, scalar, {.dtype = dtype});
  if (constant.status().code() != absl::StatusCode::kInvalidArgument ||
      internal::ToScalarInput(scalar, dtype, 0).has_value()) {
    return constant;
  }
  const std::string value = std::visit([](auto v) { return absl::StrCat(v); }, scalar.value());
  return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(
      op, ": the scalar ", value, " doesn't fit ", DescribeRange(dtype),
      "; cast the tensor first, for example to ", DTypeName(WiderDType(dtype, scalar)))));
}

// The dtype to which operands are promoted.
struct Promotion {
  DType dtype = DType::kUnspecified;
  bool fails = false;  // tensors can't be promoted; `dtype` is that of the first ones
};

Promotion PromotionOf(absl::Span<const Operand> operands) {
  Promotion promotion;
  DType& dtype = promotion.dtype;
  for (const Operand& operand : operands) {
    if (operand.tensor() == nullptr) continue;
    const DType own = operand.tensor()->dtype();
    const absl::StatusOr<DType> both = IsValid(dtype) ? PromoteTypes(dtype, own) : own;
    promotion.fails = promotion.fails || !both.ok();
    dtype = both.value_or(dtype);
  }
  for (const Operand& operand : operands) {
    if (operand.tensor() != nullptr) continue;
    dtype =
        IsValid(dtype) ? PromotedDType(dtype, operand.scalar()) : DefaultDType(operand.scalar());
  }
  return promotion;
}

}  // namespace

Tensor RunOperands(absl::string_view op, absl::Span<const Operand> operands, int first,
                   NumberInputs numbers) {
  const Tensor* any = nullptr;
  bool is_recorded = false, has_scalars = false;
  for (const Operand& operand : operands) {
    if (operand.tensor() == nullptr) {
      has_scalars = true;
      continue;
    }
    if (!operand.tensor()->ok()) return *operand.tensor();
    any = operand.tensor();
    is_recorded = is_recorded || IsRecorded(*any);
  }
  if (any == nullptr) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat(op, operands.size() == 2 ? ": both" : ": all",
                     " operands are scalars; at least one must be a tensor")));
  }
  const Promotion promotion = PromotionOf(operands.subspan(first));
  const DType dtype = numbers.is_factor ? WideDType(promotion.dtype) : promotion.dtype;
  absl::InlinedVector<ScalarInput, 2> scalars;
  bool are_sent = !is_recorded;  // the scalars, with the op
  for (size_t i = 0; are_sent && i < operands.size(); ++i) {
    if (operands[i].tensor() != nullptr) continue;
    const auto scalar = ToScalarInput(operands[i].scalar(), dtype, static_cast<uint32_t>(i));
    are_sent = scalar.has_value();
    if (are_sent) scalars.push_back(*scalar);
  }
  const bool raises = has_scalars && !numbers.is_factor && !promotion.fails;
  absl::InlinedVector<Tensor, 3> made;
  made.reserve(operands.size());
  absl::InlinedVector<const Tensor*, 4> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor* const tensor = operands[i].tensor();
    // A scalar of a higher kind promotes the tensors. The op itself promotes tensors.
    const bool is_raised = tensor != nullptr && static_cast<int>(i) >= first && raises &&
                           KindOf(tensor->dtype()) < KindOf(promotion.dtype);
    if (tensor != nullptr && !is_raised) {
      inputs.push_back(tensor);
    } else if (tensor != nullptr) {
      inputs.push_back(&made.emplace_back(tensor->To(promotion.dtype)));
    } else if (!are_sent) {
      inputs.push_back(
          &made.emplace_back(MakeConstant(op, any->device(), operands[i].scalar(), dtype)));
    }
  }
  return scalars.empty() || !are_sent ? Enqueue(op, inputs, {})
                                      : EnqueueWithScalars(op, inputs, scalars);
}

}  // namespace tensord::internal
