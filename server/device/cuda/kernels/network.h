// Launchers of normalization, cross entropy and the gradient of softmax.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/check_cell.h"
#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/lines.h"

namespace tensord::server::cuda {

struct SoftmaxBackwardJob {
  const void* g = nullptr;
  const void* y = nullptr;
  void* gx = nullptr;
  bool log = false;
  LineLoop lines;
};
using SoftmaxBackwardLauncher = cudaError_t (*)(const SoftmaxBackwardJob& job, cudaStream_t stream);
ByDType<SoftmaxBackwardLauncher> SoftmaxBackwardKernels();

// layer_norm over rows: `lines.inner` is 1. Parameters and statistics have the math type of the
// elements: float, or double for float64.
struct LayerNormJob {
  const void* x = nullptr;
  const void* weight = nullptr;  // null: ones
  const void* bias = nullptr;    // null: zeros
  void* y = nullptr;
  void* mean = nullptr;  // null: the mean isn't subtracted
  void* rstd = nullptr;
  double eps = 0;
  LineLoop lines;
};
using LayerNormLauncher = cudaError_t (*)(const LayerNormJob& job, cudaStream_t stream);
ByDType<LayerNormLauncher> LayerNormKernels();

struct LayerNormBackwardJob {
  const void* g = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* gx = nullptr;  // null: isn't computed. The same holds for gw and gb
  void* gw = nullptr;
  void* gb = nullptr;
  bool wide_parameters = false;  // gw and gb have the math type, not that of the elements
  // Scratch for the parameters' gradients: for each part of the rows, those of the weight, then
  // those of the bias, in the math type.
  void* parts = nullptr;
  int64_t parts_count = 0;
  int64_t rows_of_part = 1;
  LineLoop lines;
};
using LayerNormBackwardLauncher = cudaError_t (*)(const LayerNormBackwardJob& job,
                                                  cudaStream_t stream);
ByDType<LayerNormBackwardLauncher> LayerNormBackwardKernels();

// cross_entropy, or its gradient. The weight, the losses, their gradients and lse have the math
// type of the elements.
struct CrossEntropyJob {
  const void* x = nullptr;
  const void* target = nullptr;
  bool wide_target = false;      // int64, not int32
  int target_input = 1;          // the target's position among the op's inputs
  const void* weight = nullptr;  // null: ones
  int64_t ignored = -100;
  double smoothing = 0;
  void* loss = nullptr;     // of cross_entropy
  void* lse = nullptr;      // a result of cross_entropy, an operand of the gradient
  const void* g = nullptr;  // of the gradient
  void* gx = nullptr;       // of the gradient; null: computes cross_entropy
  CheckCell check;
  LineLoop lines;
};
using CrossEntropyLauncher = cudaError_t (*)(const CrossEntropyJob& job, cudaStream_t stream);
ByDType<CrossEntropyLauncher> CrossEntropyKernels();

// batch_norm. Parameters and statistics have the math type of the elements. The operands of the
// gradient are below.
struct BatchNormJob {
  const void* x = nullptr;
  void* y = nullptr;             // y, or the gradient of x; null: isn't computed
  const void* weight = nullptr;  // null: ones
  const void* bias = nullptr;    // null: zeros
  bool training = false;
  double eps = 0, momentum = 0;
  int64_t channels = 0;
  StridedLoop<1> of_channel;  // from an index in a channel to an offset from its first element
  int64_t run = 1;            // the distance of the first elements of two channels
  StridedLoop<1> channel_of;  // from an index in x to the number of the channel
  // The statistics by which x is normalized: results of batch_norm in training, and operands of its
  // gradient.
  void* mean = nullptr;
  void* invstd = nullptr;
  const void* running_mean = nullptr;
  const void* running_var = nullptr;
  // The updated running statistics, which have the math type or that of the elements.
  void* new_mean = nullptr;
  void* new_var = nullptr;
  bool wide_mean = true, wide_var = true;

  const void* g = nullptr;  // of the gradient; null: computes batch_norm
  void* gw = nullptr;       // null: isn't computed. The same holds for gb
  void* gb = nullptr;
  bool wide_parameters = false;  // as in LayerNormBackwardJob
  double* sums = nullptr;        // scratch of the gradient: two numbers for each channel
};
using BatchNormLauncher = cudaError_t (*)(const BatchNormJob& job, cudaStream_t stream);
ByDType<BatchNormLauncher> BatchNormKernels();

}  // namespace tensord::server::cuda
