// The inner loops of the network ops. As in loops.h, tables are indexed by the number of a DType,
// and a loop processes dense runs of memory on the calling thread. All loops here take float32 and
// float64, and all pointers without a type are to elements of the table's dtype.
//
// Long loops check the thread's stop token. If the op must stop, they return early.
#pragma once

#include <cstdint>

#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/pool_geometry.h"

namespace tensord::server {

struct AdamNumbers;  // ../../adam_numbers.h

namespace cpu {

// The gradient of (log_)softmax: gx = y (g - Σ g y), or gx = g - exp(y) Σ g for the logarithm.
struct SoftmaxBackwardLoops {
  // gx[0, n) for one row. gx may be g or y.
  void (*row)(const void* g, const void* y, void* gx, int64_t n) = nullptr;
  // Computes this for each column of a (rows, cols) part of memory. All three have the same row stride.
  void (*columns)(const void* g, const void* y, void* gx, int64_t rows, int64_t row_stride,
                  int64_t cols) = nullptr;
};

// A row of layer_norm's gradient, with x̂ = (x - mean) rstd.
struct LayerNormBackwardRow {
  const void* g;
  const void* x;
  const void* weight;  // null: ones
  void* gx;            // null: isn't computed. May be g or x
  void* gw;            // g x̂ is added to it; null: isn't computed
  void* gb;            // g is added to it; null: isn't computed
  int64_t n;
  bool center;
  double mean;  // 0 without center
  double rstd;
};

struct LayerNormLoops {
  // y[0, n) = (x - mean) rstd weight + bias for one row. Without `center`, the mean is 0. weight
  // and bias may be null. Sets *mean, unless it is null, and *rstd. y may be x.
  void (*row)(const void* x, const void* weight, const void* bias, void* y, int64_t n, double eps,
              bool center, void* mean, void* rstd) = nullptr;
  void (*backward_row)(const LayerNormBackwardRow& row) = nullptr;
};

// Loops over parts of memory of the shape (classes, cols), with rows `stride` apart. If `stride` is
// 1, `cols` is 1, too. Each column is a distribution over the classes. `weight` has one element for
// each class, or is null for ones. `max`, `log_sum`, `lse`, `a` and `b` have one for each column.
struct CrossEntropyLoops {
  // Sets max to the largest element of each column, and log_sum to log Σ exp(x - max). If all
  // elements are -inf, both are -inf.
  void (*log_sums)(const void* x, int64_t classes, int64_t stride, int64_t cols, void* max,
                   void* log_sum) = nullptr;
  // sums[j] = Σ weight ((max - x) + log_sum).
  void (*smooth)(const void* x, int64_t classes, int64_t stride, int64_t cols, const void* weight,
                 const void* max, const void* log_sum, double* sums) = nullptr;
  // gx = exp(x - lse) a - weight b. Where a is 0, the first term is 0.
  void (*backward)(const void* x, int64_t classes, int64_t stride, int64_t cols, const void* weight,
                   const void* lse, const void* a, const void* b, void* gx) = nullptr;
};

// Loops over one plane of pooling. An output row has the windows with the same index on the first
// two spatial axes. Rows are numbered from 0.
struct PoolLoops {
  // Computes the output rows [begin, end). A window without elements has -inf and the index -1.
  void (*max)(const PoolGeometry& geometry, const void* x, int64_t begin, int64_t end, void* y,
              int64_t* indices) = nullptr;
  // gx = 0, then gx[indices[i]] += g[i] in order of i. Indices outside the plane don't count.
  void (*max_backward)(const PoolGeometry& geometry, const void* g, const int64_t* indices,
                       void* gx) = nullptr;
  // Computes the output rows [begin, end). The sums are divided by `divisor`, or, if it is 0, by
  // the number of elements of the window.
  void (*avg)(const PoolGeometry& geometry, bool count_padding, int64_t divisor, const void* x,
              int64_t begin, int64_t end, void* y) = nullptr;
  void (*avg_backward)(const PoolGeometry& geometry, bool count_padding, int64_t divisor,
                       const void* g, void* gx) = nullptr;
};

// Loops over elements of one channel of batch_norm.
struct BatchNormLoops {
  // y[0, n) = (x - mean) scale + shift. y may be x.
  void (*normalize)(const void* x, int64_t n, double mean, double scale, double shift,
                    void* y) = nullptr;
  // sums[0] += Σ g, and sums[1] += Σ g (x - mean), in float64.
  void (*add_products)(const void* g, const void* x, int64_t n, double mean,
                       double* sums) = nullptr;
  // gx[0, n) = (g - shift - (x - mean) slope) scale. gx may be g or x.
  void (*gradient)(const void* g, const void* x, int64_t n, double mean, double shift, double slope,
                   double scale, void* gx) = nullptr;
};

// The arrays of a step. A result may be the operand of the same name.
struct AdamArrays {
  const void *p, *g, *m, *v, *vmax;  // vmax: null without amsgrad
  void *p_out, *m_out, *v_out, *vmax_out;
};
using AdamLoop = void (*)(const AdamNumbers& numbers, const AdamArrays& arrays, int64_t n);

// sums[i] = the sum over p of parts[p stride + i], for i in [0, n), added in float64 in order of p.
using AddPartsLoop = void (*)(const void* parts, int64_t count, int64_t stride, int64_t n,
                              void* sums);

struct NetworkLoops {
  SoftmaxBackwardLoops softmax_backward[kDTypeCount] = {};
  SoftmaxBackwardLoops log_softmax_backward[kDTypeCount] = {};
  LayerNormLoops layer_norm[kDTypeCount] = {};
  AddPartsLoop add_parts[kDTypeCount] = {};
  CrossEntropyLoops cross_entropy[kDTypeCount] = {};
  PoolLoops pool[kDTypeCount] = {};
  BatchNormLoops batch_norm[kDTypeCount] = {};
  AdamLoop adam[kDTypeCount] = {};
};

// These return the table of a level, and of the highest available level, as LoopsOf() and
// BestLoops() do.
const NetworkLoops* NetworkLoopsOf(IsaLevel level);
const NetworkLoops& BestNetworkLoops();

}  // namespace cpu
}  // namespace tensord::server
