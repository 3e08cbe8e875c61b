#include "tensord/server/device/adam_numbers.h"

#include <algorithm>

#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"

namespace tensord::server::cpu {
namespace {

constexpr double kAdamCost = 4;  // the time for an element, relative to a cheap elementwise op

// The operands of a step: first the tensors, then the numbers `step` and `lr`. Without amsgrad
// there is no vmax.
struct AdamOperands {
  const KernelCall& call;
  const bool amsgrad = call.attrs->Bool("amsgrad");

  const Operand& input(int i) const { return call.inputs[i]; }
  int count() const { return amsgrad ? 5 : 4; }  // of tensors
  double number(int i) const { return call.inputs[count() + i].As<double>()[0]; }
};

// Computes a step of the 16-bit elements [begin, begin + n), n <= kBlockElements, in float32.
void Step16Bit(const Context& ctx, const AdamOperands& operands, const AdamNumbers& numbers,
               AdamLoop loop, int64_t begin, int64_t n) {
  const DType dtype = operands.input(0).spec->dtype;
  float values[5][kBlockElements];
  for (int i = 0; i < operands.count(); ++i) {
    Convert(ctx.loops, dtype, Advance(operands.input(i).data, begin * 2), DType::kFloat32,
            values[i], n);
  }
  float *const p = values[0], *const m = values[2], *const v = values[3];
  float* const vmax = operands.amsgrad ? values[4] : nullptr;
  loop(numbers, {p, values[1], m, v, vmax, p, m, v, vmax}, n);
  float* const results[] = {p, m, v, vmax};
  for (size_t i = 0; i < operands.call.outputs.size(); ++i) {
    Convert(ctx.loops, DType::kFloat32, results[i], dtype,
            Advance(operands.call.outputs[i].data, begin * 2), n);
  }
}

absl::Status AdamStepKernel(const Context& ctx, const KernelCall& call) {
  const AdamOperands operands{call};
  const DType dtype = call.inputs[0].spec->dtype;
  const AdamLoop loop = BestNetworkLoops().adam[Index(ComputeDType(dtype))];
  if (loop == nullptr) return NoKernel(call);
  const AdamNumbers numbers =
      ComputeAdamNumbers({call.attrs->Float("beta1"), call.attrs->Float("beta2"),
                          call.attrs->Float("eps"), call.attrs->Float("weight_decay"),
                          call.attrs->Bool("decoupled"), call.attrs->Bool("maximize")},
                         operands.number(0), operands.number(1));
  const int64_t size = SizeOf(dtype);
  ctx.team.For(
      call.output().spec->num_elements(), kGrainElements / kAdamCost,
      [&](int64_t begin, int64_t end) {
        if (Is16Bit(dtype)) {
          for (int64_t i = begin; i < end; i += kBlockElements) {
            Step16Bit(ctx, operands, numbers, loop, i, std::min<int64_t>(kBlockElements, end - i));
          }
          return;
        }
        const auto in = [&](int i) { return Advance(call.inputs[i].data, begin * size); };
        const auto out = [&](int i) { return Advance(call.outputs[i].data, begin * size); };
        loop(numbers,
             {in(0), in(1), in(2), in(3), operands.amsgrad ? in(4) : nullptr, out(0), out(1),
              out(2), operands.amsgrad ? out(3) : nullptr},
             end - begin);
      },
      64);
  return absl::OkStatus();
}

}  // namespace

void AppendAdamKernels(KernelTable& table) { table["adam_step"] = AdamStepKernel; }

}  // namespace tensord::server::cpu
