// The arithmetic behind the emulation of cuDNN: convolutions as loops.
#pragma once

#include <library_types.h>

#include <cstdint>
#include <vector>

namespace tensord::cuda_emulation {

// A dense row-major tensor: (N, C, spatial…), or (O, C/groups, kernel…) for a filter.
struct ConvolutionTensor {
  cudaDataType_t type = CUDA_R_32F;
  std::vector<int64_t> sizes;

  int64_t elements() const;
};

enum class ConvolutionDirection { kForward, kBackwardData, kBackwardFilter };

// y = convolution of x with w, or a gradient: x from (y, w), or w from (y, x). There are two or
// three spatial axes. Sums are in double if `in_double`, in float otherwise.
struct Convolution {
  ConvolutionDirection direction = ConvolutionDirection::kForward;
  std::vector<int64_t> strides, dilations, pre_paddings, post_paddings;  // for each spatial axis
  bool in_double = false;
  double alpha = 1;
  ConvolutionTensor x, w, y;
  // Only forward. `bias_type` is the type of the bias, which has an element for each channel of y.
  bool has_bias = false, relu = false;
  cudaDataType_t bias_type = CUDA_R_32F;

  const ConvolutionTensor& result() const;
};

// The precision to which an engine rounds the operands.
enum class ConvolutionPrecision {
  kExact,
  kTf32,      // operands are rounded to TensorFloat-32
  kBfloat16,  // operands are rounded to bfloat16
};

// Returns whether the shapes and paddings match.
bool IsConsistent(const Convolution& convolution);

// Computes on the calling thread. `convolution` must be consistent. x, w and y are arrays of their
// tensors' types, one of which is the result.
void Compute(const Convolution& convolution, ConvolutionPrecision precision, void* x, void* w,
             void* y, const void* bias);

}  // namespace tensord::cuda_emulation
