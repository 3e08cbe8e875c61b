// Every kernel, by family; kernel_table.cc gives them their ops' names.
#pragma once

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// elementwise_kernel.cc
absl::Status ElementwiseKernel(const Context& ctx, const KernelCall& call);

// matmul.cc, linear.cc
absl::Status MatmulKernel(const Context& ctx, const KernelCall& call);
absl::Status LinearKernel(const Context& ctx, const KernelCall& call);

// reduce.cc
absl::Status SumKernel(const Context& ctx, const KernelCall& call);
absl::Status MeanKernel(const Context& ctx, const KernelCall& call);
absl::Status MaxKernel(const Context& ctx, const KernelCall& call);
absl::Status MinKernel(const Context& ctx, const KernelCall& call);
absl::Status NormKernel(const Context& ctx, const KernelCall& call);

// reduce_arg.cc
absl::Status ArgmaxKernel(const Context& ctx, const KernelCall& call);
absl::Status ArgminKernel(const Context& ctx, const KernelCall& call);

// softmax.cc
absl::Status SoftmaxKernel(const Context& ctx, const KernelCall& call);
absl::Status LogSoftmaxKernel(const Context& ctx, const KernelCall& call);

// layout.cc
absl::Status CopyKernel(const Context& ctx, const KernelCall& call);
absl::Status PermuteKernel(const Context& ctx, const KernelCall& call);
absl::Status SliceKernel(const Context& ctx, const KernelCall& call);
absl::Status ConcatKernel(const Context& ctx, const KernelCall& call);
absl::Status BroadcastToKernel(const Context& ctx, const KernelCall& call);

// creation.cc
absl::Status ZerosKernel(const Context& ctx, const KernelCall& call);
absl::Status OnesKernel(const Context& ctx, const KernelCall& call);
absl::Status FullKernel(const Context& ctx, const KernelCall& call);
absl::Status ArangeKernel(const Context& ctx, const KernelCall& call);
absl::Status EyeKernel(const Context& ctx, const KernelCall& call);

// random.cc
absl::Status UniformKernel(const Context& ctx, const KernelCall& call);
absl::Status NormalKernel(const Context& ctx, const KernelCall& call);

}  // namespace tensord::server::cpu
