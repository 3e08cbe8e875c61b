#include <algorithm>

#include "tensord/server/device/cpu/broadcast.h"
#include "tensord/server/device/cpu/kernels.h"

namespace tensord::server::cpu {
namespace {

// Operands of 16 bits, converted to float32 block by block.
void Run16Bit(const Loops& loops, BinaryLoop loop, bool comparison, DType dtype,
              const BroadcastRun& run) {
  const int f32 = Index(DType::kFloat32);
  const CastLoop widen = loops.cast[Index(dtype)][f32];
  const CastLoop narrow = loops.cast[f32][Index(dtype)];
  float a[kBlockElements], b[kBlockElements], y[kBlockElements];
  if (run.step[0] == 0) widen(run.data[0], a, 1);
  if (run.step[1] == 0) widen(run.data[1], b, 1);
  for (int64_t i = 0; i < run.n; i += kBlockElements) {
    const int64_t n = std::min<int64_t>(kBlockElements, run.n - i);
    if (run.step[0] != 0) widen(Advance(run.data[0], i * 2), a, n);
    if (run.step[1] != 0) widen(Advance(run.data[1], i * 2), b, n);
    if (comparison) {
      loop(a, run.step[0], b, run.step[1], Advance(run.output, i), n);
    } else {
      loop(a, run.step[0], b, run.step[1], y, n);
      narrow(y, Advance(run.output, i * 2), n);
    }
  }
}

absl::Status Run(const Context& ctx, const KernelCall& call, BinaryOp op) {
  const DType dtype = call.inputs[0].spec->dtype;
  const BinaryLoop loop = ctx.loops.binary[static_cast<int>(op)][Index(ComputeDType(dtype))];
  const DType expected = IsComparison(op) ? DType::kBool : dtype;
  if (loop == nullptr || call.inputs[1].spec->dtype != dtype ||
      call.output.spec->dtype != expected) {
    return NoKernel(call);
  }
  const int64_t grain = op == BinaryOp::kPow ? kGrainElements / 8 : kGrainElements;
  ForEachRun(ctx, call, grain, [&](const BroadcastRun& run) {
    if (Is16Bit(dtype)) {
      Run16Bit(ctx.loops, loop, IsComparison(op), dtype, run);
    } else {
      loop(run.data[0], run.step[0], run.data[1], run.step[1], run.output, run.n);
    }
  });
  return absl::OkStatus();
}

}  // namespace

template <BinaryOp op>
absl::Status BinaryKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, op);
}
template absl::Status BinaryKernel<BinaryOp::kAdd>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kSub>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kMul>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kDiv>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kPow>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kMaximum>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kMinimum>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kEq>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kNe>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kLt>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kLe>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kGt>(const Context&, const KernelCall&);
template absl::Status BinaryKernel<BinaryOp::kGe>(const Context&, const KernelCall&);

absl::Status WhereKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output.spec->dtype;
  if (call.inputs[0].spec->dtype != DType::kBool || call.inputs[1].spec->dtype != dtype ||
      call.inputs[2].spec->dtype != dtype) {
    return NoKernel(call);
  }
  const WhereLoop loop = ctx.loops.where[SizeIndex(SizeOf(dtype))];
  ForEachRun(ctx, call, kGrainElements, [&](const BroadcastRun& run) {
    loop(run.data[0], run.step[0], run.data[1], run.step[1], run.data[2], run.step[2], run.output,
         run.n);
  });
  return absl::OkStatus();
}

}  // namespace tensord::server::cpu
