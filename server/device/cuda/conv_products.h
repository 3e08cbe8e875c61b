// Convolutions as products of matrices, for those that cuDNN doesn't support. The windows are copied
// to the columns of a matrix in scratch memory, some images or positions at a time.
#pragma once

#include "absl/status/status.h"
#include "tensord/server/device/cuda/conv_plan.h"
#include "tensord/server/device/cuda/dnn.h"
#include "tensord/server/device/cuda/kernel_table.h"

namespace tensord::server::cuda {

// The maximum of each piece of scratch memory, unless one position or one image needs more.
inline constexpr int64_t kMaxConvScratchBytes = int64_t{64} << 20;

// Enqueues the convolution or gradient without bias and ReLU. `problem.geometry.batch` isn't 0. If
// `float32_out`, which only kForward of a 16-bit dtype may have, y is float32. `call` is for errors
// of launches.
absl::Status ConvolveByProducts(const ConvProblem& problem, bool float32_out,
                                const ConvAddresses& addresses, const KernelCall& call,
                                KernelContext& context);

}  // namespace tensord::server::cuda
