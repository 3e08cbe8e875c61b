#include <cmath>
#include <cstring>

#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {

// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
// section 3.3.
Words ReferencePhilox(const uint32_t (&counter)[4], const uint32_t (&key)[2]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  uint32_t k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = 0xD2511F53ull * c[0];
    const uint64_t right = 0xCD9E8D57ull * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(right >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(right),
        static_cast<uint32_t>(left >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(left)};
    std::memcpy(c, next, sizeof(c));
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

namespace {

// Returns word number `at` of the seed's stream.
uint32_t StreamWord(int64_t seed, int64_t at) {
  const auto block = static_cast<uint64_t>(at / 4);
  const auto bits = static_cast<uint64_t>(seed);
  const Words words =
      ReferencePhilox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                      {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)});
  return words.word[at % 4];
}

uint64_t StreamWord64(int64_t seed, int64_t at) {
  return uint64_t{StreamWord(seed, 2 * at + 1)} << 32 | StreamWord(seed, 2 * at);
}

DType DTypeAttr(const Attributes& attrs, DType otherwise) {
  const DType dtype = Get(attrs, "dtype", otherwise);
  return dtype == DType::kUnspecified ? otherwise : dtype;
}

bool IsFloat(const AttrValue* value) {
  return value != nullptr && std::holds_alternative<double>(*value);
}

// Returns a tensor whose elements are all `value`.
Values Filled(const AttrValue& value, DType dtype, const Shape& shape) {
  Values one;
  if (const double* real = std::get_if<double>(&value)) {
    one = Values::Of(DType::kFloat64, {});
    one.real[0] = *real;
  } else if (const int64_t* whole = std::get_if<int64_t>(&value)) {
    one = Values::Of(DType::kInt64, {});
    one.whole[0] = *whole;
  } else {
    one = Values::Of(DType::kBool, {});
    one.whole[0] = std::get<bool>(value);
  }
  one = Cast(one, dtype);
  Values out = Values::Of(dtype, shape);
  for (double& element : out.real) element = one.real[0];  // imaginary parts stay 0
  for (int64_t& element : out.whole) element = one.whole[0];
  return out;
}

Values Full(const Attributes& attrs, Inputs) {
  const AttrValue& value = *attrs.Find("value");
  const DType natural = std::holds_alternative<double>(value)    ? DType::kFloat32
                        : std::holds_alternative<int64_t>(value) ? DType::kInt64
                                                                 : DType::kBool;
  return Filled(value, DTypeAttr(attrs, natural), Shape(attrs.Ints("shape")));
}

ReferenceFunction Constant(int64_t value) {
  return [value](const Attributes& attrs, Inputs) {
    return Filled(value, DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  };
}

Values Arange(const Attributes& attrs, Inputs) {
  const bool real =
      IsFloat(attrs.Find("start")) || IsFloat(attrs.Find("stop")) || IsFloat(attrs.Find("step"));
  const double start = Get<double>(attrs, "start", 0.0);
  const double step = Get<double>(attrs, "step", 1.0);
  // Integers are subtracted as integers, because a double can't represent all large ones.
  const double span =
      real ? Get<double>(attrs, "stop", 0.0) - start
           : static_cast<double>(attrs.Int("stop") - Get<int64_t>(attrs, "start", 0));
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil(span / step)));
  Values exact = Values::Of(real ? DType::kFloat64 : DType::kInt64, {count});
  for (int64_t i = 0; i < count; ++i) {
    if (real) {
      exact.real[i] = start + static_cast<double>(i) * step;
    } else {
      exact.whole[i] = Get<int64_t>(attrs, "start", 0) + i * Get<int64_t>(attrs, "step", 1);
    }
  }
  return Cast(exact, DTypeAttr(attrs, real ? DType::kFloat32 : DType::kInt64));
}

Values Eye(const Attributes& attrs, Inputs) {
  const int64_t rows = attrs.Int("rows");
  int64_t cols = Get<int64_t>(attrs, "cols", -1);
  if (cols == -1) cols = rows;
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), {rows, cols});
  for (int64_t i = 0; i < std::min(rows, cols); ++i) {
    if (out.floating()) {
      out.real[i * cols + i] = 1;
    } else {
      out.whole[i * cols + i] = 1;
    }
  }
  return out;
}

