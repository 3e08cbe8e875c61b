#include "tensord/server/device/cpu/broadcast.h"

#include <algorithm>

namespace tensord::server::cpu {
namespace {

bool Merges(const BroadcastNest& nest, const int64_t (&stride)[kMaxElementwiseInputs]) {
  if (nest.rank == 0) return false;
  const int inner = nest.rank - 1;
  for (int i = 0; i < nest.inputs; ++i) {
    if (stride[i] != nest.stride[i][inner] * nest.size[inner]) return false;
  }
  return true;
}

// The position of an output element in the nest, and the offsets of the inputs' elements.
class Position {
 public:
  Position(const BroadcastNest& nest, int64_t element) : nest_(nest) {
    for (int d = 0; d < nest.rank; ++d) {
      index_[d] = element % nest.size[d];
      element /= nest.size[d];
      for (int i = 0; i < nest.inputs; ++i) offset_[i] += index_[d] * nest.stride[i][d];
    }
  }

  int64_t left_in_row() const { return nest_.size[0] - index_[0]; }
  int64_t offset(int input) const { return offset_[input]; }

  // Advances by n elements, but at most to the start of the next row. Returns the number of
  // elements.
  int64_t AdvanceWithinRow(int64_t n) {
    n = std::min(n, left_in_row());
    for (int i = 0; i < nest_.inputs; ++i) offset_[i] += n * nest_.stride[i][0];
    index_[0] += n;
    for (int d = 0; index_[d] == nest_.size[d] && d + 1 < nest_.rank; ++d) {
      index_[d] = 0;
      ++index_[d + 1];
      for (int i = 0; i < nest_.inputs; ++i) {
        offset_[i] += nest_.stride[i][d + 1] - nest_.size[d] * nest_.stride[i][d];
      }
    }
    return n;
  }

 private:
  const BroadcastNest& nest_;
  int64_t index_[kMaxRank];  // [0, rank)
  int64_t offset_[kMaxElementwiseInputs] = {};
};

// Copies the n elements of an input that begin at `position` to `block`.
void Gather(const Loops& loops, const BroadcastNest& nest, const void* data, Position position,
            int input, int64_t n, void* block) {
  const int64_t size = nest.input_bytes[input];
  const GatherLoop gather = loops.gather[SizeIndex(size)];
  for (int64_t filled = 0; filled < n;) {
    const int64_t count = std::min(n - filled, position.left_in_row());
    gather(cpu::Advance(data, position.offset(input) * size), nest.stride[input][0],
           cpu::Advance(block, filled * size), count);
    filled += position.AdvanceWithinRow(count);
  }
}

// Calls `fn` for the output elements [begin, end), which one thread computes.
class Walk {
 public:
  Walk(const Loops& loops, const BroadcastNest& nest, const void* const* data, void* output,
       absl::FunctionRef<void(const BroadcastRun&)> fn)
      : loops_(loops), nest_(nest), data_(data), output_(output), fn_(fn) {
    for (int i = 0; i < nest.inputs; ++i) run_.step[i] = nest.stride[i][0] != 0 ? 1 : 0;
  }

  void Rows(int64_t begin, int64_t end) {
    Position position(nest_, begin);
    for (int64_t at = begin; at < end; at += run_.n) {
      run_.n = std::min(end - at, position.left_in_row());
      for (int i = 0; i < nest_.inputs; ++i) {
        run_.data[i] = AddressOf(i, position);
      }
      run_.output = cpu::Advance(output_, at * nest_.output_bytes);
      fn_(run_);
      position.AdvanceWithinRow(run_.n);
    }
  }

