#include "tensord/server/engine/program_fusion.h"

#include <algorithm>
#include <utility>

namespace tensord::server {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kSeveral = kNone - 1;  // several readers, or an output of the program

// Returns whether one kernel is faster than `num_ops` launches. On a CPU a launch takes a few
// nanoseconds, so two ops over data in the first-level cache gain nothing.
bool IsFasterFused(size_t num_ops, const PreparedOp& last) {
  constexpr int64_t kCachedBytes = 8 << 10;
  return num_ops > 2 || last.output().size_bytes() > kCachedBytes ||
         !last.slot()->device->host_accessible();
}

class Fuser {
 public:
  Fuser(std::vector<ProgramStep> ops, uint32_t num_inputs, absl::Span<const uint32_t> outputs,
        ChainKernels* chains)
      : ops_(std::move(ops)), num_inputs_(num_inputs), chains_(chains) {
    made_at_.assign(num_inputs, kNone);
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      made_at_.insert(made_at_.end(), ops_[i].num_results(), i);
    }
    reader_.assign(made_at_.size(), kNone);
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      for (uint32_t value : ops_[i].operands) {
        uint32_t& reader = reader_[value];
        reader = reader == kNone || reader == i ? i : kSeveral;
      }
    }
    for (uint32_t value : outputs) reader_[value] = kSeveral;
  }

  std::vector<ProgramStep> Fuse() {
    std::vector<bool> fused(ops_.size(), false);
    std::vector<ProgramStep> steps;
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      if (fused[i]) continue;
      std::vector<uint32_t> chain = FindChain(i);
      ProgramStep step;
      // If the device has no kernel for the chain, it may have one for a shorter chain.
      while (chain.size() > 1 && !Join(chain, &step)) chain.resize(chain.size() / 2);
      if (chain.size() == 1) {
        steps.push_back(std::move(ops_[i]));
        continue;
      }
      for (uint32_t op : chain) fused[op] = true;
      made_at_[step.result] = i;
      steps.push_back(std::move(step));
    }
    return steps;
  }

 private:
  // Returns the chain of ops that begins with `first`.
  std::vector<uint32_t> FindChain(uint32_t first) const {
    std::vector<uint32_t> chain = {first};
    const size_t max_steps = ChainKernels::MaxSteps(*ops_[first].op);
    size_t num_steps = ChainKernels::NumSteps(*ops_[first].op);
    while (num_steps < max_steps) {
      const ProgramStep& last = ops_[chain.back()];
      const uint32_t next = reader_[last.result];
      if (next >= kSeveral || !ChainKernels::MayFollow(*last.op, *ops_[next].op)) break;
      if (!AreMadeBefore(first, ops_[next].operands, last.result)) break;
      num_steps += ChainKernels::NumSteps(*ops_[next].op);
      if (num_steps <= max_steps) chain.push_back(next);
    }
    return chain;
  }

  // Returns whether all `values` except one are made before the step at `place`.
  bool AreMadeBefore(uint32_t place, absl::Span<const uint32_t> values, uint32_t except) const {
    return std::all_of(values.begin(), values.end(), [&](uint32_t value) {
      return value == except || value < num_inputs_ || made_at_[value] < place;
    });
  }

  // Sets `step` to one that computes the whole chain. Returns false if the device has no kernel for
  // the chain, or that kernel wouldn't be faster.
  bool Join(absl::Span<const uint32_t> chain, ProgramStep* step) const {
    const ProgramStep& first = ops_[chain.front()];
    const ProgramStep& last = ops_[chain.back()];
    if (ChainKernels::IsBareLinear(*first.op)) {
      absl::StatusOr<PreparedOpRef> both = chains_->FindLinear(*first.op, *last.op);
      if (!both.ok()) return false;
      *step = {*std::move(both), nullptr, last.result, first.operands, {}};
      return true;
    }
    if (!IsFasterFused(chain.size(), *last.op)) return false;
    *step = {last.op, nullptr, last.result, {}, {}};
    step->chain = chains_->Find(ToOps(chain, &step->operands));
    return step->chain != nullptr;
  }

  absl::InlinedVector<ChainOp, 8> ToOps(absl::Span<const uint32_t> chain,
                                        absl::InlinedVector<uint32_t, 3>* inputs) const {
    absl::InlinedVector<ChainOp, 8> ops;
    for (size_t i = 0; i < chain.size(); ++i) {
      const ProgramStep& op = ops_[chain[i]];
      ChainOp& added = ops.emplace_back(ChainOp{&op.op, {}});
      for (uint32_t value : op.operands) {
        if (i > 0 && value == ops_[chain[i - 1]].result) {
          added.operands.push_back(-static_cast<int>(i));
          continue;
        }
        const auto known = std::find(inputs->begin(), inputs->end(), value);
        added.operands.push_back(static_cast<int>(known - inputs->begin()));
        if (known == inputs->end()) inputs->push_back(value);
      }
    }
    return ops;
  }

  std::vector<ProgramStep> ops_;
  const uint32_t num_inputs_;
  ChainKernels* const chains_;
  std::vector<uint32_t> reader_;  // by value: the only op that reads it, kNone or kSeveral
  // By value: the index of the op that makes it, or of the first op of that op's chain; kNone for
  // inputs.
  std::vector<uint32_t> made_at_;
};

}  // namespace

std::vector<ProgramStep> FuseSteps(std::vector<ProgramStep> ops, uint32_t num_inputs,
                                   absl::Span<const uint32_t> outputs, ChainKernels* chains) {
  return Fuser(std::move(ops), num_inputs, outputs, chains).Fuse();
}

}  // namespace tensord::server
