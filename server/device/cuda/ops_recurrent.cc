// Cells of recurrent layers, and their gradients.
#include <algorithm>

#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/recurrent.h"
#include "tensord/server/device/recurrent_parts.h"

namespace tensord::server::cuda {
namespace {

// `variant_inputs` is the number of operands of the second launcher.
Kernel CellKernel(const CellLaunchers& launchers, size_t variant_inputs) {
  return [launchers, variant_inputs](const KernelCall& call, KernelContext& context) {
    const CellOperands operands(call);
    if (operands.rows == 0 || operands.size == 0) return absl::OkStatus();
    const auto& variant = launchers.variants[call.inputs.size() == variant_inputs ? 1 : 0];
    const CellLauncher launch = variant[DTypeNumber(call.output())];
    if (launch == nullptr) return NoKernelError(call);
    CellJob job;
    std::copy_n(operands.inputs.data, operands.inputs.count, job.in);
    std::copy_n(operands.inputs.strides, operands.inputs.count, job.in_strides);
    std::copy_n(operands.outputs.data, operands.outputs.count, job.out);
    std::copy_n(operands.outputs.strides, operands.outputs.count, job.out_strides);
    job.rows = operands.rows;
    job.size = operands.size;
    return LaunchStatus(call, launch(job, context.stream));
  };
}

}  // namespace

void AppendRecurrentKernels(KernelTable& table) {
  table["lstm_cell"] = CellKernel(LstmCellKernels(), 5);
  table["lstm_gates_backward"] = CellKernel(LstmGatesBackwardKernels(), 6);
  table["gru_cell"] = CellKernel(GruCellKernels(), 5);
  table["gru_gates_backward"] = CellKernel(GruGatesBackwardKernels(), 3);
}

}  // namespace tensord::server::cuda
