// Random numbers, and dropout.
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

// The random words of one stream of a seed.
class Stream {
 public:
  // Takes seed and stream from input `position`. If there is no such input, from the attributes.
  Stream(const Attributes& attrs, Inputs inputs, size_t position) {
    const bool has_state = inputs.size() > position;
    seed_ = static_cast<uint64_t>(has_state ? inputs[position].whole[0]
                                            : Get<int64_t>(attrs, "seed", 0));
    stream_ = static_cast<uint64_t>(has_state ? inputs[position].whole[1]
                                              : Get<int64_t>(attrs, "stream", 0));
  }

  uint32_t Word(int64_t at) const {
    const auto block = static_cast<uint64_t>(at / 4);
    const auto low = [](uint64_t bits) { return static_cast<uint32_t>(bits); };
    const auto high = [](uint64_t bits) { return static_cast<uint32_t>(bits >> 32); };
    const Words words = ReferencePhilox({low(block), high(block), low(stream_), high(stream_)},
                                        {low(seed_), high(seed_)});
    return words.word[at % 4];
  }

  uint64_t Word64(int64_t at) const { return uint64_t{Word(2 * at + 1)} << 32 | Word(2 * at); }

 private:
  uint64_t seed_, stream_;
};

// Rounds the product to float32, and then the sum. Returns a number below `high`.
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

Values Uniform(const Attributes& attrs, Inputs inputs) {
  const Stream stream(attrs, inputs, 0);
  const double low = Get<double>(attrs, "low", 0.0);
  const double high = Get<double>(attrs, "high", 1.0);
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  for (int64_t i = 0; i < out.size(); ++i) {
    out.real[i] =
        out.spec.dtype == DType::kFloat64
            ? UniformDouble(stream.Word64(i), low, high)
            : UniformFloat(stream.Word(i), static_cast<float>(low), static_cast<float>(high));
    if (SizeOf(out.spec.dtype) == 2) {
      const double largest =
          LargestBelow(out.spec.dtype, static_cast<float>(low), static_cast<float>(high));
      out.real[i] = std::min(out.real[i], largest);
    }
  }
  return out;
}

// Uses the method of Box and Muller: two random words give element 2k, the cosine, and element
// 2k+1, the sine.
Values Normal(const Attributes& attrs, Inputs inputs) {
  const Stream stream(attrs, inputs, 0);
  const double mean = Get<double>(attrs, "mean", 0.0);
  const double stddev = Get<double>(attrs, "stddev", 1.0);
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  out.scale.resize(out.size());
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t first = i - i % 2;
    double u1, u2;
    if (out.spec.dtype == DType::kFloat64) {
      u1 = (static_cast<double>(stream.Word64(first) >> 11) + 1) * 0x1p-53;
      u2 = static_cast<double>(stream.Word64(first + 1) >> 11) * 0x1p-53;
    } else {
      u1 = (static_cast<double>(stream.Word(first)) + 1) * 0x1p-32;
      u2 = static_cast<double>(stream.Word(first + 1)) * 0x1p-32;
    }
    const double radius = std::sqrt(-2 * std::log(u1));
    const double z = radius * (i % 2 == 0 ? std::cos(2 * M_PI * u2) : std::sin(2 * M_PI * u2));
    out.real[i] = mean + stddev * z;
    // Near a zero of cosine or sine, the error of the angle dominates.
    out.scale[i] = std::fabs(mean) + std::fabs(stddev) * radius;
  }
  return out;
}

// An element is low + floor(word (high - low) / 2^64).
Values Randint(const Attributes& attrs, Inputs inputs) {
  const Stream stream(attrs, inputs, 0);
  const auto low = static_cast<uint64_t>(Get<int64_t>(attrs, "low", 0));
  const uint64_t count = static_cast<uint64_t>(attrs.Int("high")) - low;
  Values out = Values::Of(DTypeAttr(attrs, DType::kInt64), Shape(attrs.Ints("shape")));
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto product = static_cast<unsigned __int128>(stream.Word64(i)) * count;
    out.whole[i] = static_cast<int64_t>(low + static_cast<uint64_t>(product >> 64));
  }
  return out;
}

// Returns whether the number that `uniform` draws for element `i` in float32 is at least p.
bool IsKept(const Stream& stream, int64_t i, double p) {
  return (stream.Word(i) >> 8) * 0x1p-24 >= p;
}

std::vector<Values> Dropout(const Attributes& attrs, Inputs inputs) {
  const Stream stream(attrs, inputs, 1);
  const double p = Get<double>(attrs, "p", 0.5);
  const Values& x = inputs[0];
  Values out = Values::Of(x.spec.dtype, x.spec.shape);
  Values mask = Values::Of(DType::kBool, x.spec.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    mask.whole[i] = IsKept(stream, i, p) ? 1 : 0;
    out.real[i] = IsKept(stream, i, p) ? x.real[i] / (1 - p) : 0;
  }
  if (!Get(attrs, "mask", false)) return {out};
  return {out, mask};
}

}  // namespace

void AddRandomReferences(ReferenceTable& table) {
  table["uniform"] = Uniform;
  table["normal"] = Normal;
  table["randint"] = Randint;
  table["dropout"] = Dropout;
}

}  // namespace tensord::conformance
