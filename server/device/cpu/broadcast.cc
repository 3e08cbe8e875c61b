#include "tensord/server/device/cpu/broadcast.h"

#include <algorithm>

namespace tensord::server::cpu {
namespace {

// Rows shorter than this are gathered into blocks.
constexpr int64_t kShortRow = 64;

// The output's dimensions with neighbours merged wherever every input walks them alike; [0] is the
// innermost. Strides are in elements, 0 where an input is broadcast.
struct Nest {
  int rank = 0;
  int64_t size[kMaxRank];
  int64_t stride[kMaxBroadcastInputs][kMaxRank];
};

bool Merges(const Nest& nest, const int64_t (&stride)[kMaxBroadcastInputs], int inputs) {
  if (nest.rank == 0) return false;
  const int inner = nest.rank - 1;
  for (int i = 0; i < inputs; ++i) {
    if (stride[i] != nest.stride[i][inner] * nest.size[inner]) return false;
  }
  return true;
}

Nest MakeNest(const KernelCall& call) {
  const Shape& out = call.output.spec->shape;
  const int inputs = static_cast<int>(call.inputs.size());
  Nest nest;
  int64_t dense[kMaxBroadcastInputs] = {1, 1, 1};  // the stride of the next dimension not broadcast
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    if (out.dim(axis) == 1) continue;
    int64_t stride[kMaxBroadcastInputs] = {};
    for (int i = 0; i < inputs; ++i) {
      const Shape& in = call.inputs[i].spec->shape;
      const int in_axis = axis - out.rank() + in.rank();
      if (in_axis < 0 || in.dim(in_axis) == 1) continue;
      stride[i] = dense[i];
      dense[i] *= in.dim(in_axis);
    }
    if (Merges(nest, stride, inputs)) {
      nest.size[nest.rank - 1] *= out.dim(axis);
      continue;
    }
    nest.size[nest.rank] = out.dim(axis);
    for (int i = 0; i < inputs; ++i) nest.stride[i][nest.rank] = stride[i];
    ++nest.rank;
  }
  if (nest.rank == 0) {  // one element
    nest.rank = 1;
    nest.size[0] = 1;
    for (int i = 0; i < inputs; ++i) nest.stride[i][0] = 0;
  }
  return nest;
}

// Where in the nest an output element is, and the inputs' offsets there.
class Position {
 public:
  Position(const Nest& nest, int inputs, int64_t element) : nest_(nest), inputs_(inputs) {
    for (int d = 0; d < nest.rank; ++d) {
      index_[d] = element % nest.size[d];
      element /= nest.size[d];
      for (int i = 0; i < inputs; ++i) offset_[i] += index_[d] * nest.stride[i][d];
    }
  }

  int64_t left_in_row() const { return nest_.size[0] - index_[0]; }
  int64_t offset(int input) const { return offset_[input]; }

  // Goes on by n elements or to the next row's start, whichever is nearer; returns how many.
  int64_t AdvanceWithinRow(int64_t n) {
    n = std::min(n, left_in_row());
    for (int i = 0; i < inputs_; ++i) offset_[i] += n * nest_.stride[i][0];
    index_[0] += n;
    for (int d = 0; index_[d] == nest_.size[d] && d + 1 < nest_.rank; ++d) {
      index_[d] = 0;
      ++index_[d + 1];
      for (int i = 0; i < inputs_; ++i) {
        offset_[i] += nest_.stride[i][d + 1] - nest_.size[d] * nest_.stride[i][d];
      }
    }
    return n;
  }

 private:
  const Nest& nest_;
  const int inputs_;
  int64_t index_[kMaxRank] = {};
  int64_t offset_[kMaxBroadcastInputs] = {};
};

// The share of one thread: output elements [begin, end).
class Walk {
 public:
  Walk(const Context& ctx, const KernelCall& call, const Nest& nest,
       absl::FunctionRef<void(const BroadcastRun&)> fn)
      : ctx_(ctx),
        call_(call),
        nest_(nest),
        inputs_(static_cast<int>(call.inputs.size())),
        fn_(fn) {
    for (int i = 0; i < inputs_; ++i) {
      size_[i] = SizeOf(call.inputs[i].spec->dtype);
      run_.step[i] = nest.stride[i][0] != 0 ? 1 : 0;
    }
    out_size_ = SizeOf(call.output.spec->dtype);
  }

  void Rows(int64_t begin, int64_t end) {
    Position position(nest_, inputs_, begin);
    for (int64_t at = begin; at < end; at += run_.n) {
      run_.n = std::min(end - at, position.left_in_row());
      for (int i = 0; i < inputs_; ++i) {
        run_.data[i] = cpu::Advance(call_.inputs[i].data, position.offset(i) * size_[i]);
      }
      run_.output = cpu::Advance(call_.output.data, at * out_size_);
      fn_(run_);
      position.AdvanceWithinRow(run_.n);
    }
  }

  // Blocks of whole rows, so that an input that is the same for all rows is gathered once.
  void GatheredBlocks(int64_t begin, int64_t end) {
    alignas(64) char block[kMaxBroadcastInputs][kBlockElements * 8];
    const int64_t block_rows = kBlockElements / nest_.size[0];
    Position position(nest_, inputs_, begin);
    for (int64_t at = begin; at < end; at += run_.n) {
      run_.n = std::min(end - at, block_rows * nest_.size[0]);
      for (int i = 0; i < inputs_; ++i) {
        run_.step[i] = IsScalar(i) ? 0 : 1;
        if (IsDense(i) || IsScalar(i)) {
          run_.data[i] = cpu::Advance(call_.inputs[i].data, position.offset(i) * size_[i]);
        } else {
          run_.data[i] = block[i];
          if (at == begin || !IsPeriodic(i)) Gather(position, i, block[i]);
        }
      }
      run_.output = cpu::Advance(call_.output.data, at * out_size_);
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

  // The next run_.n elements of an input.
  void Gather(Position position, int input, char* block) const {
    const GatherLoop gather = ctx_.loops.gather[SizeIndex(size_[input])];
    for (int64_t filled = 0; filled < run_.n;) {
      const void* from =
          cpu::Advance(call_.inputs[input].data, position.offset(input) * size_[input]);
      const int64_t n = std::min(run_.n - filled, position.left_in_row());
      gather(from, nest_.stride[input][0], block + filled * size_[input], n);
      filled += position.AdvanceWithinRow(n);
    }
  }

  const Context& ctx_;
  const KernelCall& call_;
  const Nest& nest_;
  const int inputs_;
  const absl::FunctionRef<void(const BroadcastRun&)> fn_;
  int64_t size_[kMaxBroadcastInputs] = {};
  int64_t out_size_ = 0;
  BroadcastRun run_ = {};
};

}  // namespace

void ForEachRun(const Context& ctx, const KernelCall& call, int64_t grain,
                absl::FunctionRef<void(const BroadcastRun&)> fn) {
  const int64_t elements = call.output.spec->num_elements();
  if (elements == 0) return;
  const Nest nest = MakeNest(call);
  const bool gathered = nest.rank > 1 && nest.size[0] < kShortRow;
  ctx.team.For(
      elements, grain,
      [&](int64_t begin, int64_t end) {
        Walk walk(ctx, call, nest, fn);
        if (gathered) {
          walk.GatheredBlocks(begin, end);
        } else {
          walk.Rows(begin, end);
        }
      },
      kBlockElements);
}

}  // namespace tensord::server::cpu
