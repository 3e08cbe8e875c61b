// The kernel of sdpa_backward. It computes the weights again from lse, tile by tile.
#include <algorithm>
#include <cstring>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/attention.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

template <typename T>
class AttentionBackward {
 public:
  AttentionBackward(const Context& ctx, const KernelCall& call)
      : ctx_(ctx),
        call_(call),
        args_(call, 1, 6),
        loops_(BestNetworkLoops().attention[Index(kDTypeOf<T>)]),
        k_cols_(RoundUpToLanes<T>(args_.depth)),
        v_cols_(RoundUpToLanes<T>(args_.value_depth)),
        max_rows_(std::min(args_.rows(), kTileRows<T>)),
        max_keys_(std::min(args_.keys, kTileKeys)),
        wants_mask_(call.outputs.size() > 3) {}

  absl::Status Run() {
    if (args_.items * args_.rows() == 0 || args_.keys == 0) {
      for (const Operand& output : call_.outputs) {
        if (output.data != nullptr) std::memset(output.data, 0, output.spec->size_bytes());
      }
      return absl::OkStatus();
    }
    one_pass_ = PrefersOnePass();
    Room counted;
    elements_ = Divide(nullptr, &counted);
    TENSORD_ASSIGN_OR_RETURN(
        rooms_, MakeScratch(call_, elements_ * int64_t{sizeof(T)} * ctx_.team.threads()));
    const int64_t rows = args_.items * args_.rows();
    TENSORD_ASSIGN_OR_RETURN(deltas_, MakeScratch(call_, rows * int64_t{sizeof(T)}));
    ComputeDeltas(rows);
    if (one_pass_) {
      RunItems();
    } else {
      RunKeyBlocks();
      RunRowBlocks();
    }
    if (wants_mask_) RunMask();
    return absl::OkStatus();
  }

 private:
  // The scratch of a thread.
  struct Room {
    T *q, *qt, *g, *gt, *o, *k, *v, *scores, *gradients, *limits, *lse, *delta;
    T *bias, *bias_rows, *factors, *factor_rows, *ones;
    T *gq, *gk, *gv, *gmask;
  };
  // Which gradients a tile adds to.
  struct Wanted {
    T *gq = nullptr, *gk = nullptr, *gv = nullptr;
    double scale;
  };

  // Divides the memory at `data`, and returns the number of its elements.
  int64_t Divide(T* data, Room* room) const {
    Arena<T> arena(data);
    const int64_t lanes = RoundUpToLanes<T>(max_rows_), tile = max_keys_ * lanes;
    const bool narrow = Is16Bit(args_.dtype);
    room->q = arena.Take(narrow || k_cols_ != args_.depth ? max_rows_ * k_cols_ : 0);
    room->qt = arena.Take(args_.depth * lanes);
    room->g = arena.Take(narrow || v_cols_ != args_.value_depth ? max_rows_ * v_cols_ : 0);
    room->gt = arena.Take(args_.value_depth * lanes);
    room->o = arena.Take(narrow ? max_rows_ * args_.value_depth : 0);
    room->k = arena.Take(narrow || k_cols_ != args_.depth ? max_keys_ * k_cols_ : 0);
    room->v = arena.Take(narrow ? max_keys_ * args_.value_depth : 0);
    room->scores = arena.Take(tile);
    room->gradients = arena.Take(tile);
    for (T** of_lanes : {&room->limits, &room->lse, &room->delta}) *of_lanes = arena.Take(lanes);
    room->bias = arena.Take(args_.mask != nullptr ? tile : 0);
    room->bias_rows = arena.Take(args_.mask != nullptr ? tile : 0);
    room->factors = arena.Take(args_.drops ? tile : 0);
    room->factor_rows = arena.Take(args_.drops ? tile : 0);
    room->ones = arena.Take(args_.drops ? max_keys_ : 0);
    room->gq = arena.Take((one_pass_ ? args_.rows() : max_rows_) * k_cols_);
    room->gk = arena.Take(max_keys_ * k_cols_);
    room->gv = arena.Take(max_keys_ * v_cols_);
    room->gmask = arena.Take(wants_mask_ ? max_rows_ * args_.keys : 0);
    return arena.used();
  }

  Room RoomOfThread() const {
    Room room;
    Divide(rooms_.template As<T>() + Team::Current() * elements_, &room);
    if (args_.drops) std::fill(room.ones, room.ones + max_keys_, T{1});
    return room;
  }

  // In one pass, a thread computes all gradients of an item, by five products for each tile. In two
  // passes, threads divide the keys and then the rows, by seven products. The sums are the same.
  bool PrefersOnePass() const {
    const int64_t threads = ctx_.team.threads();
    const int64_t rounds = (args_.items + threads - 1) / threads;
    return args_.items * 7 >= rounds * threads * 5;
  }

