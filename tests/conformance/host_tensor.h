// Tensors of the test's own: as bytes, the way they travel, and widened, the way they are compared.
#pragma once

#include <cstdint>
#include <vector>

#include "tensord/common/dtype.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::conformance {

// Elements in row-major order, little-endian.
struct HostTensor {
  TensorSpec spec;
  std::vector<uint8_t> bytes;
};

// The same with every element widened: floating dtypes to double, integers and bool (0 or 1) to
// int64. Only the one vector is used.
struct Values {
  TensorSpec spec;
  std::vector<double> real;
  std::vector<int64_t> whole;
  // What an error in each element is to be measured against, where that isn't the element itself:
  // the sum of the magnitudes that were added up, say. Empty: the element.
  std::vector<double> scale;

  bool floating() const { return IsFloating(spec.dtype); }
  int64_t size() const { return spec.num_elements(); }
  // Zero elements of this spec.
  static Values Of(DType dtype, Shape shape);
};

Values Widen(const HostTensor& tensor);

// Rounds to nearest even; integers keep their low bits.
HostTensor Narrow(const Values& values);

// The nearest value of a floating dtype. float16 and bfloat16 are rounded by way of float32, as
// PyTorch rounds them.
double RoundTo(DType dtype, double value);

// An integer as a value of a floating dtype.
double RoundTo(DType dtype, int64_t value);

// The low bits of `value`, as an integer dtype holds them.
int64_t WrapTo(DType dtype, int64_t value);

// Distance from |value| to the next larger value of a floating dtype.
double UlpOf(DType dtype, double value);

// 2^-23 for float32 and for the 16-bit dtypes, which are computed in float32; 2^-52 for float64.
double ComputeEpsilon(DType dtype);

// Largest and smallest of an integer dtype.
int64_t MaxOf(DType dtype);
int64_t MinOf(DType dtype);

}  // namespace tensord::conformance
