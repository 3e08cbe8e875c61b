// Unary and binary ops, casts and where.
#include <optional>

#include "absl/types/span.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"

namespace tensord::server::cuda {
namespace {

absl::Status RunUnary(UnaryFunction function, const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const UnaryLauncher launch = FindUnaryLauncher(function, DTypeNumber(call.output()));
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.inputs[0].data, call.output().data, size, context.stream));
}

absl::Status RunBinary(BinaryFunction function, const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const Operand& a = call.inputs[0];
  const Operand& b = call.inputs[1];
  const BinaryLauncher launch = FindBinaryLauncher(function, DTypeNumber(a));
  if (launch == nullptr) return NoKernelError(call);
  // If no operand is repeated, broadcasting adds only axes of size 1.
  if (a.spec->num_elements() == size && b.spec->num_elements() == size) {
    constexpr int64_t kDense[] = {1};
    const auto loop = MakeStridedLoop<2>(1, &size, {kDense, kDense});
    return LaunchStatus(call, launch(a.data, b.data, call.output().data, loop, context.stream));
  }
  const Shape& shape = call.output().spec->shape;
  const Dims a_strides = BroadcastStrides(a.spec->shape, shape);
  const Dims b_strides = BroadcastStrides(b.spec->shape, shape);
  const auto loop =
      MakeStridedLoop<2>(shape.rank(), shape.dims().data(), {a_strides.data(), b_strides.data()});
  return LaunchStatus(call, launch(a.data, b.data, call.output().data, loop, context.stream));
}

absl::Status RunCast(const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const UnaryLauncher launch =
      CastLauncher(DTypeNumber(call.inputs[0]), DTypeNumber(call.output()));
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.inputs[0].data, call.output().data, size, context.stream));
}

absl::Status RunWhere(const KernelCall& call, KernelContext& context) {
  const Shape& shape = call.output().spec->shape;
  if (shape.num_elements() == 0) return absl::OkStatus();
  const Dims condition = BroadcastStrides(call.inputs[0].spec->shape, shape);
  const Dims x = BroadcastStrides(call.inputs[1].spec->shape, shape);
  const Dims y = BroadcastStrides(call.inputs[2].spec->shape, shape);
  const auto loop =
      MakeStridedLoop<3>(shape.rank(), shape.dims().data(), {condition.data(), x.data(), y.data()});
  return LaunchStatus(
      call,
      LaunchWhere(call.inputs[0].data, call.inputs[1].data, call.inputs[2].data, call.output().data,
                  static_cast<int>(SizeOf(call.output().spec->dtype)), loop, context.stream));
}

absl::Status RunElementwise(const KernelCall& call, KernelContext& context) {
  const std::optional<ElementwiseFunction> function = FunctionOf(*call.schema, *call.attrs);
  if (!function.has_value()) return NoKernelError(call);
  switch (function->kind) {
    case ElementwiseFunction::Kind::kUnary:
      return RunUnary(function->unary(), call, context);
    case ElementwiseFunction::Kind::kBinary:
      return RunBinary(function->binary(), call, context);
    case ElementwiseFunction::Kind::kWhere:
      return RunWhere(call, context);
    case ElementwiseFunction::Kind::kCast:
      return RunCast(call, context);
  }
  return NoKernelError(call);
}

}  // namespace

void AppendElementwiseKernels(KernelTable& table) {
  for (const OpSchema* schema : AllOps()) {
    if (schema->elementwise.has_value()) table[schema->name] = RunElementwise;
  }
}

}  // namespace tensord::server::cuda