  double Grain(int64_t rows, int64_t keys) const {
    const int64_t depths = args_.depth + args_.value_depth + 16;
    return kAttentionGrain / (static_cast<double>(rows) * static_cast<double>(keys * depths * 3));
  }

  // Sets deltas_ to Σ g o of each row.
  void ComputeDeltas(int64_t rows) {
    const int64_t depth = std::max<int64_t>(args_.value_depth, 1);
    ctx_.team.For(
        rows, kGrainElements / 2 / static_cast<double>(depth), [&](int64_t begin, int64_t end) {
          const Room room = RoomOfThread();
          for (int64_t first = begin; first < end; first += max_rows_) {
            const int64_t count = std::min(max_rows_, end - first);
            const MatrixRows<T> g = LoadRows(ctx_, args_.dtype, call_.inputs[0].data, first, count,
                                             args_.value_depth, args_.value_depth, room.g);
            const MatrixRows<T> o = LoadRows(ctx_, args_.dtype, call_.inputs[4].data, first, count,
                                             args_.value_depth, args_.value_depth, room.o);
            loops_.dots(g.data, o.data, count, args_.value_depth, deltas_.template As<T>() + first);
          }
        });
  }

  RowBlock BlockAt(int64_t item, int64_t first) const {
    const int64_t count = std::min(kTileRows<T>, args_.rows() - first);
    return {item, first, count, RoundUpToLanes<T>(count)};
  }

  // Sets the tile's operands of keys, and those of its gradients.
  void LoadKeys(int64_t item, int64_t key, const Room& room, AttentionTile* tile) const {
    tile->keys = std::min(kTileKeys, args_.keys - key);
    const int64_t first = item * args_.keys + key;
    const MatrixRows<T> k =
        LoadRows(ctx_, args_.dtype, args_.k, first, tile->keys, args_.depth, k_cols_, room.k);
    const MatrixRows<T> v = LoadRows(ctx_, args_.dtype, args_.v, first, tile->keys,
                                     args_.value_depth, args_.value_depth, room.v);
    tile->depth = args_.depth;
    tile->k = k.data;
    tile->k_stride = k.stride;
    tile->v = v.data;
    tile->v_stride = v.stride;
    tile->scores = room.scores;
  }

  // Sets the operands of rows.
  void LoadBlock(const RowBlock& block, const Room& room, AttentionTile* tile,
                 AttentionGradients* of) const {
    const int64_t first = block.item * args_.rows() + block.first;
    const MatrixRows<T> q =
        LoadRows(ctx_, args_.dtype, args_.q, first, block.count, args_.depth, k_cols_, room.q);
    const MatrixRows<T> g = LoadRows(ctx_, args_.dtype, call_.inputs[0].data, first, block.count,
                                     args_.value_depth, v_cols_, room.g);
    loops_.transpose(q.data, block.count, args_.depth, q.stride, args_.scale, block.lanes, room.qt);
    loops_.transpose(g.data, block.count, args_.value_depth, g.stride, 1.0, block.lanes, room.gt);
    const T* const lse = call_.inputs[5].template As<T>() + first;
    const T* const delta = deltas_.template As<T>() + first;
    std::fill(std::copy(lse, lse + block.count, room.lse), room.lse + block.lanes, T{0});
    std::fill(std::copy(delta, delta + block.count, room.delta), room.delta + block.lanes, T{0});
    tile->rows = block.count;
    tile->lanes = block.lanes;
    tile->qt = room.qt;
    of->value_depth = args_.value_depth;
    of->gt = room.gt;
    of->lse = room.lse;
    of->delta = room.delta;
    of->scores = room.gradients;
    of->k_cols = k_cols_;
    of->v_cols = v_cols_;
    of->q = q.data;
    of->q_stride = q.stride;
    of->g = g.data;
    of->g_stride = g.stride;
  }

  // Adds the gradients of a tile whose operands are loaded.
  void RunTile(const RowBlock& block, int64_t key, const Room& room, const Wanted& wanted,
               AttentionTile tile, AttentionGradients of) const {
    tile.bias = tile.factors = tile.limits = nullptr;
    if (FillLimits(args_, block, key, tile.keys, room.limits)) tile.limits = room.limits;
    if (args_.mask != nullptr) {
      FillBias(args_, block, key, tile.keys, tile.keys, room.bias_rows);
      loops_.transpose(room.bias_rows, block.count, tile.keys, tile.keys, 1.0, block.lanes,
                       room.bias);
      tile.bias = room.bias;
    }
    if (args_.drops) {
      FillFactors(ctx_, args_, block, key, tile.keys, tile.keys, room.ones, room.factor_rows);
      loops_.transpose(room.factor_rows, block.count, tile.keys, tile.keys, 1.0, block.lanes,
                       room.factors);
      tile.factors = room.factors;
    }
    of.scale = wanted.scale;
    of.gq = wanted.gq;
    of.gk = wanted.gk;
    of.gv = wanted.gv;
    loops_.backward(tile, of);
  }

