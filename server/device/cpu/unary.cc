#include <string.h>

#include <algorithm>

#include "tensord/server/device/cpu/kernels.h"

namespace tensord::server::cpu {
namespace {

// Ops that take a dozen nanoseconds an element by libm are worth a thread earlier.
int64_t GrainOf(UnaryOp op) {
  return op <= UnaryOp::kRelu || op == UnaryOp::kSqrt ? kGrainElements : kGrainElements / 4;
}

void Run16Bit(const Loops& loops, UnaryLoop loop, DType dtype, const void* x, void* y, int64_t n) {
  const int f32 = Index(DType::kFloat32);
  const CastLoop widen = loops.cast[Index(dtype)][f32];
  const CastLoop narrow = loops.cast[f32][Index(dtype)];
  float block[kBlockElements];
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(kBlockElements, n - i);
    widen(Advance(x, i * 2), block, count);
    loop(block, block, count);
    narrow(block, Advance(y, i * 2), count);
  }
}

absl::Status Run(const Context& ctx, const KernelCall& call, UnaryOp op) {
  const Operand& x = call.inputs[0];
  const DType dtype = x.spec->dtype;
  const UnaryLoop loop = ctx.loops.unary[static_cast<int>(op)][Index(ComputeDType(dtype))];
  if (loop == nullptr || call.output.spec->dtype != dtype) return NoKernel(call);
  const int64_t size = SizeOf(dtype);
  ctx.team.For(
      call.output.spec->num_elements(), GrainOf(op),
      [&](int64_t begin, int64_t end) {
        const void* from = Advance(x.data, begin * size);
        void* to = Advance(call.output.data, begin * size);
        if (Is16Bit(dtype)) {
          Run16Bit(ctx.loops, loop, dtype, from, to, end - begin);
        } else {
          loop(from, to, end - begin);
        }
      },
      kBlockElements);
  return absl::OkStatus();
}

// By way of float32, in blocks.
void ConvertTwice(CastLoop widen, int64_t from_size, CastLoop narrow, int64_t to_size,
                  const void* x, void* y, int64_t n) {
  float block[kBlockElements];
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(kBlockElements, n - i);
    widen(Advance(x, i * from_size), block, count);
    narrow(block, Advance(y, i * to_size), count);
  }
}

}  // namespace

template <UnaryOp op>
absl::Status UnaryKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, op);
}
template absl::Status UnaryKernel<UnaryOp::kNeg>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kAbs>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kRelu>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kExp>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kLog>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kSqrt>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kRsqrt>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kTanh>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kSigmoid>(const Context&, const KernelCall&);
template absl::Status UnaryKernel<UnaryOp::kSilu>(const Context&, const KernelCall&);

absl::Status GeluKernel(const Context& ctx, const KernelCall& call) {
  const bool by_tanh = call.attrs->String("approximate") == "tanh";
  return Run(ctx, call, by_tanh ? UnaryOp::kGeluTanh : UnaryOp::kGeluErf);
}

void Convert(const Loops& loops, DType from, const void* x, DType to, void* y, int64_t n) {
  if (from == to) {
    if (n > 0) memcpy(y, x, n * SizeOf(to));
    return;
  }
  const CastLoop direct = loops.cast[Index(from)][Index(to)];
  if (direct != nullptr) return direct(x, y, n);
  // At least one of the two is of 16 bits.
  const int f32 = Index(DType::kFloat32);
  ConvertTwice(loops.cast[Index(from)][f32], SizeOf(from), loops.cast[f32][Index(to)], SizeOf(to),
               x, y, n);
}

void ConvertInParallel(const Context& ctx, DType from, const void* x, DType to, void* y,
                       int64_t n) {
  ctx.team.For(
      n, kGrainElements,
      [&](int64_t begin, int64_t end) {
        Convert(ctx.loops, from, Advance(x, begin * SizeOf(from)), to,
                Advance(y, begin * SizeOf(to)), end - begin);
      },
      kBlockElements);
}

absl::Status CastKernel(const Context& ctx, const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const Operand& y = call.output;
  if (!IsValid(x.spec->dtype) || !IsValid(y.spec->dtype)) return NoKernel(call);
  ConvertInParallel(ctx, x.spec->dtype, x.data, y.spec->dtype, y.data, y.spec->num_elements());
  return absl::OkStatus();
}

}  // namespace tensord::server::cpu
