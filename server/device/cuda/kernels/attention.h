// Launchers of sdpa and its gradient.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/random.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// An item is a batch index with a head of k and v. It has the rows of all heads of q that share
// this head, one after another. The mask and lse have the math type of the elements.
struct AttentionJob {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;  // a result of sdpa, an operand of the gradient
  void* lse = nullptr;
  int64_t items = 0;
  int64_t group = 1;  // the number of q's heads for each of k and v
  int64_t length = 0, keys = 0, depth = 0, value_depth = 0;
  double scale = 1;
  bool causal = false;

  const void* mask = nullptr;  // null: none
  bool mask_is_bool = false;
  int64_t mask_row = 0, mask_key = 0;  // the strides of the rows and the keys
  StridedLoop<1> mask_of_head;         // from the number of a head of q to its offset in the mask

  bool drops = false;
  DropoutRule rule;
  RandomSource source;

  const void* g = nullptr;  // of the gradient
  void* delta = nullptr;    // scratch of the gradient: for each row, of the math type
  void* gq = nullptr;
  void* gk = nullptr;
  void* gv = nullptr;

  int64_t rows() const { return group * length; }  // of an item
};

// The gradient of the mask. A matrix of the mask is added to the scores of some heads of q.
struct AttentionMaskJob {
  AttentionJob attention;
  void* gmask = nullptr;
  bool wide = false;          // gmask has the math type, not that of the elements
  int64_t elements = 1;       // of a matrix
  StridedLoop<1> first_head;  // from the number of a matrix to that of its first head
  StridedLoop<1> next_head;   // from an index to the distance of a head from the first one
};
static_assert(sizeof(AttentionMaskJob) <= 4096);  // the limit of parameters

using AttentionLauncher = cudaError_t (*)(const AttentionJob& job, cudaStream_t stream);
ByDType<AttentionLauncher> AttentionKernels();
// Computes gq, gk and gv.
ByDType<AttentionLauncher> AttentionBackwardKernels();

using AttentionMaskLauncher = cudaError_t (*)(const AttentionMaskJob& job, cudaStream_t stream);
// Computes gmask. Needs attention.delta, which AttentionBackwardKernels() sets.
ByDType<AttentionMaskLauncher> AttentionMaskKernels();

}  // namespace tensord::server::cuda
