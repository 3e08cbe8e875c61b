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

  // n <= left_in_row().
  void Advance(int64_t n) {
    for (int i = 0; i < inputs_; ++i) offset_[i] += n * nest_.stride[i][0];
    index_[0] += n;
    for (int d = 0; index_[d] == nest_.size[d] && d + 1 < nest_.rank; ++d) {
      index_[d] = 0;
      ++index_[d + 1];
      for (int i = 0; i < inputs_; ++i) {
        offset_[i] += nest_.stride[i][d + 1] - nest_.size[d] * nest_.stride[i][d];
      }
    }
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
      position.Advance(run_.n);
    }
  }

  void GatheredBlocks(int64_t begin, int64_t end) {
    alignas(64) char block[kMaxBroadcastInputs][kBlockElements * 8];
    Position position(nest_, inputs_, begin);
    for (int i = 0; i < inputs_; ++i) {
      run_.data[i] = block[i];
      run_.step[i] = 1;
    }
    for (int64_t at = begin; at < end; at += run_.n) {
      run_.n = std::min<int64_t>(end - at, kBlockElements);
      for (int64_t filled = 0; filled < run_.n;) {
        const int64_t n = std::min(run_.n - filled, position.left_in_row());
        for (int i = 0; i < inputs_; ++i) {
          ctx_.loops.gather[SizeIndex(size_[i])](
              cpu::Advance(call_.inputs[i].data, position.offset(i) * size_[i]), nest_.stride[i][0],
              block[i] + filled * size_[i], n);
        }
        position.Advance(n);
        filled += n;
      }
      run_.output = cpu::Advance(call_.output.data, at * out_size_);
      fn_(run_);
    }
  }

 private:
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
