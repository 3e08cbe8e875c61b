// The inner loops of the network ops. As in loops.h, tables are indexed by the number of a DType,
// and a loop processes dense runs of memory on the calling thread. All loops here take float32 and
// float64. A void pointer points to elements of the table's dtype.
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
  // Computes gx[0, n) for one row. gx may be g or y.
  void (*row)(const void* g, const void* y, void* gx, int64_t n) = nullptr;
  // Computes this for each column of a (rows, cols) part of memory. All three have the same row
  // stride.
  void (*columns)(const void* g, const void* y, void* gx, int64_t rows, int64_t row_stride,
                  int64_t cols) = nullptr;
};

// The operands and results of one row of layer_norm's gradient, with x̂ = (x - mean) rstd.
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
  // Computes the output rows [begin, end). For a window without elements, sets y to -inf and the
  // index to -1.
  void (*max)(const PoolGeometry& geometry, const void* x, int64_t begin, int64_t end, void* y,
              int64_t* indices) = nullptr;
  // gx = 0, then gx[indices[i]] += g[i] in order of i. Indices outside the plane are ignored.
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

// The loops of attention work on tiles: some rows of q, of at most kAttentionTileBytes, beside some
// keys. Scores and all that is multiplied with them are stored as (keys, lanes): a lane has the
// scores of one row. Lanes are rows, rounded up to a multiple of kAttentionAlignment bytes.
inline constexpr int kAttentionTileBytes = 256;
inline constexpr int kAttentionAlignment = 64;
inline constexpr int kMaxAttentionFewRows = 8;

struct AttentionTile {
  int64_t rows, lanes, keys;
  int64_t depth;     // of q and k
  const void* qt;    // (depth, lanes): q transposed, times the scale
  const void* k;     // (keys, depth)
  int64_t k_stride;  // the distance between rows, in elements
  const void* v;     // (keys, value depth)
  int64_t v_stride;
  const void* bias;     // (keys, lanes), added to the scores; null: none
  const void* factors;  // (keys, lanes), multiplied with the weights; null: none
  const void* limits;   // (lanes): a row has the keys below its limit; null: all. Not with a bias
  void* scores;         // scratch: (keys, lanes)
};

// The sums of rows over the keys so far.
struct AttentionSums {
  void* max;     // of the scores
  void* sum;     // of the weights, which are exp(score - max)
  void* values;  // (rows, cols): the sum of weight times value
  int64_t cols;  // the value depth, rounded up to a multiple of kAttentionAlignment bytes
  bool first;    // true: `values` isn't set yet
};

struct AttentionGradients {
  double scale;
  int64_t value_depth;
  const void* gt;     // (value depth, lanes): the gradient transposed
  const void* lse;    // (lanes)
  const void* delta;  // (lanes): Σ g o
  void* scores;       // scratch: (keys, lanes); then the gradients of the scores, times the scale
  // The operands have rows of k_cols or v_cols elements: the depths, rounded up to a multiple of
  // kAttentionAlignment bytes. Something is added to each result that isn't null.
  int64_t k_cols, v_cols;
  const void* q;  // (rows, k_cols)
  int64_t q_stride;
  const void* g;  // (rows, v_cols)
  int64_t g_stride;
  void* gq;  // (rows, k_cols); needs tile.k with k_cols columns
  void* gk;  // (keys, k_cols)
  void* gv;  // (keys, v_cols)
};

struct AttentionLoops {
  // y[c lanes + r] = factor x[r stride + c], for rows and cols. Sets the other lanes to 0.
  void (*transpose)(const void* x, int64_t rows, int64_t cols, int64_t stride, double factor,
                    int64_t lanes, void* y) = nullptr;
  // Adds the tile's keys to the sums. tile.v has sums.cols columns.
  void (*forward)(const AttentionTile& tile, const AttentionSums& sums) = nullptr;
  // Does the same for at most kMaxAttentionFewRows rows, which are stored as rows: qt is (rows,
  // depth), and scores, bias and factors are (rows, lanes), where lanes are keys, rounded up. The
  // depth is a multiple of kAttentionAlignment bytes.
  void (*forward_rows)(const AttentionTile& tile, const AttentionSums& sums) = nullptr;
  // Adds `more` to the sums.
  void (*merge)(const AttentionSums& sums, const AttentionSums& more, int64_t rows) = nullptr;
  // o[r value_depth + e] = values / sum, and lse = max + log(sum). Rows without keys get 0 and
  // -inf.
  void (*finish)(const AttentionSums& sums, int64_t rows, int64_t value_depth, void* o,
                 void* lse) = nullptr;
  // sums[r] = Σ a[r cols + c] b[r cols + c], for rows.
  void (*dots)(const void* a, const void* b, int64_t rows, int64_t cols, void* sums) = nullptr;
  // Adds the tile's part to the gradients.
  void (*backward)(const AttentionTile& tile, const AttentionGradients& of) = nullptr;
};

// The arrays of a step. A result may be the operand of the same name.
struct AdamArrays {
  const void *p, *g, *m, *v, *vmax;  // vmax: null without amsgrad
  void *p_out, *m_out, *v_out, *vmax_out;
};
using AdamLoop = void (*)(const AdamNumbers& numbers, const AdamArrays& arrays, int64_t n);

// Loops over cells of recurrent layers: `in` and `out` have the parts of the operands and results
// (recurrent_math.h), n elements of each. n is a multiple of kCellBlock. The second loop takes the
// operands that a call may leave out, too.
inline constexpr int64_t kCellBlock = 32;
struct RecurrentLoops {
  using CellLoop = void (*)(const void* const* in, void* const* out, int64_t n);
  CellLoop lstm[2] = {};
  CellLoop lstm_backward[2] = {};
  CellLoop gru[2] = {};
  CellLoop gru_backward[2] = {};
};

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
  AttentionLoops attention[kDTypeCount] = {};
  RecurrentLoops recurrent[kDTypeCount] = {};
};

// These return the table of a level, and of the highest available level, as LoopsOf() and
// BestLoops() do.
const NetworkLoops* NetworkLoopsOf(IsaLevel level);
const NetworkLoops& BestNetworkLoops();

}  // namespace cpu
}  // namespace tensord::server
