// Steps of optimizers.
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/adam.h"

namespace tensord::server::cuda {
namespace {

absl::Status RunAdamStep(const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const AdamLauncher launch = AdamKernels()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  const bool amsgrad = call.attrs->Bool("amsgrad");
  AdamJob job;
  job.attributes = {call.attrs->Float("beta1"),    call.attrs->Float("beta2"),
                    call.attrs->Float("eps"),      call.attrs->Float("weight_decay"),
                    call.attrs->Bool("decoupled"), call.attrs->Bool("maximize")};
  job.p = call.inputs[0].data;
  job.g = call.inputs[1].data;
  job.m = call.inputs[2].data;
  job.v = call.inputs[3].data;
  job.p_out = call.outputs[0].data;
  job.m_out = call.outputs[1].data;
  job.v_out = call.outputs[2].data;
  if (amsgrad) {
    job.vmax = call.inputs[4].data;
    job.vmax_out = call.outputs[3].data;
  }
  job.step = call.inputs[amsgrad ? 5 : 4].As<double>();
  job.lr = call.inputs[amsgrad ? 6 : 5].As<double>();
  job.size = size;
  return LaunchStatus(call, launch(job, context.stream));
}

}  // namespace

void AppendAdamKernels(KernelTable& table) { table["adam_step"] = RunAdamStep; }

}  // namespace tensord::server::cuda
