// The kernel of sdpa. It reads blocks of keys, and keeps sums for some rows of q relative to the
// largest score so far (Dao et al., "FlashAttention", 2022).
#include <algorithm>
#include <limits>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/attention.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The number of keys of a task, if an item has few rows. It is the same for any number of threads.
constexpr int64_t kFewRowsKeys = 512;

template <typename T>
class Attention {
 public:
  Attention(const Context& ctx, const KernelCall& call)
      : ctx_(ctx),
        call_(call),
        args_(call, 0, 3),
        loops_(BestNetworkLoops().attention[Index(kDTypeOf<T>)]),
        cols_(RoundUpToLanes<T>(args_.value_depth)),
        few_rows_(args_.rows() <= kMaxAttentionFewRows),
        k_cols_(few_rows_ ? RoundUpToLanes<T>(args_.depth) : args_.depth),
        max_rows_(few_rows_ ? args_.rows() : std::min(args_.rows(), kTileRows<T>)),
        max_keys_(std::min(args_.keys, few_rows_ ? kFewRowsKeys : kTileKeys)) {}

  absl::Status Run() {
    if (args_.items * args_.rows() == 0) return absl::OkStatus();
    Room counted;
    const int64_t elements = Divide(nullptr, &counted);
    TENSORD_ASSIGN_OR_RETURN(
        rooms_, MakeScratch(call_, elements * int64_t{sizeof(T)} * ctx_.team.threads()));
    elements_ = elements;
    return few_rows_ ? RunFewRows() : RunBlocks();
  }

 private:
  // The scratch of a thread.
  struct Room {
    T *q, *qt, *k, *v, *scores, *limits, *bias, *bias_rows, *factors, *factor_rows, *ones;
    T *max, *sum, *values, *o;
  };

  // Divides the memory at `data`, and returns the number of its elements.
  int64_t Divide(T* data, Room* room) const {
    Arena<T> arena(data);
    const int64_t lanes = RoundUpToLanes<T>(max_rows_), keys = RoundUpToLanes<T>(max_keys_);
    const int64_t tile = few_rows_ ? max_rows_ * keys : max_keys_ * lanes;
    const bool copies = Is16Bit(args_.dtype) || few_rows_;
    room->q = arena.Take(copies ? max_rows_ * k_cols_ : 0);
    room->qt = arena.Take(few_rows_ ? max_rows_ * k_cols_ : args_.depth * lanes);
    room->k = arena.Take(Is16Bit(args_.dtype) || k_cols_ != args_.depth ? max_keys_ * k_cols_ : 0);
    room->v =
        arena.Take(Is16Bit(args_.dtype) || cols_ != args_.value_depth ? max_keys_ * cols_ : 0);
    room->scores = arena.Take(tile);
    room->limits = arena.Take(lanes);
    room->bias = arena.Take(args_.mask != nullptr ? tile : 0);
    room->bias_rows = arena.Take(args_.mask != nullptr && !few_rows_ ? lanes * max_keys_ : 0);
    room->factors = arena.Take(args_.drops ? tile : 0);
    room->factor_rows = arena.Take(args_.drops && !few_rows_ ? lanes * max_keys_ : 0);
    room->ones = arena.Take(args_.drops ? max_keys_ : 0);
    room->max = arena.Take(lanes);
    room->sum = arena.Take(lanes);
    room->values = arena.Take(lanes * cols_);
    room->o = arena.Take(Is16Bit(args_.dtype) ? max_rows_ * args_.value_depth : 0);
    return arena.used();
  }

  Room RoomOfThread() const {
    Room room;
    Divide(rooms_.template As<T>() + Team::Current() * elements_, &room);
    if (args_.drops) std::fill(room.ones, room.ones + max_keys_, T{1});
    return room;
  }

  double Grain(int64_t rows, int64_t keys) const {
    const int64_t depths = args_.depth + args_.value_depth + 16;
    return kAttentionGrain / static_cast<double>(rows * std::max<int64_t>(keys, 1) * depths);
  }