  // Copies inputs to blocks of whole rows. So an input that is the same for all rows is copied only
  // once.
  void GatheredBlocks(int64_t begin, int64_t end) {
    constexpr int64_t kBlockBytes = kBlockElements * 8;
    alignas(64) char block[kMaxElementwiseInputs][kBlockBytes];
    int64_t widest = 8;
    for (int i = 0; i < nest_.inputs; ++i) widest = std::max(widest, nest_.input_bytes[i]);
    const int64_t block_rows = kBlockBytes / widest / nest_.size[0];
    Position position(nest_, begin);
    for (int64_t at = begin; at < end; at += run_.n) {
      run_.n = std::min(end - at, block_rows * nest_.size[0]);
      for (int i = 0; i < nest_.inputs; ++i) {
        run_.step[i] = IsScalar(i) ? 0 : 1;
        if (IsDense(i) || IsScalar(i)) {
          run_.data[i] = AddressOf(i, position);
        } else {
          run_.data[i] = block[i];
          if (at == begin || !IsPeriodic(i)) {
            Gather(loops_, nest_, data_[i], position, i, run_.n, block[i]);
          }
        }
      }
      run_.output = cpu::Advance(output_, at * nest_.output_bytes);
      fn_(run_);
      for (int64_t left = run_.n; left > 0;) left -= position.AdvanceWithinRow(left);
    }
  }

 private:
  bool IsDense(int input) const {
    int64_t dense = 1;
    for (int d = 0; d < nest_.rank; dense *= nest_.size[d++]) {
      if (nest_.stride[input][d] != dense) return false;
    }
    return true;
  }
  bool IsPeriodic(int input) const {
    for (int d = 1; d < nest_.rank; ++d) {
      if (nest_.stride[input][d] != 0) return false;
    }
    return true;
  }
  bool IsScalar(int input) const { return nest_.stride[input][0] == 0 && IsPeriodic(input); }

  const void* AddressOf(int input, const Position& position) const {
    return cpu::Advance(data_[input], position.offset(input) * nest_.input_bytes[input]);
  }

  const Loops& loops_;
  const BroadcastNest& nest_;
  const void* const* const data_;
  void* const output_;
  const absl::FunctionRef<void(const BroadcastRun&)> fn_;
  BroadcastRun run_ = {};
};

}  // namespace

BroadcastNest MakeNest(absl::Span<const TensorSpec* const> inputs, const TensorSpec& output) {
  const Shape& out = output.shape;
  BroadcastNest nest;
  nest.inputs = static_cast<int>(inputs.size());
  nest.elements = out.num_elements();
  nest.output_bytes = SizeOf(output.dtype);
  for (int i = 0; i < nest.inputs; ++i) nest.input_bytes[i] = SizeOf(inputs[i]->dtype);
  int64_t dense[kMaxElementwiseInputs] = {1, 1, 1};  // the stride of each input's next dimension
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    if (out.dim(axis) == 1) continue;
    int64_t stride[kMaxElementwiseInputs] = {};
    for (int i = 0; i < nest.inputs; ++i) {
      const Shape& in = inputs[i]->shape;
      const int in_axis = axis - out.rank() + in.rank();
      if (in_axis < 0 || in.dim(in_axis) == 1) continue;
      stride[i] = dense[i];
      dense[i] *= in.dim(in_axis);
    }
    if (Merges(nest, stride)) {
      nest.size[nest.rank - 1] *= out.dim(axis);
      continue;
    }
    nest.size[nest.rank] = out.dim(axis);
    for (int i = 0; i < nest.inputs; ++i) nest.stride[i][nest.rank] = stride[i];
    ++nest.rank;
  }
  if (nest.rank == 0) {  // one element
    nest.rank = 1;
    nest.size[0] = 1;
    for (int i = 0; i < nest.inputs; ++i) nest.stride[i][0] = 0;
  }
  return nest;
}

void ForEachRun(const Context& ctx, const BroadcastNest& nest, const void* const* data,
                void* output, double grain, absl::FunctionRef<void(const BroadcastRun&)> fn) {
  ctx.team.For(
      nest.elements, grain,
      [&](int64_t begin, int64_t end) {
        Walk walk(ctx.loops, nest, data, output, fn);
        if (nest.HasShortRows()) {
          walk.GatheredBlocks(begin, end);
        } else {
          walk.Rows(begin, end);
        }
      },
      kBlockElements);
}

void GatherBroadcast(const Loops& loops, const BroadcastNest& nest, const void* data, int64_t begin,
                     int64_t n, void* block) {
  Gather(loops, nest, data, Position(nest, begin), 0, n, block);
}

}  // namespace tensord::server::cpu
