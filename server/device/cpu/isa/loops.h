// The inner loops of the kernels, compiled once per instruction set level and chosen at run time.
//
// A loop works on dense runs of memory, runs on the caller's thread and knows nothing of shapes.
// Except where said otherwise it takes the dtypes that have a math type of their own: float16 and
// bfloat16 are converted to float32 in blocks (cast), computed there, and converted back. Tables
// are indexed by the number of a DType; an entry is null where the op doesn't take the dtype.
//
// All levels give the same bits, except for exp, log, log1p, tanh, erf and pow, which come from the
// vector variants in glibc's libmvec and agree within 4 units in the last place.
#pragma once

#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise_list.h"

namespace tensord::server::cpu {

inline constexpr int kDTypeCount = static_cast<int>(DType::kFloat64) + 1;
constexpr int Index(DType dtype) { return static_cast<int>(dtype); }

// A block of elements that converts and stays in the first-level cache.
inline constexpr int kBlockElements = 1024;

// ---------------------------------------------------------------- elementwise

// y[i] = f(x[i]); y may be x.
using UnaryLoop = void (*)(const void* x, void* y, int64_t n);

// y[i] = f(a[i a_step], b[i b_step]); a step is 0 (one element for all) or 1. y may be a or b.
using BinaryLoop = void (*)(const void* a, int a_step, const void* b, int b_step, void* y,
                            int64_t n);

// y[i] = cond[i cond_step] ? a[i a_step] : b[i b_step], by element size. y may be a or b, or cond
// where the elements are bytes.
using WhereLoop = void (*)(const void* cond, int cond_step, const void* a, int a_step,
                           const void* b, int b_step, void* y, int64_t n);

// Between any two different dtypes of these: those with a math type, and float32 with the 16-bit
// ones. From 16 bits to anything else goes by way of float32.
using CastLoop = void (*)(const void* x, void* y, int64_t n);

// ---------------------------------------------------------------- reductions

// How elements are mapped and combined. The accumulator's dtype is the element's for kMax and kMin
// (a byte for bool) and for kSum of float32 and float64. kSum of integers and bool accumulates in
// int64. The norm's sums and extremes, of float32 and float64, accumulate in float64.
enum class Reduction {
  kSum,
  kMax,
  kMin,
  kSumAbs,
  kSumSquares,
  kSumPowers,
  kCountNonzero,
  kMaxAbs,
  kMinAbs
};
inline constexpr int kReductionCount = static_cast<int>(Reduction::kMinAbs) + 1;

struct ReductionLoops {
  DType accumulator = DType::kUnspecified;
  // acc[r] = the reduction of x[r n, (r + 1) n). `power` is kSumPowers' exponent.
  void (*rows)(const void* x, int64_t rows, int64_t n, double power, void* acc) = nullptr;
  // acc[c] = the reduction of x[r row_stride + c] over r in [0, rows), rows > 0.
  void (*columns)(const void* x, int64_t rows, int64_t row_stride, int64_t cols, double power,
                  void* acc) = nullptr;
  // acc[c] = combine(acc[c], other[c]).
  void (*combine)(void* acc, const void* other, int64_t n) = nullptr;
};

// The first place of the extreme value, a NaN being more extreme than any number.
struct ArgLoops {
  // The first i with x[i] the extreme of x[0, n), n > 0.
  int64_t (*row)(const void* x, int64_t n) = nullptr;
  // The same over r for each column of x[r row_stride + c].
  void (*columns)(const void* x, int64_t rows, int64_t row_stride, int64_t cols,
                  int64_t* index) = nullptr;
};

// ---------------------------------------------------------------- softmax

// float32 and float64. y[0, n) = (log_)softmax of x[0, n).
using SoftmaxRowLoop = void (*)(const void* x, void* y, int64_t n);
// The same down each column of a (rows, cols) part of memory with that row stride, for x and y.
using SoftmaxColumnsLoop = void (*)(const void* x, void* y, int64_t rows, int64_t row_stride,
                                    int64_t cols);
struct SoftmaxLoops {
  SoftmaxRowLoop row = nullptr;
  SoftmaxColumnsLoop columns = nullptr;
};

// ---------------------------------------------------------------- random numbers

// Elements [begin, begin + n) of the stream of `seed` (random_math.h), begin even and n up to the
// tensor's end. float32 and float64. (a, b) is (low, high) or (mean, stddev).
using RandomLoop = void (*)(uint64_t seed, int64_t begin, int64_t n, double a, double b, void* y);

// ---------------------------------------------------------------- layout

// dst[c dst_stride + r] = src[r src_stride + c]: a transpose of (rows, cols), by element size.
using TransposeLoop = void (*)(const void* src, int64_t src_stride, void* dst, int64_t dst_stride,
                               int64_t rows, int64_t cols);

// dst[i] = src[i src_stride], src_stride of any sign, by element size.
using GatherLoop = void (*)(const void* src, int64_t src_stride, void* dst, int64_t n);

// dst[0, bytes) = src[0, bytes), written past the caches where the processor can. For results that
// are far larger than those: what they hold stays, and memory isn't read before it is overwritten.
using StreamLoop = void (*)(const void* src, void* dst, int64_t bytes);

// ---------------------------------------------------------------- integer matmul

// (M,K)·(K,N) -> (M,N), dense in c with rows c_stride apart, wrapping; a and b have any strides.
struct IntegerMatmul {
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_stride;
  int64_t m, n, k;
};
using IntegerMatmulLoop = void (*)(const IntegerMatmul& args);

// ---------------------------------------------------------------- the tables

// Element sizes 1, 2, 4 and 8 have entries 0 to 3.
inline constexpr int kSizeCount = 4;
constexpr int SizeIndex(int64_t element_bytes) {
  return element_bytes == 1 ? 0 : element_bytes == 2 ? 1 : element_bytes == 4 ? 2 : 3;
}

struct Loops {
  UnaryLoop unary[kUnaryFunctionCount][kDTypeCount] = {};
  BinaryLoop binary[kBinaryFunctionCount][kDTypeCount] = {};
  WhereLoop where[kSizeCount] = {};
  CastLoop cast[kDTypeCount][kDTypeCount] = {};
  ReductionLoops reduction[kReductionCount][kDTypeCount] = {};
  ArgLoops argmax[kDTypeCount] = {};
  ArgLoops argmin[kDTypeCount] = {};
  SoftmaxLoops softmax[kDTypeCount] = {};
  SoftmaxLoops log_softmax[kDTypeCount] = {};
  RandomLoop uniform[kDTypeCount] = {};
  RandomLoop normal[kDTypeCount] = {};
  TransposeLoop transpose[kSizeCount] = {};
  GatherLoop gather[kSizeCount] = {};
  StreamLoop stream = nullptr;
  IntegerMatmulLoop integer_matmul[kDTypeCount] = {};
};

enum class IsaLevel { kBaseline, kV3, kV4 };  // x86-64, -v3 (AVX2, F16C), -v4 (AVX-512)
inline constexpr IsaLevel kAllIsaLevels[] = {IsaLevel::kBaseline, IsaLevel::kV3, IsaLevel::kV4};

// The loops of a level; null where this build or this processor hasn't got it.
const Loops* LoopsOf(IsaLevel level);

// Those of the highest level there is. Never null; the same for the life of the process.
const Loops& BestLoops();

}  // namespace tensord::server::cpu
