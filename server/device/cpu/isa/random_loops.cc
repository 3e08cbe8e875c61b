#include "tensord/server/device/random_math.h"

#include "tensord/server/device/cpu/isa/fill.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

constexpr int kBlocks = 32;  // Philox blocks that are computed at a time, in vector registers

// words[k][b] is word k of block first + b.
void FillWords(uint64_t seed, uint64_t first, uint32_t (&words)[4][kBlocks]) {
  for (int b = 0; b < kBlocks; ++b) {
    const PhiloxBlock block = Philox(seed, first + static_cast<uint64_t>(b));
    for (int k = 0; k < 4; ++k) words[k][b] = block.word[k];
  }
}

uint64_t Join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// These functors compute the elements of kBlocks blocks: four of each block (float), or two
// (double).
struct UniformFloats {
  using T = float;
  UniformRange<float> range;
  UniformFloats(double low, double high)
      : range(static_cast<float>(low), static_cast<float>(high)) {}
  void operator()(const uint32_t (&words)[4][kBlocks], float* y) const {
    for (int b = 0; b < kBlocks; ++b) {
      for (int k = 0; k < 4; ++k) y[4 * b + k] = UniformFloat(words[k][b], range);
    }
  }
};

struct UniformDoubles {
  using T = double;
  UniformRange<double> range;
  UniformDoubles(double low, double high) : range(low, high) {}
  void operator()(const uint32_t (&words)[4][kBlocks], double* y) const {
    for (int b = 0; b < kBlocks; ++b) {
      y[2 * b] = UniformDouble(Join(words[0][b], words[1][b]), range);
      y[2 * b + 1] = UniformDouble(Join(words[2][b], words[3][b]), range);
    }
  }
};

struct NormalFloats {
  using T = float;
  double mean, stddev;
  void operator()(const uint32_t (&words)[4][kBlocks], float* y) const {
    for (int k = 0; k < 4; k += 2) {
      for (int b = 0; b < kBlocks; ++b) {
        double z0, z1;
        NormalPair32(words[k][b], words[k + 1][b], &z0, &z1);
        y[4 * b + k] = static_cast<float>(ScaleNormal(z0, mean, stddev));
        y[4 * b + k + 1] = static_cast<float>(ScaleNormal(z1, mean, stddev));
      }
    }
  }
};

struct NormalDoubles {
  using T = double;
  double mean, stddev;
  void operator()(const uint32_t (&words)[4][kBlocks], double* y) const {
    for (int b = 0; b < kBlocks; ++b) {
      double z0, z1;
      NormalPair64(Join(words[0][b], words[1][b]), Join(words[2][b], words[3][b]), &z0, &z1);
      y[2 * b] = ScaleNormal(z0, mean, stddev);
      y[2 * b + 1] = ScaleNormal(z1, mean, stddev);
    }
  }
};

template <typename Draw>
void Random(uint64_t seed, int64_t begin, int64_t n, double a, double b, void* y_data) {
  using T = typename Draw::T;
  constexpr int kPerBlock = 16 / sizeof(T);
  constexpr int kCount = kPerBlock * kBlocks;
  const Draw draw{a, b};
  T* y = static_cast<T*>(y_data);
  uint32_t words[4][kBlocks];
  T drawn[kCount];
  int64_t block = begin / kPerBlock;
  int64_t skip = begin - block * kPerBlock;  // elements of the first block before `begin`
  for (int64_t done = 0; done < n; block += kBlocks, skip = 0) {
    FillWords(seed, static_cast<uint64_t>(block), words);
    draw(words, drawn);
    for (int64_t j = skip; j < kCount && done < n; ++j) y[done++] = drawn[j];
  }
}

}  // namespace

void FillRandomLoops(Loops& loops) {
  loops.uniform[kIndexOf<float>] = Random<UniformFloats>;
  loops.uniform[kIndexOf<double>] = Random<UniformDoubles>;
  loops.normal[kIndexOf<float>] = Random<NormalFloats>;
  loops.normal[kIndexOf<double>] = Random<NormalDoubles>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
