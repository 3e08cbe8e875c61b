// The arithmetic behind the emulation of cuBLASLt: column-major matrices, three loops.
#pragma once

#include <library_types.h>

#include <cstdint>

namespace tensord::cuda_emulation {

// `batch` matrices of `rows` x `columns` elements; element (r, c) of item b lies at
// b * batch_stride + c * leading_dimension + r.
struct MatrixLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading_dimension;
  int32_t batch;
  int64_t batch_stride;
};

enum class Activation { kNone, kRelu, kGeluTanh };

// out = activation(alpha * op(a) * op(b) + beta * out + bias), where op(x) is x or its transpose:
// (m, k) · (k, n) -> (m, n). `bias` is null or has one element of out's type for each row of out.
// Sums are in double if `in_double`, in float otherwise. Types: CUDA_R_16F, CUDA_R_16BF,
// CUDA_R_32F, CUDA_R_64F. The caller owns all memory.
struct MatrixProduct {
  bool transpose_a = false, transpose_b = false;
  bool in_double = false;
  bool round_to_tf32 = false;  // a and b, to TensorFloat-32
  Activation activation = Activation::kNone;
  double alpha = 1, beta = 0;  // if beta is 0, out isn't read
  MatrixLayout a_layout, b_layout, out_layout;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;
};

// Returns whether the shapes, batches and leading dimensions match.
bool IsConsistent(const MatrixProduct& product);

// Computes `product` on the calling thread. `product` must be consistent.
void Compute(const MatrixProduct& product);

}  // namespace tensord::cuda_emulation
