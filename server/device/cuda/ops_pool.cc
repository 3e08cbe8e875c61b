// Pooling and its gradients.
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/pool.h"
#include "tensord/server/device/pool_attributes.h"

namespace tensord::server::cuda {
namespace {

absl::Status RunPool(const PoolKernel& kernel, const KernelCall& call, KernelContext& context) {
  const Operand &from = call.inputs[0], &to = call.outputs[0];
  if (to.spec->num_elements() == 0) return absl::OkStatus();
  const PoolLauncher launch = kernel.by_dtype[DTypeNumber(from)];
  if (launch == nullptr) return NoKernelError(call);
  PoolJob job;
  job.from = from.data;
  job.to = to.data;
  const bool is_backward = call.attrs->Find("size") != nullptr;
  const Pooling pooling = ReadPooling(*call.attrs, is_backward ? to.spec->shape : from.spec->shape,
                                      is_backward ? from.spec->shape : to.spec->shape);
  job.geometry = pooling.geometry;
  job.planes = pooling.planes;
  if (call.attrs->Find("divisor") != nullptr) {
    job.count_padding = call.attrs->Bool("count_include_pad");
    job.divisor = call.attrs->Int("divisor");
  } else {
    job.indices = static_cast<int64_t*>(is_backward ? call.inputs[1].data : call.outputs[1].data);
  }
  return LaunchStatus(call, launch(job, context.stream));
}

}  // namespace

void AppendPoolKernels(KernelTable& table) {
  for (const PoolKernel& kernel : PoolKernels()) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunPool(kernel, call, context);
    };
  }
}

}  // namespace tensord::server::cuda
