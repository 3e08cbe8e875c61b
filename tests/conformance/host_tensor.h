// The tests' tensors: as bytes, as they are transferred, and widened, as they are compared.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tensord/common/dtype.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::conformance {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Elements in row-major order, little-endian.
struct HostTensor {
  TensorSpec spec;
  std::vector<uint8_t> bytes;
};

// A tensor with widened elements: floating and complex dtypes as doubles, integers and bool (0 or
// 1) as int64. A uint64 above the range of int64 is the int64 with the same bits.
struct Values {
  TensorSpec spec;
  std::vector<double> real;       // the elements, or their real parts; otherwise empty
  std::vector<double> imaginary;  // the imaginary parts if the dtype is complex, otherwise empty
  std::vector<int64_t> whole;     // the elements of integer dtypes and bool, otherwise empty
  // For each element, the magnitude that error bounds refer to, such as the sum of the summands'
  // magnitudes. If empty, error bounds refer to the magnitude of the element.
  std::vector<double> scale;

  // Returns whether `real` has the elements.
  bool floating() const { return IsFloating(spec.dtype) || IsComplex(spec.dtype); }
  int64_t size() const { return spec.num_elements(); }
  // Returns a tensor of this spec whose elements are zero.
  static Values Of(DType dtype, Shape shape);
};

Values Widen(const HostTensor& tensor);

// Rounds real values to nearest even. Of integers, keeps the low bits.
HostTensor Narrow(const Values& values);

// Returns the nearest value of a floating dtype, or of a part of a complex dtype. As PyTorch does,
// rounds to float32 before it rounds to float16 or bfloat16.
double RoundTo(DType dtype, double value);

// Converts an integer to a floating dtype. Rounds to float32 first, except for float64.
double RoundTo(DType dtype, int64_t value);

// Returns the low bits of `value` as a value of an integer dtype.
int64_t WrapTo(DType dtype, int64_t value);

// Returns the distance from |value| to the next larger value of a floating dtype; 0 for NaN and
// infinity.
double UlpOf(DType dtype, double value);

// Returns the machine epsilon of the dtype in which `dtype` is computed: 2^-23 for float32 and the
// 16-bit dtypes, 2^-52 for float64.
double ComputeEpsilon(DType dtype);

// Returns the largest finite value of a floating dtype, or of a part of a complex dtype.
double LargestOf(DType dtype);

// Returns the dtype of statistics, such as a mean, for elements of `dtype`.
constexpr DType StatisticsOf(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Return the largest and the smallest value of an integer dtype or bool. MaxOf(kUInt64) is -1,
// which has the bits of the largest value.
int64_t MaxOf(DType dtype);
int64_t MinOf(DType dtype);

}  // namespace tensord::conformance