  // Adds the gradients of all rows of an item beside some keys, and stores those of the keys. gq is
  // that of the item's rows, or null.
  void RunKeys(int64_t item, int64_t key, T* gq, const Room& room) const {
    AttentionTile tile = {};
    LoadKeys(item, key, room, &tile);
    std::fill(room.gk, room.gk + tile.keys * k_cols_, T{0});
    std::fill(room.gv, room.gv + tile.keys * v_cols_, T{0});
    for (int64_t first = 0; first < args_.rows() && !MustStop(); first += kTileRows<T>) {
      const RowBlock block = BlockAt(item, first);
      if (EndOfKeys(args_, block) <= key) continue;
      AttentionGradients of = {};
      LoadBlock(block, room, &tile, &of);
      RunTile(block, key, room,
              {gq == nullptr ? nullptr : gq + first * k_cols_, room.gk, room.gv, args_.scale}, tile,
              of);
    }
    const int64_t row = item * args_.keys + key;
    StoreRows(room.gk, tile.keys, args_.depth, k_cols_, call_.outputs[1], row * args_.depth);
    StoreRows(room.gv, tile.keys, args_.value_depth, v_cols_, call_.outputs[2],
              row * args_.value_depth);
  }

  // Stores `cols` elements of each row at the element `at` of the output.
  void StoreRows(const T* rows, int64_t count, int64_t cols, int64_t stride, const Operand& output,
                 int64_t at) const {
    const DType dtype = output.spec->dtype;
    const int64_t run = cols == stride ? count : 1;  // rows that are converted together
    for (int64_t r = 0; r < count; r += run) {
      Convert(ctx_.loops, kDTypeOf<T>, rows + r * stride, dtype,
              Advance(output.data, (at + r * cols) * SizeOf(dtype)), run * cols);
    }
  }

  void RunItems() {
    ctx_.team.For(args_.items, Grain(args_.rows(), args_.keys), [&](int64_t begin, int64_t end) {
      const Room room = RoomOfThread();
      for (int64_t item = begin; item < end; ++item) {
        std::fill(room.gq, room.gq + args_.rows() * k_cols_, T{0});
        for (int64_t key = 0; key < args_.keys && !MustStop(); key += kTileKeys) {
          RunKeys(item, key, room.gq, room);
        }
        StoreRows(room.gq, args_.rows(), args_.depth, k_cols_, call_.outputs[0],
                  item * args_.rows() * args_.depth);
      }
    });
  }

