#include "tensord/server/device/random_math.h"

#include "tensord/server/device/cpu/isa/fill.h"
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

constexpr int kBlocks = 32;  // Philox blocks that are computed at a time, in vector registers
constexpr int kWords = 4 * kBlocks;

// A vector of 64-bit lanes, each for one block. Counters and keys are in the lower halves of the
// lanes. The upper halves may have any value: a product reads the lower halves only.
#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif
typedef uint64_t Lanes __attribute__((vector_size(8 * kLanes)));

Lanes Product(Lanes a, uint32_t b) {
#if defined(__AVX512F__)
  return Lanes(_mm512_maskz_mul_epu32(0xff, __m512i(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
  return Lanes(_mm256_mul_epu32(__m256i(a), _mm256_set1_epi64x(b)));
#elif defined(__SSE2__)
  return Lanes(_mm_mul_epu32(__m128i(a), _mm_set1_epi64x(b)));
#else
  return (a & 0xffffffff) * b;
#endif
}

// Stores the four words of each block, one block after the other.
void StoreBlocks(Lanes w0, Lanes w1, Lanes w2, Lanes w3, uint32_t* to) {
  const Lanes a = (w0 & 0xffffffff) | w1 << 32, b = (w2 & 0xffffffff) | w3 << 32;
#if defined(__AVX512F__)
  const Lanes low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  const Lanes high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
  const Lanes low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Lanes high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  const Lanes low = __builtin_shufflevector(a, b, 0, 2);
  const Lanes high = __builtin_shufflevector(a, b, 1, 3);
#endif
  __builtin_memcpy(to, &low, sizeof(low));
  __builtin_memcpy(to + 2 * kLanes, &high, sizeof(high));
}

// Computes Philox() of random_math.h for kGroups vectors of blocks at a time, which hides the
// latency of the products.
template <int kGroups>
void FillGroups(const RandomStream& stream, uint64_t first, uint32_t* words) {
  Lanes c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < kLanes; ++i) c0[g][i] = first + static_cast<uint64_t>(g * kLanes + i);
    c1[g] = c0[g] >> 32;
    c2[g] = Lanes{} + stream.stream;
    c3[g] = c2[g] >> 32;
  }
  uint64_t key0 = stream.seed, key1 = stream.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (int g = 0; g < kGroups; ++g) {
      const Lanes product0 = Product(c0[g], kPhiloxMultiplier0);
      const Lanes product1 = Product(c2[g], kPhiloxMultiplier1);
      c0[g] = product1 >> 32 ^ c1[g] ^ key0;
      c2[g] = product0 >> 32 ^ c3[g] ^ key1;
      c1[g] = product1;
      c3[g] = product0;
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  for (int g = 0; g < kGroups; ++g) {
    StoreBlocks(c0[g], c1[g], c2[g], c3[g], words + g * kLanes * 4);
  }
}

// Computes the words of kBlocks blocks, one block after the other.
void FillWords(const RandomStream& stream, uint64_t first, uint32_t (&words)[kWords]) {
  constexpr int kGroups = 4;
  for (int b = 0; b < kBlocks; b += kGroups * kLanes) {
    FillGroups<kGroups>(stream, first + static_cast<uint64_t>(b), words + 4 * b);
  }
}

uint64_t Join(const uint32_t* words) { return uint64_t{words[1]} << 32 | words[0]; }

// These functors compute the elements of kBlocks blocks: four of each block (float), or two
// (double).
struct UniformFloats {
  using T = float;
  UniformRange<float> range;
  UniformFloats(double low, double high)
      : range(static_cast<float>(low), static_cast<float>(high)) {}
  void operator()(const uint32_t (&words)[kWords], float* y) const {
    for (int i = 0; i < kWords; ++i) y[i] = UniformFloat(words[i], range);
  }
};

struct UniformDoubles {
  using T = double;
  UniformRange<double> range;
  UniformDoubles(double low, double high) : range(low, high) {}
  void operator()(const uint32_t (&words)[kWords], double* y) const {
    for (int i = 0; i < kWords / 2; ++i) y[i] = UniformDouble(Join(words + 2 * i), range);
  }
};

struct NormalFloats {
  using T = float;
  double mean, stddev;
  void operator()(const uint32_t (&words)[kWords], float* y) const {
    for (int i = 0; i < kWords; i += 2) {
      double z0, z1;
      NormalPair32(words[i], words[i + 1], &z0, &z1);
      y[i] = static_cast<float>(ScaleNormal(z0, mean, stddev));
      y[i + 1] = static_cast<float>(ScaleNormal(z1, mean, stddev));
    }
  }
};

struct NormalDoubles {
  using T = double;
  double mean, stddev;
  void operator()(const uint32_t (&words)[kWords], double* y) const {
    for (int i = 0; i < kWords / 2; i += 2) {
      double z0, z1;
      NormalPair64(Join(words + 2 * i), Join(words + 2 * i + 2), &z0, &z1);
      y[i] = ScaleNormal(z0, mean, stddev);
      y[i + 1] = ScaleNormal(z1, mean, stddev);
    }
  }
};

template <typename Y>
struct Integers {
  using T = Y;
  RandintRange range;
  void operator()(const uint32_t (&words)[kWords], Y* y) const {
    for (int i = 0; i < kWords / 2; ++i) {
      y[i] = static_cast<Y>(UniformInteger(Join(words + 2 * i), range));
    }
  }
};

// Calls use(words, skip, done, count) for consecutive parts of the elements [begin, begin + n).
// `words` are those of kBlocks blocks. The part begins with their element number `skip`, and has
// `count` elements. `done` is the number of elements of earlier parts. kPerBlock is the number of
// elements of a block of the generator.
template <int kPerBlock, typename Use>
void ForEachPart(const RandomStream& stream, int64_t begin, int64_t n, Use use) {
  constexpr int kCount = kPerBlock * kBlocks;
  uint32_t words[kWords];
  int64_t block = begin / kPerBlock;
  int64_t skip = begin - block * kPerBlock;
  for (int64_t done = 0; done < n; block += kBlocks, skip = 0) {
    FillWords(stream, static_cast<uint64_t>(block), words);
    const int64_t count = kCount - skip < n - done ? kCount - skip : n - done;
    use(words, skip, done, count);
    done += count;
  }
}

template <int kPerBlock, typename Draw>
void DrawInto(const RandomStream& stream, int64_t begin, int64_t n, const Draw& draw,
              void* y_data) {
  using T = typename Draw::T;
  constexpr int kCount = kPerBlock * kBlocks;
  T* y = static_cast<T*>(y_data);
  const auto use = [&](const uint32_t(&words)[kWords], int64_t skip, int64_t done, int64_t count) {
    if (count == kCount) return draw(words, y + done);
    T drawn[kCount];
    draw(words, drawn);
    __builtin_memcpy(y + done, drawn + skip, count * sizeof(T));
  };
  ForEachPart<kPerBlock>(stream, begin, n, use);
}

template <typename Draw>
void Random(const RandomStream& stream, int64_t begin, int64_t n, double a, double b, void* y) {
  DrawInto<16 / sizeof(typename Draw::T)>(stream, begin, n, Draw{a, b}, y);
}

template <typename Y>
void Randint(const RandomStream& stream, int64_t begin, int64_t n, const RandintRange& range,
             void* y) {
  DrawInto<2>(stream, begin, n, Integers<Y>{range}, y);
}

template <typename T>
void Dropout(const RandomStream& stream, int64_t begin, int64_t n, const DropoutRule& rule,
             const void* x_data, void* y_data, uint8_t* mask) {
  const uint32_t first_kept = rule.first_kept;
  const T keep = static_cast<T>(rule.keep);
  const auto apply = [&](const uint32_t(&words)[kWords], int64_t skip, int64_t done,
                         int64_t count) {
    const T* x = static_cast<const T*>(x_data) + done;
    T* y = static_cast<T*>(y_data) + done;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const T scaled = x[i] / keep;
      y[i] = IsKept(words[skip + i], first_kept) ? scaled : T{0};
    }
    if (mask == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      mask[done + i] = IsKept(words[skip + i], first_kept) ? 1 : 0;
    }
  };
  ForEachPart<4>(stream, begin, n, apply);
}

}  // namespace

void FillRandomLoops(Loops& loops) {
  loops.uniform[kIndexOf<float>] = Random<UniformFloats>;
  loops.uniform[kIndexOf<double>] = Random<UniformDoubles>;
  loops.normal[kIndexOf<float>] = Random<NormalFloats>;
  loops.normal[kIndexOf<double>] = Random<NormalDoubles>;
  loops.randint[SizeIndex(1)] = Randint<uint8_t>;
  loops.randint[SizeIndex(2)] = Randint<uint16_t>;
  loops.randint[SizeIndex(4)] = Randint<uint32_t>;
  loops.randint[SizeIndex(8)] = Randint<uint64_t>;
  loops.dropout[kIndexOf<float>] = Dropout<float>;
  loops.dropout[kIndexOf<double>] = Dropout<double>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
