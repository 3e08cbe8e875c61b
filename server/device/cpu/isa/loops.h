// The inner loops of the kernels, compiled once for each instruction set level and chosen at run
// time.
//
// A loop processes dense runs of memory on the calling thread. Unless its comment says otherwise,
// it takes all real dtypes except those of 16 bits. Kernels convert blocks of these to float32 or
// int32 (cast), compute there, and convert the results back. Only nextafter has loops for them.
// Tables are indexed by the number of a DType. An entry is null if the op doesn't take the dtype.
//
// All levels give the same bits, except for the functions of vector_libm.h. These are the vector
// variants of glibc's libmvec, whose errors are at most 4 units in the last place.
#pragma once

#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise_list.h"
#include "tensord/server/device/random_parameters.h"

namespace tensord::server::cpu {

// An element of 16 bytes, for loops that only move elements. Its address may be any multiple of 8.
struct Bytes16 {
  uint64_t halves[2];
};

inline constexpr int kDTypeCount = kDTypeTableSize;
constexpr int Index(DType dtype) { return static_cast<int>(dtype); }

// The number of elements of a block. A block stays in the first-level cache.
inline constexpr int kBlockElements = 1024;

// Kernels divide the work of most loops into short calls. Loops whose calls may be long check the
// thread's stop token after this number of elements, a power of two.
inline constexpr int64_t kMaxLoopElements = 1 << 20;
// MustStop() of stop_token.h, for the loops. It is compiled once, not for each level.
bool LoopMustStop();

// ---------------------------------------------------------------- elementwise

// y[i] = f(x[i]); y may be x.
using UnaryLoop = void (*)(const void* x, void* y, int64_t n);

// y[i] = f(a[i a_step], b[i b_step]). A step is 1, or 0 (one element for all). y may be a or b.
using BinaryLoop = void (*)(const void* a, int a_step, const void* b, int b_step, void* y,
                            int64_t n);

// y[i] = cond[i cond_step] ? a[i a_step] : b[i b_step]. The table is indexed by element size. y may
// be a or b. If the elements are bytes, y may be cond.
using WhereLoop = void (*)(const void* cond, int cond_step, const void* a, int a_step,
                           const void* b, int b_step, void* y, int64_t n);

// Converts between two different real dtypes. There are loops between any two dtypes that don't
// have 16 bits, between float32 and each 16-bit dtype, between integers of 32 and 16 bits, and from
// float64 to integers of 16 bits. All other conversions take two steps, through float32 or int32.
// If both dtypes are integers of the same size, the entry is null: the elements are copied.
using CastLoop = void (*)(const void* x, void* y, int64_t n);

// ---------------------------------------------------------------- reductions

// How elements are mapped and combined. The accumulators have these dtypes:
//   kMax, kMin               the element's dtype, or a byte for bool
//   kSum                     float32 and float64: the element's dtype; integers and bool: int64
//   kProd                    float32 and float64: float64; integers and bool: int64
//   kCount                   int64
//   kMoments                 Moments. Under kUnspecified there are loops that merge Moments.
//   the others (of norms)    float64; the elements are float32 or float64
enum class Reduction {
  kSum,
  kMax,
  kMin,
  kSumAbs,
  kSumSquares,
  kSumPowers,
  kCountNonzero,
  kMaxAbs,
  kMinAbs,
  kProd,
  kCount,  // of the elements that aren't zero
  kMoments
};
inline constexpr int kReductionCount = static_cast<int>(Reduction::kMoments) + 1;

// The number of elements, their mean, and the sum of their squared deviations from it.
struct Moments {
  double count;
  double mean;
  double squares;
};

struct ReductionLoops {
  DType accumulator = DType::kUnspecified;
  int acc_bytes = 0;  // the size of an accumulator
  // acc[r] = the reduction of x[r n, (r + 1) n). `power` is kSumPowers' exponent.
  void (*rows)(const void* x, int64_t rows, int64_t n, double power, void* acc) = nullptr;
  // acc[c] = the reduction of x[r row_stride + c] over r in [0, rows), rows > 0.
  void (*columns)(const void* x, int64_t rows, int64_t row_stride, int64_t cols, double power,
                  void* acc) = nullptr;
  // acc[c] = combine(acc[c], other[c]).
  void (*combine)(void* acc, const void* other, int64_t n) = nullptr;
  // acc[0] = the combination of acc[0, n), n > 0, pairwise in a tree. Changes the others.
  void (*join)(void* acc, int64_t n) = nullptr;
};

// Loops that find the first index of the extreme value. A NaN is more extreme than any number. If
// the op must stop, they return early, with any index of the range.
struct ArgLoops {
  // Returns the first i for which x[i] is the extreme of x[0, n), n > 0.
  int64_t (*row)(const void* x, int64_t n) = nullptr;
  // index[c] = the first r for which x[r row_stride + c] is the extreme of column c.
  void (*columns)(const void* x, int64_t rows, int64_t row_stride, int64_t cols,
                  int64_t* index) = nullptr;
};

// ---------------------------------------------------------------- scans

enum class Scan { kSum, kProd };
inline constexpr int kScanCount = 2;

struct ScanMode {
  bool exclusive;  // a result doesn't include the element at its own position
  bool reverse;    // from the last element to the first
};

// The loops of a scan. `carry` is the result so far, for a row, or for each column. The carries of
// float32 and float64 are float64, those of integers int64, which wraps around. Each loop continues
// from the carries and updates them. If y is null, it only updates them.
struct ScanLoops {
  // Scans a row. y must not be x.
  void (*row)(const void* x, void* y, int64_t n, ScanMode mode, void* carry) = nullptr;
  // Scans each column of a (rows, cols) part of memory. x and y have the same row stride. y must
  // not be x.
  void (*columns)(const void* x, void* y, int64_t rows, int64_t row_stride, int64_t cols,
                  ScanMode mode, void* carry) = nullptr;
  // Sets carry[i] to the result of no elements: 0 or 1.
  void (*begin)(void* carry, int64_t n) = nullptr;
  // carry[i] = combine(carry[i], next[i]).
  void (*combine)(void* carry, const void* next, int64_t n) = nullptr;
};

// ---------------------------------------------------------------- softmax

// y[0, n) = (log_)softmax of x[0, n). Takes float32 and float64. If the op must stop, returns
// early.
using SoftmaxRowLoop = void (*)(const void* x, void* y, int64_t n);
// Computes this for each column of a (rows, cols) part of memory. x and y have the same row stride.
using SoftmaxColumnsLoop = void (*)(const void* x, void* y, int64_t rows, int64_t row_stride,
                                    int64_t cols);
struct SoftmaxLoops {
  SoftmaxRowLoop row = nullptr;
  SoftmaxColumnsLoop columns = nullptr;
};

// ---------------------------------------------------------------- random numbers

// The loops compute elements [begin, begin + n) of the numbers of a stream (random_math.h). `begin`
// must be even.

// (a, b) is (low, high) or (mean, stddev). Takes float32 and float64.
using RandomLoop = void (*)(const RandomStream& stream, int64_t begin, int64_t n, double a,
                            double b, void* y);

// The table is indexed by element size.
using RandintLoop = void (*)(const RandomStream& stream, int64_t begin, int64_t n,
                             const RandintRange& range, void* y);

// x, y and mask begin with element `begin`. y may be x. If `mask` isn't null, sets mask[i] to 1 if
// element i is kept, otherwise to 0. Takes float32 and float64.
using DropoutLoop = void (*)(const RandomStream& stream, int64_t begin, int64_t n,
                             const DropoutRule& rule, const void* x, void* y, uint8_t* mask);

// ---------------------------------------------------------------- layout

// dst[c dst_stride + r] = src[r src_stride + c]: transposes (rows, cols). The table is indexed by
// element size.
using TransposeLoop = void (*)(const void* src, int64_t src_stride, void* dst, int64_t dst_stride,
                               int64_t rows, int64_t cols);

// dst[i] = src[i src_stride]. src_stride has any sign. The table is indexed by element size.
using GatherLoop = void (*)(const void* src, int64_t src_stride, void* dst, int64_t n);

// dst[0, bytes) = src[0, bytes). If the processor supports that, the writes bypass the caches: the
// caches keep their contents, and the processor doesn't read `dst` before it writes there. Use it
// for results that are larger than the caches.
using StreamLoop = void (*)(const void* src, void* dst, int64_t bytes);

// ---------------------------------------------------------------- indices

// The values of some indices into an axis of `size` elements.
enum class IndexRange : uint8_t {
  kOutside,      // not all of them are in [-size, size)
  kInRange,      // all of them are
  kNonNegative,  // all of them are in [0, size)
};

// Returns the range of indices[0, n). `size` is at most 2^62.
using IndexRangeLoop = IndexRange (*)(const void* indices, int64_t n, int64_t size);

// ---------------------------------------------------------------- integer matmul

// (M,K)·(K,N) -> (M,N), which wraps around. a and b have any strides. Rows of c are contiguous and
// c_stride elements apart. With `accumulate`, adds the product to c.
struct IntegerMatmul {
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_stride;
  int64_t m, n, k;
  bool accumulate;
};
using IntegerMatmulLoop = void (*)(const IntegerMatmul& args);

// ---------------------------------------------------------------- the tables

// Element sizes 1, 2, 4, 8 and 16 have entries 0 to 4.
inline constexpr int kSizeCount = 5;
inline constexpr int64_t kMaxElementBytes = 16;
constexpr int SizeIndex(int64_t element_bytes) {
  return element_bytes == 1   ? 0
         : element_bytes == 2 ? 1
         : element_bytes == 4 ? 2
         : element_bytes == 8 ? 3
                              : 4;
}

struct Loops {
  UnaryLoop unary[kUnaryFunctionCount][kDTypeCount] = {};
  BinaryLoop binary[kBinaryFunctionCount][kDTypeCount] = {};
  WhereLoop where[kSizeCount] = {};
  CastLoop cast[kDTypeCount][kDTypeCount] = {};
  ReductionLoops reduction[kReductionCount][kDTypeCount] = {};
  ArgLoops argmax[kDTypeCount] = {};
  ArgLoops argmin[kDTypeCount] = {};
  ScanLoops scan[kScanCount][kDTypeCount] = {};
  SoftmaxLoops softmax[kDTypeCount] = {};
  SoftmaxLoops log_softmax[kDTypeCount] = {};
  RandomLoop uniform[kDTypeCount] = {};
  RandomLoop normal[kDTypeCount] = {};
  RandintLoop randint[kSizeCount] = {};
  DropoutLoop dropout[kDTypeCount] = {};
  TransposeLoop transpose[kSizeCount] = {};
  GatherLoop gather[kSizeCount] = {};
  StreamLoop stream = nullptr;
  IndexRangeLoop index_range[kDTypeCount] = {};  // for int32 and int64
  IntegerMatmulLoop integer_matmul[kDTypeCount] = {};
};

enum class IsaLevel { kBaseline, kV3, kV4 };  // x86-64, -v3 (AVX2, F16C), -v4 (AVX-512)
inline constexpr IsaLevel kAllIsaLevels[] = {IsaLevel::kBaseline, IsaLevel::kV3, IsaLevel::kV4};

// Returns the loops of a level. If this build or this processor doesn't have the level, returns
// null.
const Loops* LoopsOf(IsaLevel level);

// Returns the loops of the highest available level. Always returns the same reference.
const Loops& BestLoops();

}  // namespace tensord::server::cpu