// Rounds the product and the sum to float32, each for itself. The result is below `high`.
float UniformFloat(uint32_t word, float low, float high) {
  const volatile float product = static_cast<float>(word >> 8) * 0x1p-24f * (high - low);
  return std::min(low + product, std::nextafter(high, low));
}

// Returns the largest value of a 16-bit type that is below `high`, or `low` if that is larger.
float LargestBelow(DType dtype, float low, float high) {
  const bool half = dtype == DType::kFloat16;
  const double below = std::nextafter(high, -INFINITY);
  int exponent = 0;
  std::frexp(below, &exponent);
  const double step = std::ldexp(1, std::max(exponent - (half ? 11 : 8), half ? -24 : -133));
  return std::max(low, static_cast<float>(std::floor(below / step) * step));
}

double UniformDouble(uint64_t word, double low, double high) {
  const volatile double product = static_cast<double>(word >> 11) * 0x1p-53 * (high - low);
  return std::min(low + product, std::nextafter(high, low));
}

Values Uniform(const Attributes& attrs, Inputs) {
  const int64_t seed = attrs.Int("seed");
  const double low = Get<double>(attrs, "low", 0.0);
  const double high = Get<double>(attrs, "high", 1.0);
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  for (int64_t i = 0; i < out.size(); ++i) {
    out.real[i] =
        out.spec.dtype == DType::kFloat64
            ? UniformDouble(StreamWord64(seed, i), low, high)
            : UniformFloat(StreamWord(seed, i), static_cast<float>(low), static_cast<float>(high));
    if (SizeOf(out.spec.dtype) == 2) {
      const double largest =
          LargestBelow(out.spec.dtype, static_cast<float>(low), static_cast<float>(high));
      out.real[i] = std::min(out.real[i], largest);
    }
  }
  return out;
}

// The method of Box and Muller: two random words give element 2k, the cosine, and element 2k+1, the
// sine.
Values Normal(const Attributes& attrs, Inputs) {
  const int64_t seed = attrs.Int("seed");
  const double mean = Get<double>(attrs, "mean", 0.0);
  const double stddev = Get<double>(attrs, "stddev", 1.0);
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  out.scale.resize(out.size());
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t first = i - i % 2;
    double u1, u2;
    if (out.spec.dtype == DType::kFloat64) {
      u1 = (static_cast<double>(StreamWord64(seed, first) >> 11) + 1) * 0x1p-53;
      u2 = static_cast<double>(StreamWord64(seed, first + 1) >> 11) * 0x1p-53;
    } else {
      u1 = (static_cast<double>(StreamWord(seed, first)) + 1) * 0x1p-32;
      u2 = static_cast<double>(StreamWord(seed, first + 1)) * 0x1p-32;
    }
    const double radius = std::sqrt(-2 * std::log(u1));
    const double z = radius * (i % 2 == 0 ? std::cos(2 * M_PI * u2) : std::sin(2 * M_PI * u2));
    out.real[i] = mean + stddev * z;
    // Near a zero of cosine or sine, the error of the angle dominates.
    out.scale[i] = std::fabs(mean) + std::fabs(stddev) * radius;
  }
  return out;
}

Values Literal(const Attributes& attrs, Inputs) {
  const std::string& data = attrs.Data("data");
  HostTensor tensor{{attrs.Type("dtype"), Shape(attrs.Ints("shape"))}, {}};
  tensor.bytes.assign(data.begin(), data.end());
  return Widen(tensor);
}

}  // namespace

void AddCreationReferences(ReferenceTable& table) {
  table["zeros"] = Constant(0);
  table["ones"] = Constant(1);
  table["full"] = Full;
  table["arange"] = Arange;
  table["eye"] = Eye;
  table["uniform"] = Uniform;
  table["normal"] = Normal;
  table["constant"] = Literal;
}

}  // namespace tensord::conformance