  // Calls fn(item, block of an item, thread's room) for all blocks. The first and last blocks of an
  // item take turns, because in a causal item one end has more work.
  template <typename Fn>
  void ForBlocks(int64_t blocks, double grain, Fn fn) {
    ctx_.team.For(args_.items * blocks, grain, [&](int64_t begin, int64_t end) {
      const Room room = RoomOfThread();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t turn = i % blocks;
        fn(i / blocks, turn % 2 == 0 ? turn / 2 : blocks - 1 - turn / 2, room);
      }
    });
  }

  void RunKeyBlocks() {
    ForBlocks((args_.keys + kTileKeys - 1) / kTileKeys, Grain(args_.rows(), kTileKeys),
              [&](int64_t item, int64_t block, const Room& room) {
                RunKeys(item, block * kTileKeys, nullptr, room);
              });
  }

  void RunRowBlocks() {
    ForBlocks(
        (args_.rows() + kTileRows<T> - 1) / kTileRows<T>, Grain(kTileRows<T>, args_.keys),
        [&](int64_t item, int64_t index, const Room& room) {
          const RowBlock block = BlockAt(item, index * kTileRows<T>);
          std::fill(room.gq, room.gq + block.count * k_cols_, T{0});
          RunRow(block, {room.gq, nullptr, nullptr, args_.scale}, room, [](int64_t, int64_t) {});
          StoreRows(room.gq, block.count, args_.depth, k_cols_, call_.outputs[0],
                    (item * args_.rows() + block.first) * args_.depth);
        });
  }

  // Computes the tiles of a block of rows. Calls done(key, keys) after each.
  template <typename Fn>
  void RunRow(const RowBlock& block, const Wanted& wanted, const Room& room, Fn done) const {
    AttentionTile tile = {};
    AttentionGradients of = {};
    LoadBlock(block, room, &tile, &of);
    const int64_t end = EndOfKeys(args_, block);
    for (int64_t key = 0; key < end && !MustStop(); key += kTileKeys) {
      LoadKeys(block.item, key, room, &tile);
      RunTile(block, key, room, wanted, tile, of);
      done(key, tile.keys);
    }
  }

  // The heads to whose scores a matrix of the mask is added.
  struct HeadsOfMask {
    StridedAxes first;  // from the number of a matrix to its first head
    StridedAxes next;   // from an index to the distance of a head from the first one
    int64_t count = 1;  // of the heads of a matrix
  };
  HeadsOfMask FindHeadsOfMask() const {
    HeadsOfMask heads;
    const StridedAxes& all = args_.mask_heads;
    const auto axes = static_cast<int>(all.sizes.size());
    const Dims numbers = RowMajorStrides(Shape(all.sizes));
    for (int axis = 0; axis < axes; ++axis) {
      // The mask is broadcast along axes with the stride 0.
      const bool is_shared = all.strides[axis] == 0;
      if (is_shared) heads.count *= all.sizes[axis];
      StridedAxes& of = is_shared ? heads.next : heads.first;
      of.sizes.push_back(all.sizes[axis]);
      of.strides.push_back(numbers[axis]);
    }
    return heads;
  }

  // The gradient of a mask's element is the sum over the scores to which it is added. A task has
  // some rows of one matrix of the mask, and adds the heads in order.
  void RunMask() {
    const Operand& output = call_.outputs[3];
    const Shape& shape = output.spec->shape;
    int64_t matrix = 1;
    for (int d = std::max(0, shape.rank() - 2); d < shape.rank(); ++d) matrix *= shape.dim(d);
    const HeadsOfMask heads = FindHeadsOfMask();
    const bool each_row = args_.mask_row != 0, each_key = args_.mask_key != 0;
    const int64_t width = each_key ? args_.keys : 1;
    const int64_t row_blocks = (args_.length + max_rows_ - 1) / max_rows_;
    const int64_t blocks = each_row ? row_blocks : 1;
    const int64_t matrices = output.spec->num_elements() / matrix;
    const auto run = [&](int64_t task, const Room& room) {
      const int64_t first_row = task % blocks * max_rows_;
      const int64_t end_row =
          each_row ? std::min(args_.length, first_row + max_rows_) : args_.length;
      const int64_t rows = each_row ? end_row - first_row : 1;
      std::fill(room.gmask, room.gmask + rows * width, T{0});
      const int64_t first_head = heads.first.ComputeOffset(task / blocks);
      for (int64_t h = 0; h < heads.count && !MustStop(); ++h) {
        const int64_t head = first_head + heads.next.ComputeOffset(h);
        const int64_t item = head / args_.group;
        const int64_t of_head = head % args_.group * args_.length;
        for (int64_t row = first_row; row < end_row && !MustStop(); row += max_rows_) {
          const int64_t count = std::min(max_rows_, end_row - row);
          const RowBlock block = {item, of_head + row, count, RoundUpToLanes<T>(count)};
          RunRow(block, {nullptr, nullptr, nullptr, 1.0}, room, [&](int64_t key, int64_t keys) {
            for (int64_t r = 0; r < count; ++r) {
              T* const to = room.gmask + (each_row ? r * width : 0) + (each_key ? key : 0);
              for (int64_t j = 0; j < keys; ++j) {
                to[each_key ? j : 0] += room.gradients[j * block.lanes + r];
              }
            }
          });
        }
      }
      Convert(ctx_.loops, kDTypeOf<T>, room.gmask, output.spec->dtype,
              Advance(output.data, (task / blocks * matrix + first_row * args_.mask_row) *
                                       SizeOf(output.spec->dtype)),
              rows * width);
    };
    const int64_t rows_of_task = (each_row ? max_rows_ : args_.length) * heads.count;
    ctx_.team.For(matrices * blocks, Grain(rows_of_task, args_.keys),
                  [&](int64_t begin, int64_t end) {
                    const Room room = RoomOfThread();
                    for (int64_t i = begin; i < end; ++i) run(i, room);
                  });
  }

  const Context& ctx_;
  const KernelCall& call_;
  const AttentionArgs args_;
  const AttentionLoops& loops_;
  const int64_t k_cols_, v_cols_, max_rows_, max_keys_;
  const bool wants_mask_;
  bool one_pass_ = false;
  Scratch rooms_, deltas_;
  int64_t elements_ = 0;
};

}  // namespace

absl::Status SdpaBackwardKernel(const Context& ctx, const KernelCall& call) {
  return call.inputs[1].spec->dtype == DType::kFloat64 ? AttentionBackward<double>(ctx, call).Run()
                                                       : AttentionBackward<float>(ctx, call).Run();
}

}  // namespace tensord::server::cpu
