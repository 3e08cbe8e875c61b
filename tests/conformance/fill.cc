// Fills inputs with values.
#include <cmath>
#include <limits>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

// A generator by Vigna's splitmix64, which is short and gives the same numbers on all platforms.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Returns a number in [low, high).
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53;
  }
  // Returns a number in [low, high].
  int64_t Whole(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t state_;
};

// The extreme positive values of a floating dtype.
struct Limits {
  double max;
  double min_normal;
  double min_subnormal;
};
Limits LimitsOf(DType dtype) {
  switch (RealDTypeOf(dtype)) {
    case DType::kFloat16:
      return {LargestOf(dtype), 0x1p-14, 0x1p-24};
    case DType::kBFloat16:
      return {LargestOf(dtype), 0x1p-126, 0x1p-133};
    case DType::kFloat32:
      return {LargestOf(dtype), 0x1p-126, 0x1p-149};
    default:
      return {LargestOf(dtype), 0x1p-1022, 0x1p-1074};
  }
}

std::vector<double> SpecialReals(DType dtype) {
  const Limits limits = LimitsOf(dtype);
  const double infinity = std::numeric_limits<double>::infinity();
  return {std::numeric_limits<double>::quiet_NaN(),
          infinity,
          -infinity,
          0.0,
          -0.0,
          1,
          -1,
          2,
          -2,
          3,
          0.5,
          -0.5,
          -3,
          10,
          -10,
          88,
          -88,
          1e-3,
          -1e-3,
          100.5,
          limits.max,
          -limits.max,
          limits.min_normal,
          -limits.min_normal,
          limits.min_subnormal,
          -limits.min_subnormal,
          5 * limits.min_subnormal,
          255,
          256,
          -128,
          300,
          40000,
          1.5,
          -1.5,
          2.5,
          -2.5,
          0.99,
          -0.99,
          1 - UlpOf(dtype, 0.5),
          UlpOf(dtype, 0.5) - 1,
          1 + UlpOf(dtype, 1),
          M_PI,
          -M_PI_2,
          1e-8,
          -22,
          -1e5,
          0x1p23 + 1,
          0.25 - 0x1p52};
}

std::vector<int64_t> SpecialWholes(DType dtype) {
  const int64_t max = MaxOf(dtype), min = MinOf(dtype);
  // Unsigned, because the largest uint64 isn't an int64.
  const uint64_t half = static_cast<uint64_t>(max) / 2;
  return {0,
          1,
          2,
          3,
          max,
          max - 1,
          static_cast<int64_t>(half),
          static_cast<int64_t>(half + 1),
          min,
          min + 1,
          min / 2,
          WrapTo(dtype, -1),
          WrapTo(dtype, -2),
          WrapTo(dtype, -7),
          7,
          100};
}

double RealValue(Fill fill, Generator& generator) {
  switch (fill) {
    case Fill::kUnit:
      return generator.Real(-1, 1);
    case Fill::kPositive:
      return generator.Real(1.0 / 64, 8);
    case Fill::kWide: {
      const double magnitude = std::exp(generator.Real(-9, 9));
      return generator.Next() % 2 == 0 ? magnitude : -magnitude;
    }
    case Fill::kTies:
      return static_cast<double>(generator.Whole(-2, 2));
    default:
      return generator.Real(-4, 4);
  }
}

int64_t WholeValue(Fill fill, DType dtype, Generator& generator) {
  if (IsBool(dtype)) {
    return fill == Fill::kPositive ? 1 : static_cast<int64_t>(generator.Next() % 2);
  }
  const bool has_sign = MinOf(dtype) < 0;
  switch (fill) {
    case Fill::kUnit:
      return generator.Whole(has_sign ? -3 : 0, 3);
    case Fill::kPositive:
      return generator.Whole(1, 9);
    case Fill::kWide:
      return WrapTo(dtype, static_cast<int64_t>(generator.Next()));
    case Fill::kTies:
      return generator.Whole(has_sign ? -2 : 0, 2);
    default:
      return has_sign ? generator.Whole(-100, 100) : generator.Whole(0, 200);
  }
}

}  // namespace

HostTensor MakeInput(const Input& input, uint64_t seed) {
  const DType dtype = input.spec.dtype;
  Values values = Values::Of(dtype, input.spec.shape);
  const std::vector<double> reals = SpecialReals(dtype);
  const std::vector<int64_t> wholes = SpecialWholes(dtype);
  Generator generator(seed);
  for (int64_t i = 0; i < values.size(); ++i) {
    const bool special = input.fill == Fill::kSpecial;
    if (values.floating()) {
      values.real[i] = special                       ? reals[i % reals.size()]
                       : input.fill == Fill::kValues ? input.values[i]
                                                     : RealValue(input.fill, generator);
      if (IsComplex(dtype)) {
        values.imaginary[i] = special ? reals[(i / reals.size() + 5 * i) % reals.size()]
                                      : RealValue(input.fill, generator);
      }
    } else {
      values.whole[i] = special                       ? wholes[i % wholes.size()]
                        : input.fill == Fill::kValues ? static_cast<int64_t>(input.values[i])
                                                      : WholeValue(input.fill, dtype, generator);
    }
  }
  HostTensor tensor = Narrow(values);
  if (IsBool(dtype) && input.fill == Fill::kSpecial) {
    constexpr uint8_t kBytes[] = {0, 1, 2, 255, 128, 0};
    for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = kBytes[i % 6];
  }
  return tensor;
}

}  // namespace tensord::conformance
