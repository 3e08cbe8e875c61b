// Shared by sdpa and its gradient: their arguments, and tiles of their operands.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensord/common/dtype_of.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/strided_axes.h"
#include "tensord/server/device/random_parameters.h"

namespace tensord::server::cpu {

// An item is a batch index with a head of k and v. It has the rows of all heads of q that share
// this head. They lie one after another, so an item's rows are a matrix.
struct AttentionArgs {
  // `q` is the number of the input q, and `optional` that of the first optional input.
  AttentionArgs(const KernelCall& call, size_t q, size_t optional);

  int64_t rows() const { return group * length; }  // of an item
  // Returns the end of the keys to which row `row` of an item attends.
  int64_t EndOfKeys(int64_t row) const { return causal ? std::min(keys, row % length + 1) : keys; }

  DType dtype;
  const void *q, *k, *v;
  int64_t items = 1, group = 1;  // the number of q's heads for each of k and v
  int64_t length, keys, depth, value_depth;
  double scale;
  bool causal;

  const void* mask = nullptr;  // bool, or of the computed dtype; null: none
  bool mask_is_bool = false;
  int64_t mask_row = 0, mask_key = 0;  // the strides of the rows and the keys
  StridedAxes mask_heads;              // from the number of a head of q to its offset

  bool drops = false;
  DropoutRule rule;
  RandomStream stream;
};

// Some rows of an item.
struct RowBlock {
  int64_t item, first, count;
  int64_t lanes;  // count, rounded up to whole vectors
};

template <typename T>
constexpr int64_t RoundUpToLanes(int64_t n) {
  constexpr int64_t kLanes = kAttentionAlignment / sizeof(T);
  return (n + kLanes - 1) / kLanes * kLanes;
}

// The maximum number of rows, and of keys, of a tile.
template <typename T>
inline constexpr int64_t kTileRows = kAttentionTileBytes / sizeof(T);
inline constexpr int64_t kTileKeys = 64;
// A grain (team.h) in multiplications.
inline constexpr double kAttentionGrain = 128 * 1024;

// Rows of a matrix, `stride` elements apart.
template <typename T>
struct MatrixRows {
  const T* data;
  int64_t stride;
};

// Returns the rows [first, first + count) of x, which has rows of `cols` elements, as rows of
// `padded` elements. They are in x, or a copy in `room`, whose other elements are 0.
template <typename T>
MatrixRows<T> LoadRows(const Context& ctx, DType dtype, const void* x, int64_t first, int64_t count,
                       int64_t cols, int64_t padded, T* room);

// Sets out[r stride + j] to what is added to the score of row r of the block and key `key` + j, for
// `keys` keys.
template <typename T>
void FillBias(const AttentionArgs& args, const RowBlock& block, int64_t key, int64_t keys,
              int64_t stride, T* out);

// Sets out[r stride + j] to the factor by which dropout multiplies the weight. `ones` has kTileKeys
// elements, or more if `keys` is larger.
template <typename T>
void FillFactors(const Context& ctx, const AttentionArgs& args, const RowBlock& block, int64_t key,
                 int64_t keys, int64_t stride, const T* ones, T* out);

// Sets the limit of each lane, counted from `key` on. Returns false if all rows attend to all keys.
template <typename T>
bool FillLimits(const AttentionArgs& args, const RowBlock& block, int64_t key, int64_t keys,
                T* limits);

// Returns the end of the keys to which a row of the block attends.
int64_t EndOfKeys(const AttentionArgs& args, const RowBlock& block);

// Divides memory into arrays that begin at multiples of 64 bytes. Without memory, it only counts.
template <typename T>
class Arena {
 public:
  explicit Arena(T* data) : data_(data) {}
  T* Take(int64_t elements) {
    T* const taken = data_ == nullptr ? nullptr : data_ + used_;
    used_ += RoundUpToLanes<T>(elements);
    return taken;
  }
  int64_t used() const { return used_; }

 private:
  T* const data_;
  int64_t used_ = 0;
};

// The kernels of sdpa and its gradient, which AppendAttentionKernels adds to the table.
absl::Status SdpaKernel(const Context& ctx, const KernelCall& call);
absl::Status SdpaBackwardKernel(const Context& ctx, const KernelCall& call);

}  // namespace tensord::server::cpu
