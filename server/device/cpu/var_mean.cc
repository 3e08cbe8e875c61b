#include <algorithm>
#include <limits>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/reduce_axes.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

// Writes the variances and means of the outputs [begin, end).
void StoreOutputs(const Context& ctx, const KernelCall& call, const Moments* moments,
                  double divisor, int64_t begin, int64_t end) {
  const DType dtype = call.output().spec->dtype;
  double values[kBlockElements];
  for (int64_t i = begin; i < end; i += kBlockElements) {
    const int64_t n = std::min<int64_t>(kBlockElements, end - i);
    for (int64_t j = 0; j < n; ++j) values[j] = moments[i + j].squares / divisor;
    Convert(ctx.loops, DType::kFloat64, values, dtype,
            Advance(call.outputs[0].data, i * SizeOf(dtype)), n);
    for (int64_t j = 0; j < n; ++j) values[j] = moments[i + j].mean;
    Convert(ctx.loops, DType::kFloat64, values, dtype,
            Advance(call.outputs[1].data, i * SizeOf(dtype)), n);
  }
}

// Fills both outputs with NaN, for reductions of no elements.
void FillWithNan(const Context& ctx, const KernelCall& call) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Operand& output : call.outputs) {
    char value[sizeof(double)];
    Convert(ctx.loops, DType::kFloat64, &nan, output.spec->dtype, value, 1);
    Fill(ctx, value, SizeOf(output.spec->dtype), output.data, output.spec->num_elements());
  }
}

absl::Status VarMeanKernel(const Context& ctx, const KernelCall& call) {
  const int64_t outputs = call.output().spec->num_elements();
  if (outputs == 0) return absl::OkStatus();
  if (call.inputs[0].spec->num_elements() == 0) {
    FillWithNan(ctx, call);
    return absl::OkStatus();
  }
  TENSORD_ASSIGN_OR_RETURN(const Reduced reduced, ReduceAxes(ctx, call, Reduction::kMoments, 0.0));
  const auto* moments = static_cast<const Moments*>(reduced.data);
  const double divisor =
      std::max(static_cast<double>(reduced.extent) - call.attrs->Float("correction"), 0.0);
  ctx.team.For(outputs, kGrainElements / 8, [&](int64_t begin, int64_t end) {
    StoreOutputs(ctx, call, moments, divisor, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace

void AppendVarMeanKernels(KernelTable& table) { table["var_mean"] = VarMeanKernel; }

}  // namespace tensord::server::cpu
