#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/lines.h"

namespace tensord::server::cpu {
namespace {

constexpr double kSoftmaxCost = 4;  // the time for an element, relative to a cheap elementwise op

absl::Status Run(const Context& ctx, const KernelCall& call, const SoftmaxLoops& loops) {
  if (loops.row == nullptr) return NoKernel(call);
  const DType dtype = call.inputs[0].spec->dtype;
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Lines lines = DivideIntoLines(call.inputs[0].spec->shape, call.attrs->Int("axis"));
  // 16-bit elements are converted to float32. There is room for the operand and the result.
  const int64_t copied =
      Is16Bit(dtype) ? lines.extent * std::min(kMaxGroupColumns, lines.inner) : 0;
  TENSORD_ASSIGN_OR_RETURN(const Scratch work,
                           MakeScratch(call, 2 * copied * 4 * ctx.team.threads()));
  ForLineGroups(ctx, lines, kSoftmaxCost, [&](const LineGroup& group) {
    const auto run = [&](const void* x, void* y, int64_t stride) {
      if (lines.inner == 1) {
        loops.row(x, y, lines.extent);
      } else {
        loops.columns(x, y, lines.extent, stride, group.width);
      }
    };
    if (copied == 0) {
      const int64_t at = group.offset * SizeOf(dtype);
      return run(Advance(call.inputs[0].data, at), Advance(call.output().data, at), lines.inner);
    }
    float* const x_copy = work.As<float>() + 2 * copied * Team::Current();
    WidenLines(ctx, lines, group, dtype, call.inputs[0].data, x_copy);
    run(x_copy, x_copy + copied, group.width);
    NarrowLines(ctx, lines, group, x_copy + copied, dtype, call.output().data);
  });
  return absl::OkStatus();
}

absl::Status SoftmaxKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.softmax[Index(ComputeDType(call.inputs[0].spec->dtype))]);
}

absl::Status LogSoftmaxKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.log_softmax[Index(ComputeDType(call.inputs[0].spec->dtype))]);
}

}  // namespace

void AppendSoftmaxKernels(KernelTable& table) {
  table["softmax"] = SoftmaxKernel;
  table["log_softmax"] = LogSoftmaxKernel;
}

}  // namespace tensord::server::cpu
