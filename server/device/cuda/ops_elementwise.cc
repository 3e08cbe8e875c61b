// Unary and binary ops, casts and where.
#include "absl/types/span.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"

namespace tensord::server::cuda {
namespace {

absl::Status RunUnary(const UnaryKernel& kernel, const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output.spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const UnaryLauncher launch = kernel.by_dtype[DTypeNumber(call.output)];
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.inputs[0].data, call.output.data, size, context.stream));
}

absl::Status RunBinary(const BinaryKernel& kernel, const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output.spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const Operand& a = call.inputs[0];
  const Operand& b = call.inputs[1];
  const BinaryLauncher launch = kernel.by_dtype[DTypeNumber(a)];
  if (launch == nullptr) return NoKernelError(call);
  // Broadcasting that adds no element adds only axes of size 1.
  if (a.spec->num_elements() == size && b.spec->num_elements() == size) {
    constexpr int64_t kDense[] = {1};
    const auto loop = MakeStridedLoop<2>(1, &size, {kDense, kDense});
    return LaunchStatus(call, launch(a.data, b.data, call.output.data, loop, context.stream));
  }
  const Shape& shape = call.output.spec->shape;
  const Dims a_strides = BroadcastStrides(a.spec->shape, shape);
  const Dims b_strides = BroadcastStrides(b.spec->shape, shape);
  const auto loop =
      MakeStridedLoop<2>(shape.rank(), shape.dims().data(), {a_strides.data(), b_strides.data()});
  return LaunchStatus(call, launch(a.data, b.data, call.output.data, loop, context.stream));
}

absl::Status RunCast(const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output.spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const UnaryLauncher launch = CastLauncher(DTypeNumber(call.inputs[0]), DTypeNumber(call.output));
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.inputs[0].data, call.output.data, size, context.stream));
}

absl::Status RunWhere(const KernelCall& call, KernelContext& context) {
  const Shape& shape = call.output.spec->shape;
  if (shape.num_elements() == 0) return absl::OkStatus();
  const Dims condition = BroadcastStrides(call.inputs[0].spec->shape, shape);
  const Dims x = BroadcastStrides(call.inputs[1].spec->shape, shape);
  const Dims y = BroadcastStrides(call.inputs[2].spec->shape, shape);
  const auto loop =
      MakeStridedLoop<3>(shape.rank(), shape.dims().data(), {condition.data(), x.data(), y.data()});
  return LaunchStatus(
      call,
      LaunchWhere(call.inputs[0].data, call.inputs[1].data, call.inputs[2].data, call.output.data,
                  static_cast<int>(SizeOf(call.output.spec->dtype)), loop, context.stream));
}

void AppendBinary(KernelTable& table, std::span<const BinaryKernel> kernels) {
  for (const BinaryKernel& kernel : kernels) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunBinary(kernel, call, context);
    };
  }
}

}  // namespace

void AppendElementwiseKernels(KernelTable& table) {
  for (const UnaryKernel& kernel : UnaryKernels()) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunUnary(kernel, call, context);
    };
  }
  table["gelu"] = [exact = table["gelu"], approximate = table["gelu_tanh"]](
                      const KernelCall& call, KernelContext& context) {
    const bool by_tanh = call.attrs->String("approximate") == "tanh";
    return by_tanh ? approximate(call, context) : exact(call, context);
  };
  AppendBinary(table, ArithmeticKernels());
  AppendBinary(table, PowerKernels());
  AppendBinary(table, ComparisonKernels());
  table["cast"] = RunCast;
  table["where"] = RunWhere;
}

}  // namespace tensord::server::cuda