  absl::Status RunBlocks() {
    const int64_t blocks = (args_.rows() + kTileRows<T> - 1) / kTileRows<T>;
    ctx_.team.For(args_.items * blocks, Grain(kTileRows<T>, args_.keys),
                  [&](int64_t begin, int64_t end) {
                    const Room room = RoomOfThread();
                    for (int64_t i = begin; i < end; ++i) {
                      // The last rows of a causal item have the most keys. So a thread takes rows
                      // from both ends in turn.
                      const int64_t turn = i % blocks;
                      const int64_t at = turn % 2 == 0 ? turn / 2 : blocks - 1 - turn / 2;
                      const int64_t first = at * kTileRows<T>;
                      const int64_t count = std::min(kTileRows<T>, args_.rows() - first);
                      RunBlock({i / blocks, first, count, RoundUpToLanes<T>(count)}, room);
                    }
                  });
    return absl::OkStatus();
  }

  void RunBlock(const RowBlock& block, const Room& room) {
    const MatrixRows<T> q =
        LoadRows(ctx_, args_.dtype, args_.q, block.item * args_.rows() + block.first, block.count,
                 args_.depth, args_.depth, room.q);
    loops_.transpose(q.data, block.count, args_.depth, q.stride, args_.scale, block.lanes, room.qt);
    AttentionSums sums = StartSums(block.lanes, room);
    const int64_t end = EndOfKeys(args_, block);
    for (int64_t key = 0; key < end && !MustStop(); key += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, end - key);
      AttentionTile tile = LoadTile(block, key, keys, room);
      tile.lanes = block.lanes;
      if (FillLimits(args_, block, key, keys, room.limits)) tile.limits = room.limits;
      if (args_.mask != nullptr) {
        FillBias(args_, block, key, keys, keys, room.bias_rows);
        loops_.transpose(room.bias_rows, block.count, keys, keys, 1.0, block.lanes, room.bias);
        tile.bias = room.bias;
      }
      if (args_.drops) {
        FillFactors(ctx_, args_, block, key, keys, keys, room.ones, room.factor_rows);
        loops_.transpose(room.factor_rows, block.count, keys, keys, 1.0, block.lanes, room.factors);
        tile.factors = room.factors;
      }
      loops_.forward(tile, sums);
      sums.first = false;
    }
    Finish(block, sums, room);
  }

  AttentionSums StartSums(int64_t lanes, const Room& room) const {
    std::fill(room.max, room.max + lanes, -std::numeric_limits<T>::infinity());
    std::fill(room.sum, room.sum + lanes, T{0});
    return {room.max, room.sum, room.values, cols_, true};
  }

  // Returns a tile with its keys and values, without bias, factors and limits.
  AttentionTile LoadTile(const RowBlock& block, int64_t key, int64_t keys, const Room& room) const {
    const int64_t first = block.item * args_.keys + key;
    const MatrixRows<T> k =
        LoadRows(ctx_, args_.dtype, args_.k, first, keys, args_.depth, k_cols_, room.k);
    const MatrixRows<T> v =
        LoadRows(ctx_, args_.dtype, args_.v, first, keys, args_.value_depth, cols_, room.v);
    return {.rows = block.count,
            .lanes = 0,
            .keys = keys,
            .depth = k_cols_,
            .qt = room.qt,
            .k = k.data,
            .k_stride = k.stride,
            .v = v.data,
            .v_stride = v.stride,
            .bias = nullptr,
            .factors = nullptr,
            .limits = nullptr,
            .scores = room.scores};
  }

  void Finish(const RowBlock& block, const AttentionSums& sums, const Room& room) const {
    if (sums.first) {
      std::fill(room.values, room.values + block.count * cols_, T{0});
    }
    const int64_t row = block.item * args_.rows() + block.first;
    const int64_t elements = block.count * args_.value_depth;
    void* const o = Advance(call_.outputs[0].data, row * args_.value_depth * SizeOf(args_.dtype));
    const bool narrow = Is16Bit(args_.dtype);
    loops_.finish(sums, block.count, args_.value_depth, narrow ? room.o : o,
                  call_.outputs[1].template AsMutable<T>() + row);
    if (narrow) Convert(ctx_.loops, kDTypeOf<T>, room.o, args_.dtype, o, elements);
  }

  // Divides the keys, too. The parts of an item are merged in order.
  absl::Status RunFewRows() {
    const int64_t rows = args_.rows();
    const RowBlock whole = {0, 0, rows, RoundUpToLanes<T>(rows)};
    const int64_t end = EndOfKeys(args_, whole);
    const int64_t parts = std::max<int64_t>(1, (end + kFewRowsKeys - 1) / kFewRowsKeys);
    const int64_t of_part = rows * cols_ + 2 * whole.lanes;
    TENSORD_ASSIGN_OR_RETURN(
        const Scratch sums,
        MakeScratch(call_, parts == 1 ? 0 : args_.items * parts * of_part * int64_t{sizeof(T)}));
    ctx_.team.For(args_.items * parts, Grain(rows, std::min(end, kFewRowsKeys)),
                  [&](int64_t begin, int64_t end_of_tasks) {
                    Room room = RoomOfThread();
                    for (int64_t i = begin; i < end_of_tasks; ++i) {
                      RowBlock block = whole;
                      block.item = i / parts;
                      if (parts > 1) PlaceSums(sums.As<T>() + i * of_part, &room);
                      const int64_t key = i % parts * kFewRowsKeys;
                      const AttentionSums of_keys =
                          RunKeys(block, key, std::min(kFewRowsKeys, end - key), room);
                      if (parts == 1) Finish(block, of_keys, room);
                    }
                  });
    if (parts == 1 || MustStop()) return absl::OkStatus();
    ctx_.team.For(args_.items, Grain(rows, parts), [&](int64_t begin, int64_t end_of_items) {
      Room room = RoomOfThread(), more = room;
      for (int64_t item = begin; item < end_of_items; ++item) {
        PlaceSums(sums.As<T>() + item * parts * of_part, &room);
        const AttentionSums total = {room.max, room.sum, room.values, cols_, false};
        for (int64_t part = 1; part < parts; ++part) {
          PlaceSums(sums.As<T>() + (item * parts + part) * of_part, &more);
          loops_.merge(total, {more.max, more.sum, more.values, cols_, false}, rows);
        }
        RowBlock block = whole;
        block.item = item;
        Finish(block, total, room);
      }
    });
    return absl::OkStatus();
  }

  void PlaceSums(T* data, Room* room) const {
    const int64_t lanes = RoundUpToLanes<T>(args_.rows());
    room->max = data;
    room->sum = data + lanes;
    room->values = data + 2 * lanes;
  }

  AttentionSums RunKeys(const RowBlock& block, int64_t key, int64_t keys, const Room& room) const {
    AttentionSums sums = StartSums(block.lanes, room);
    if (keys <= 0) return sums;
    const MatrixRows<T> q = LoadRows(ctx_, args_.dtype, args_.q, block.item * args_.rows(),
                                     block.count, args_.depth, k_cols_, room.q);
    const T scale = static_cast<T>(args_.scale);
    for (int64_t i = 0; i < block.count * k_cols_; ++i) room.qt[i] = q.data[i] * scale;
    AttentionTile tile = LoadTile(block, key, keys, room);
    tile.lanes = RoundUpToLanes<T>(keys);
    if (FillLimits(args_, block, key, keys, room.limits)) tile.limits = room.limits;
    if (args_.mask != nullptr) {
      FillBias(args_, block, key, keys, tile.lanes, room.bias);
      tile.bias = room.bias;
    }
    if (args_.drops) {
      std::fill(room.factors, room.factors + block.count * tile.lanes, T{0});
      FillFactors(ctx_, args_, block, key, keys, tile.lanes, room.ones, room.factors);
      tile.factors = room.factors;
    }
    loops_.forward_rows(tile, sums);
    sums.first = false;
    return sums;
  }

  const Context& ctx_;
  const KernelCall& call_;
  const AttentionArgs args_;
  const AttentionLoops& loops_;
  const int64_t cols_;
  const bool few_rows_;
  const int64_t k_cols_, max_rows_, max_keys_;
  Scratch rooms_;
  int64_t elements_ = 0;
};

}  // namespace

absl::Status SdpaKernel(const Context& ctx, const KernelCall& call) {
  return call.inputs[0].spec->dtype == DType::kFloat64 ? Attention<double>(ctx, call).Run()
                                                       : Attention<float>(ctx, call).Run();
}

}  // namespace tensord::server::cpu
