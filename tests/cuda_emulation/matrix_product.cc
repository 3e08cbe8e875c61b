#include "tensord/tests/cuda_emulation/matrix_product.h"

#include <cmath>
#include <vector>

#include "tensord/tests/cuda_emulation/element.h"

namespace tensord::cuda_emulation {
namespace {

// Copies a matrix of batch item `item` as contiguous vectors whose dot products give the result:
// its rows if `along_rows`, otherwise its columns. If p.round_to_tf32, rounds their elements.
template <typename T>
std::vector<T> GatherVectors(const MatrixProduct& p, const MatrixLayout& layout, const void* data,
                             bool along_rows, int64_t item) {
  const auto rows = static_cast<int64_t>(layout.rows);
  const auto columns = static_cast<int64_t>(layout.columns);
  const int64_t count = along_rows ? rows : columns, depth = along_rows ? columns : rows;
  const int64_t step = along_rows ? layout.leading_dimension : 1;
  const int64_t next = along_rows ? 1 : layout.leading_dimension;
  std::vector<T> vectors(static_cast<size_t>(count * depth));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      auto value =
          static_cast<T>(Get(layout.type, data, item * layout.batch_stride + i * next + k * step));
      if (p.round_to_tf32) value = RoundToTf32(static_cast<float>(value));
      vectors[static_cast<size_t>(i * depth + k)] = value;
    }
  }
  return vectors;
}

template <typename T>
T Activate(Activation activation, T x) {
  switch (activation) {
    case Activation::kRelu:
      return x <= 0 ? 0 : x;
    case Activation::kGeluTanh:
      return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
    default:
      return x;
  }
}

template <typename T>
void ComputeItem(const MatrixProduct& p, int64_t item) {
  const std::vector<T> a = GatherVectors<T>(p, p.a_layout, p.a, !p.transpose_a, item);
  const std::vector<T> b = GatherVectors<T>(p, p.b_layout, p.b, p.transpose_b, item);
  const MatrixLayout& out = p.out_layout;
  const auto rows = static_cast<int64_t>(out.rows), columns = static_cast<int64_t>(out.columns);
  const int64_t depth = static_cast<int64_t>(a.size()) / rows;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += a[r * depth + k] * b[c * depth + k];
      sum *= static_cast<T>(p.alpha);
      const int64_t at = item * out.batch_stride + c * out.leading_dimension + r;
      if (p.beta != 0) sum += static_cast<T>(p.beta * Get(out.type, p.out, at));
      if (p.bias != nullptr) sum += static_cast<T>(Get(out.type, p.bias, r));
      Put(out.type, p.out, at, Activate(p.activation, sum));
    }
  }
}

}  // namespace

bool IsConsistent(const MatrixProduct& p) {
  const MatrixLayout &a = p.a_layout, &b = p.b_layout, &out = p.out_layout;
  const uint64_t a_rows = p.transpose_a ? a.columns : a.rows;
  const uint64_t a_depth = p.transpose_a ? a.rows : a.columns;
  const uint64_t b_depth = p.transpose_b ? b.columns : b.rows;
  const uint64_t b_columns = p.transpose_b ? b.rows : b.columns;
  for (const MatrixLayout* layout : {&a, &b, &out}) {
    if (layout->rows == 0 || layout->columns == 0 || layout->batch != out.batch ||
        layout->leading_dimension < static_cast<int64_t>(layout->rows)) {
      return false;
    }
  }
  return a_rows == out.rows && a_depth == b_depth && b_columns == out.columns;
}

void Compute(const MatrixProduct& product) {
  for (int64_t item = 0; item < product.out_layout.batch; ++item) {
    if (product.in_double) {
      ComputeItem<double>(product, item);
    } else {
      ComputeItem<float>(product, item);
    }
  }
}

}  // namespace tensord::cuda_emulation
