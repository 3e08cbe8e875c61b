#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/lines.h"

namespace tensord::server::cpu {
namespace {

// The time for an element, relative to a cheap elementwise op.
constexpr double kSoftmaxBackwardCost = 4;

absl::Status SoftmaxBackwardKernel(const Context& ctx, const KernelCall& call) {
  const Operand &g = call.inputs[0], &y = call.inputs[1], &gx = call.output();
  const DType dtype = gx.spec->dtype;
  const int number = Index(ComputeDType(dtype));
  const SoftmaxBackwardLoops& loops = call.attrs->Bool("log")
                                          ? BestNetworkLoops().log_softmax_backward[number]
                                          : BestNetworkLoops().softmax_backward[number];
  if (loops.row == nullptr) return NoKernel(call);
  if (gx.spec->num_elements() == 0) return absl::OkStatus();
  const Lines lines = DivideIntoLines(gx.spec->shape, call.attrs->Int("axis"));
  const int64_t size = SizeOf(dtype);
  const int64_t copied =
      Is16Bit(dtype) ? lines.extent * std::min(kMaxGroupColumns, lines.inner) : 0;
  TENSORD_ASSIGN_OR_RETURN(const Scratch work,
                           MakeScratch(call, 2 * copied * 4 * ctx.team.threads()));
  ForLineGroups(ctx, lines, kSoftmaxBackwardCost, [&](const LineGroup& group) {
    const auto run = [&](const void* g_at, const void* y_at, void* gx_at, int64_t stride) {
      if (lines.inner == 1) {
        loops.row(g_at, y_at, gx_at, lines.extent);
      } else {
        loops.columns(g_at, y_at, gx_at, lines.extent, stride, group.width);
      }
    };
    if (copied == 0) {
      const int64_t at = group.offset * size;
      return run(Advance(g.data, at), Advance(y.data, at), Advance(gx.data, at), lines.inner);
    }
    float* const g_copy = work.As<float>() + 2 * copied * Team::Current();
    WidenLines(ctx, lines, group, dtype, g.data, g_copy);
    WidenLines(ctx, lines, group, dtype, y.data, g_copy + copied);
    run(g_copy, g_copy + copied, g_copy, group.width);
    NarrowLines(ctx, lines, group, g_copy, dtype, gx.data);
  });
  return absl::OkStatus();
}

}  // namespace

void AppendSoftmaxBackwardKernels(KernelTable& table) {
  table["softmax_backward"] = SoftmaxBackwardKernel;
}

}  // namespace tensord::server::cpu
