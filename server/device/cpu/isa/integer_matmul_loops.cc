#include "tensord/server/device/cpu/isa/fill.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// Computes in the unsigned type of the same size. It wraps around and gives the same bits.
//
// Panels of kDepth rows and kWidth columns of b are copied to memory that stays in the second-level
// cache. kRows rows of a are multiplied with a panel at a time, with their sums in registers.
template <typename T>
class Matmul {
 public:
  explicit Matmul(const IntegerMatmul& args) : args_(args) {}

  void Run() {
    for (int64_t j = 0; j < args_.n; j += kWidth) {
      const int width = static_cast<int>(args_.n - j < kWidth ? args_.n - j : kWidth);
      for (int64_t k = 0; k < args_.k; k += kDepth) {
        const int depth = static_cast<int>(args_.k - k < kDepth ? args_.k - k : kDepth);
        Pack(k, depth, j, width);
        int64_t i = 0;
        for (; i + kRows <= args_.m; i += kRows) Multiply<kRows>(i, k, depth, j, width);
        for (; i < args_.m; ++i) Multiply<1>(i, k, depth, j, width);
      }
    }
  }

 private:
  static constexpr int kRows = 4;
  static constexpr int kDepth = 256;
  static constexpr int kWidth = sizeof(T) == 1 ? 128 : sizeof(T) == 4 ? 64 : 32;

  void Pack(int64_t k, int depth, int64_t j, int width) {
    const T* b = static_cast<const T*>(args_.b) + k * args_.b_row + j * args_.b_col;
    for (int p = 0; p < depth; ++p) {
      const T* row = b + p * args_.b_row;
      for (int q = 0; q < width; ++q) panel_[p][q] = row[q * args_.b_col];
      for (int q = width; q < kWidth; ++q) panel_[p][q] = 0;
    }
  }

  // Adds (R, depth)·(depth, width) to c. For the first k, overwrites c unless args_.accumulate.
  template <int R>
  void Multiply(int64_t i, int64_t k, int depth, int64_t j, int width) {
    const T* a = static_cast<const T*>(args_.a) + i * args_.a_row + k * args_.a_col;
    T sum[R][kWidth] = {};
    for (int p = 0; p < depth; ++p) {
      for (int r = 0; r < R; ++r) {
        const T factor = a[r * args_.a_row + p * args_.a_col];
        for (int q = 0; q < kWidth; ++q) sum[r][q] += static_cast<T>(factor * panel_[p][q]);
      }
    }
    for (int r = 0; r < R; ++r) {
      T* c = static_cast<T*>(args_.c) + (i + r) * args_.c_stride + j;
      if (k == 0 && !args_.accumulate) {
        for (int q = 0; q < width; ++q) c[q] = sum[r][q];
      } else {
        for (int q = 0; q < width; ++q) c[q] += sum[r][q];
      }
    }
  }

  const IntegerMatmul& args_;
  T panel_[kDepth][kWidth];
};

template <typename T>
void Run(const IntegerMatmul& args) {
  Matmul<T>(args).Run();
}

}  // namespace

void FillIntegerMatmulLoops(Loops& loops) {
  loops.integer_matmul[kIndexOf<uint8_t>] = Run<uint8_t>;
  loops.integer_matmul[kIndexOf<int8_t>] = Run<uint8_t>;
  loops.integer_matmul[kIndexOf<int32_t>] = Run<uint32_t>;
  loops.integer_matmul[kIndexOf<uint32_t>] = Run<uint32_t>;
  loops.integer_matmul[kIndexOf<int64_t>] = Run<uint64_t>;
  loops.integer_matmul[kIndexOf<uint64_t>] = Run<uint64_t>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
