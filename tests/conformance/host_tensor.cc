#include "tensord/tests/conformance/host_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "tensord/common/float16.h"

namespace tensord::conformance {
namespace {

template <typename T>
T Load(const std::vector<uint8_t>& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(std::vector<uint8_t>& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

struct Format {
  int digits;        // of the significand, with the leading one
  int min_exponent;  // of the smallest normal value
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {11, -14};
    case DType::kBFloat16:
      return {8, -126};
    case DType::kFloat32:
      return {24, -126};
    default:
      return {53, -1022};
  }
}

}  // namespace

Values Values::Of(DType dtype, Shape shape) {
  Values values;
  values.spec = {dtype, std::move(shape)};
  if (values.floating()) {
    values.real.resize(values.size());
    if (IsComplex(dtype)) values.imaginary.resize(values.size());
  } else {
    values.whole.resize(values.size());
  }
  return values;
}

Values Widen(const HostTensor& tensor) {
  Values values = Values::Of(tensor.spec.dtype, tensor.spec.shape);
  for (int64_t i = 0; i < values.size(); ++i) {
    switch (tensor.spec.dtype) {
      case DType::kBool:
        values.whole[i] = tensor.bytes[i] != 0;
        break;
      case DType::kUInt8:
        values.whole[i] = tensor.bytes[i];
        break;
      case DType::kInt8:
        values.whole[i] = Load<int8_t>(tensor.bytes, i);
        break;
      case DType::kInt32:
        values.whole[i] = Load<int32_t>(tensor.bytes, i);
        break;
      case DType::kInt64:
      case DType::kUInt64:
        values.whole[i] = Load<int64_t>(tensor.bytes, i);
        break;
      case DType::kInt16:
        values.whole[i] = Load<int16_t>(tensor.bytes, i);
        break;
      case DType::kUInt16:
        values.whole[i] = Load<uint16_t>(tensor.bytes, i);
        break;
      case DType::kUInt32:
        values.whole[i] = Load<uint32_t>(tensor.bytes, i);
        break;
      case DType::kComplex64:
        values.real[i] = Load<float>(tensor.bytes, 2 * i);
        values.imaginary[i] = Load<float>(tensor.bytes, 2 * i + 1);
        break;
      case DType::kComplex128:
        values.real[i] = Load<double>(tensor.bytes, 2 * i);
        values.imaginary[i] = Load<double>(tensor.bytes, 2 * i + 1);
        break;
      case DType::kFloat16:
        values.real[i] = static_cast<float>(Load<Half>(tensor.bytes, i));
        break;
      case DType::kBFloat16:
        values.real[i] = static_cast<float>(Load<BFloat16>(tensor.bytes, i));
        break;
      case DType::kFloat32:
        values.real[i] = Load<float>(tensor.bytes, i);
        break;
      default:
        values.real[i] = Load<double>(tensor.bytes, i);
    }
  }
  return values;
}

HostTensor Narrow(const Values& values) {
  HostTensor tensor{values.spec, std::vector<uint8_t>(values.spec.size_bytes())};
  for (int64_t i = 0; i < values.size(); ++i) {
    switch (values.spec.dtype) {
      case DType::kBool:
      case DType::kUInt8:
      case DType::kInt8:
        tensor.bytes[i] = static_cast<uint8_t>(values.whole[i]);
        break;
      case DType::kInt16:
      case DType::kUInt16:
        Store(tensor.bytes, i, static_cast<int16_t>(values.whole[i]));
        break;
      case DType::kInt32:
      case DType::kUInt32:
        Store(tensor.bytes, i, static_cast<int32_t>(values.whole[i]));
        break;
      case DType::kInt64:
      case DType::kUInt64:
        Store(tensor.bytes, i, values.whole[i]);
        break;
      case DType::kComplex64:
        Store(tensor.bytes, 2 * i, static_cast<float>(values.real[i]));
        Store(tensor.bytes, 2 * i + 1, static_cast<float>(values.imaginary[i]));
        break;
      case DType::kComplex128:
        Store(tensor.bytes, 2 * i, values.real[i]);
        Store(tensor.bytes, 2 * i + 1, values.imaginary[i]);
        break;
      case DType::kFloat16:
        Store(tensor.bytes, i, Half(static_cast<float>(values.real[i])));
        break;
      case DType::kBFloat16:
        Store(tensor.bytes, i, BFloat16(static_cast<float>(values.real[i])));
        break;
      case DType::kFloat32:
        Store(tensor.bytes, i, static_cast<float>(values.real[i]));
        break;
      default:
        Store(tensor.bytes, i, values.real[i]);
    }
  }
  return tensor;
}

double RoundTo(DType dtype, double value) {
  switch (RealDTypeOf(dtype)) {
    case DType::kFloat16:
      return static_cast<float>(Half(static_cast<float>(value)));
    case DType::kBFloat16:
      return static_cast<float>(BFloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

double RoundTo(DType dtype, int64_t value) {
  if (dtype == DType::kFloat64) return static_cast<double>(value);
  return RoundTo(dtype, static_cast<double>(static_cast<float>(value)));
}

int64_t WrapTo(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kUInt8:
      return static_cast<uint8_t>(value);
    case DType::kInt8:
      return static_cast<int8_t>(value);
    case DType::kInt16:
      return static_cast<int16_t>(value);
    case DType::kUInt16:
      return static_cast<uint16_t>(value);
    case DType::kInt32:
      return static_cast<int32_t>(value);
    case DType::kUInt32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

double UlpOf(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  if (std::isnan(value) || std::isinf(value)) return 0;
  int exponent = format.min_exponent;
  if (value != 0) exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(1.0, exponent - format.digits + 1);
}

double ComputeEpsilon(DType dtype) { return dtype == DType::kFloat64 ? 0x1p-52 : 0x1p-23; }

double LargestOf(DType dtype) {
  switch (RealDTypeOf(dtype)) {
    case DType::kFloat16:
      return 65504;
    case DType::kBFloat16:
      return 0x1.fep127;
    case DType::kFloat32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

int64_t MaxOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kUInt8:
      return 255;
    case DType::kInt8:
      return 127;
    case DType::kInt16:
      return std::numeric_limits<int16_t>::max();
    case DType::kUInt16:
      return std::numeric_limits<uint16_t>::max();
    case DType::kInt32:
      return std::numeric_limits<int32_t>::max();
    case DType::kUInt32:
      return std::numeric_limits<uint32_t>::max();
    case DType::kUInt64:
      return -1;
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

int64_t MinOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return 0;
    case DType::kInt8:
      return -128;
    case DType::kInt16:
      return std::numeric_limits<int16_t>::min();
    case DType::kInt32:
      return std::numeric_limits<int32_t>::min();
    default:
      return std::numeric_limits<int64_t>::min();
  }
}

}  // namespace tensord::conformance
