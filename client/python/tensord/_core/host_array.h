// Arrays in the host memory of this process.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "tensord/client/element.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {

// Calls body(T()) with the C++ type of the dtype.
template <typename Body>
auto WithElementType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kBool:
      return body(bool());
    case DType::kUInt8:
      return body(uint8_t());
    case DType::kUInt16:
      return body(uint16_t());
    case DType::kUInt32:
      return body(uint32_t());
    case DType::kUInt64:
      return body(uint64_t());
    case DType::kInt8:
      return body(int8_t());
    case DType::kInt16:
      return body(int16_t());
    case DType::kInt32:
      return body(int32_t());
    case DType::kInt64:
      return body(int64_t());
    case DType::kFloat16:
      return body(Half());
    case DType::kBFloat16:
      return body(BFloat16());
    case DType::kFloat64:
      return body(double());
    case DType::kComplex64:
      return body(std::complex<float>());
    case DType::kComplex128:
      return body(std::complex<double>());
    case DType::kFloat32:
    case DType::kUnspecified:
      break;
  }
  return body(float());
}

// An array in host memory, row-major or with strides.
struct HostArray {
  const uint8_t* data = nullptr;
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in bytes; empty: row-major

  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  bool row_major() const {
    int64_t expected = SizeOf(dtype);
    for (size_t i = shape.size(); i-- > 0 && !strides.empty();) {
      if (shape[i] != 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    return true;
  }
};

// Makes a tensor of the array. If the array is large, waits without the interpreter's lock.
Tensor Upload(const HostArray& array, const Device& device, const TransferOptions& options = {});
// Reads the elements into memory of x.size_bytes(). Waits without the interpreter's lock.
void ReadInto(const Tensor& x, void* data, const TransferOptions& options = {});

// Makes a tensor of an object with __dlpack__ (dlpack.cc).
Tensor FromDlpack(nb::handle object, const Device& device);

}  // namespace tensord::python
