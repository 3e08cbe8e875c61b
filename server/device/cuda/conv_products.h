// Convolutions as products of matrices, for those that cuDNN doesn't support. The windows are
// copied to the columns of a matrix in scratch memory, some images or positions at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cuda/conv_plan.h"
#include "tensord/server/device/cuda/dnn.h"
#include "tensord/server/device/cuda/kernel_table.h"

namespace tensord::server::cuda {

// The maximum of each piece of scratch memory, unless one position or one image needs more.
inline constexpr int64_t kMaxConvScratchBytes = int64_t{64} << 20;

// Scratch memory for launches of one op that run one after another.
class ReusedScratch {
 public:
  explicit ReusedScratch(KernelContext& context) : context_(context) {}

  // Returns `bytes` of memory, which later calls may return, too; null if `bytes` is 0.
  absl::StatusOr<void*> Get(int64_t bytes);

 private:
  KernelContext& context_;
  std::optional<Scratch> scratch_;
  int64_t bytes_ = 0;
};

// Enqueues the convolution or gradient without bias and ReLU. `problem.geometry.batch` isn't 0. If
// `float32_out`, which only kForward of a 16-bit dtype may have, y is float32. Copies the windows
// to `columns`. `call` is for errors of launches.
absl::Status ConvolveByProducts(const ConvProblem& problem, bool float32_out,
                                const ConvAddresses& addresses, ReusedScratch& columns,
                                const KernelCall& call, KernelContext& context);

}  // namespace tensord::server::cuda
