#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/cpu/broadcast.h"
#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

constexpr int kMaxInputs = 32;  // without the numbers
constexpr int kMaxSteps = 512;  // with the numbers
constexpr int kMaxSources = kMaxInputs + kMaxSteps;
// The maximum number of blocks of intermediate elements that a thread has at a time.
constexpr int kMaxSlots = 24;
constexpr int64_t kMaxStepBytes = 8;  // of an element
constexpr int64_t kSlotBytes = kBlockElements * kMaxStepBytes;
constexpr int kNoSlot = -1;

// The number of a value that a step reads: first the inputs, then the results of the steps.
using Source = int;

struct Step {
  explicit Step(const ElementwiseLoop& l) : loop(l) {}

  ElementwiseLoop loop;
  Source operands[kMaxElementwiseInputs] = {};
  int64_t element_bytes = 0;  // of the result
  // All operands are single elements, so the result is one, too.
  bool uniform = false;
  int slot = kNoSlot;  // kNoSlot: the output's own memory
};

// An input that is neither of the output's shape nor a single element.
struct BroadcastInput {
  int input;
  int slot;
  BroadcastNest nest;
};

// A step that is a number. The plan treats it as one more input, whose memory is here.
struct Number {
  alignas(8) char bytes[kMaxStepBytes] = {};
};

// The steps for each block, planned before the first launch.
struct FusedPlan {
  int inputs = 0;  // the tensors, then the numbers
  std::vector<Number> numbers;
  int64_t elements = 0;
  int64_t output_bytes = 0;      // of an element
  std::vector<int64_t> advance;  // of each input, bytes from element to element; 0: one for all
  std::vector<char> uniform;     // for each source: whether it is one element for all
  std::vector<BroadcastInput> broadcasts;
  std::vector<Step> steps;
  double grain = 0;
  bool streams = false;  // the result is written without the caches
  uint32_t in_place_inputs = 0;
};

class Planner {
 public:
  Planner(const Loops& loops, const FusedSpec& spec) : loops_(loops), spec_(spec) {}

  absl::StatusOr<FusedPlan> Plan() {
    const auto is_number = [](const FusedSpec::Step& step) { return step.operands.empty(); };
    const auto numbers = std::count_if(spec_.steps.begin(), spec_.steps.end(), is_number);
    const size_t inputs = spec_.inputs.size(), steps = spec_.steps.size();
    if (inputs > kMaxInputs || steps > kMaxSteps || steps == static_cast<size_t>(numbers)) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: no fused kernel of ", inputs, " inputs and ", steps, " steps"));
    }
    plan_.inputs = static_cast<int>(inputs + numbers);
    plan_.elements = spec_.output->num_elements();
    plan_.output_bytes = SizeOf(spec_.output->dtype);
    for (const TensorSpec& input : spec_.inputs) dtypes_.push_back(input.dtype);
    for (const FusedSpec::Step& step : spec_.steps) {
      if (is_number(step)) AddNumber(step);
    }
    Source next = plan_.inputs, next_number = static_cast<Source>(spec_.inputs.size());
    for (const FusedSpec::Step& step : spec_.steps) {
      if (!is_number(step)) {
        const absl::Status status = AddStep(step);
        if (!status.ok()) return status;
      }
      sources_.push_back(is_number(step) ? next_number++ : next++);
    }
    SetGrain();
    plan_.streams = ExceedsCaches(plan_.elements * plan_.output_bytes);
    AddInputs();
    if (!AssignSlots()) {
      return absl::UnimplementedError("cpu: too many intermediate values for a fused kernel");
    }
    SetInPlaceInputs();
    return std::move(plan_);
  }

 private:
  void AddNumber(const FusedSpec::Step& step) {
    ConvertNumber(loops_, *step.attrs->Find("value"), step.dtype,
                  plan_.numbers.emplace_back().bytes);
    dtypes_.push_back(step.dtype);
  }

  absl::Status AddStep(const FusedSpec::Step& step) {
    absl::InlinedVector<DType, kMaxElementwiseInputs> dtypes;
    absl::InlinedVector<Source, kMaxElementwiseInputs> sources;
    for (const int operand : step.operands) {
      const auto values = static_cast<int>(operand >= 0 ? spec_.inputs.size() : sources_.size());
      if ((operand >= 0 ? operand : -operand - 1) >= values) {
        return absl::InternalError("cpu: a fused step reads a value that doesn't exist yet");
      }
      const Source source = operand >= 0 ? operand : sources_[-operand - 1];
      sources.push_back(source);
      dtypes.push_back(dtypes_[source]);
    }
    const std::optional<ElementwiseLoop> loop =
        ElementwiseLoop::Find(loops_, *step.schema, *step.attrs, dtypes, step.dtype);
    if (!loop.has_value() || SizeOf(step.dtype) > kMaxStepBytes) {
      return absl::UnimplementedError(absl::StrCat("cpu: ", step.schema->name, " over ",
                                                   DTypeName(step.dtype), " can't be fused"));
    }
    Step& added = plan_.steps.emplace_back(*loop);
    std::copy(sources.begin(), sources.end(), added.operands);
    added.element_bytes = SizeOf(step.dtype);
    dtypes_.push_back(step.dtype);
    return absl::OkStatus();
  }

  // Adds up the cost of the steps. A cheap step takes only a fraction of the time of the op alone,
  // which reads and writes memory.
  void SetGrain() {
    constexpr double kCheapSpeedup = 6;
    double share = 0;
    for (const Step& step : plan_.steps) {
      const bool cheap = step.loop.grain() == kGrainElements;
      share += 1.0 / step.loop.grain() / (cheap ? kCheapSpeedup : 1.0);
    }
    plan_.grain = std::clamp(1 / share, 1.0, kGrainElements);
  }

  void AddInputs() {
    const auto tensors = static_cast<int>(spec_.inputs.size());
    plan_.uniform.assign(plan_.inputs, 1);
    plan_.advance.assign(plan_.inputs, 0);
    for (int i = 0; i < tensors; ++i) {
      const TensorSpec& input = spec_.inputs[i];
      plan_.uniform[i] = 0;
      if (input.num_elements() == plan_.elements) {
        plan_.advance[i] = SizeOf(input.dtype);
      } else if (input.num_elements() == 1) {
        plan_.uniform[i] = 1;
      } else {
        const TensorSpec* const specs[] = {&input};
        plan_.broadcasts.push_back({i, kNoSlot, MakeNest(specs, *spec_.output)});
      }
    }
    for (Step& step : plan_.steps) {
      step.uniform = true;
      for (int i = 0; i < step.loop.inputs(); ++i) {
        step.uniform = step.uniform && plan_.uniform[step.operands[i]] != 0;
      }
      plan_.uniform.push_back(step.uniform ? 1 : 0);
    }
  }

  // Each value has a slot from the step that computes it to the last step that reads it. If no
  // later step reads an operand, the step overwrites the operand if its loop can. Copied inputs and
  // a result that is written without the caches keep their slots. A uniform value, which is
  // computed before the first block, shares its slot with no other value.
  bool AssignSlots() {
    const int steps = static_cast<int>(plan_.steps.size());
    std::vector<int> last_read(plan_.inputs + steps, kNoSlot);
    for (int s = 0; s < steps; ++s) {
      for (int i = 0; i < plan_.steps[s].loop.inputs(); ++i) {
        last_read[plan_.steps[s].operands[i]] = s;
      }
    }
    for (BroadcastInput& broadcast : plan_.broadcasts) {
      if (!TakeSlot(broadcast.slot)) return false;
    }
    for (int s = 0; s < steps; ++s) {
      Step& step = plan_.steps[s];
      const bool to_output = s + 1 == steps && !plan_.streams && !step.uniform;
      if (step.uniform) {
        if (!TakeNewSlot(step.slot)) return false;
      } else if (!to_output && !Reuse(step, s, last_read) && !TakeSlot(step.slot)) {
        return false;
      }
      for (int i = 0; i < step.loop.inputs(); ++i) {
        const Source source = step.operands[i];
        if (source < plan_.inputs || last_read[source] != s) continue;
        const Step& made = plan_.steps[source - plan_.inputs];
        if (made.uniform || made.slot == step.slot) continue;
        last_read[source] = kNoSlot;  // so that an operand that the step reads twice is freed once
        free_.push_back(made.slot);
      }
    }
    return true;
  }

  bool Reuse(Step& step, int s, const std::vector<int>& last_read) {
    for (int i = 0; i < step.loop.inputs(); ++i) {
      const Source source = step.operands[i];
      if (source < plan_.inputs || last_read[source] != s || !step.loop.MayOverwrite(i)) continue;
      const Step& made = plan_.steps[source - plan_.inputs];
      if (made.uniform || made.element_bytes != step.element_bytes) continue;
      step.slot = made.slot;
      return true;
    }
    return false;
  }

  bool TakeSlot(int& slot) {
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
      return true;
    }
    return TakeNewSlot(slot);
  }

  bool TakeNewSlot(int& slot) {
    slot = slots_++;
    return slots_ <= kMaxSlots;
  }

  // The last step writes a block of the output after all earlier steps have read their blocks. So
  // only the last step restricts which inputs the output may overwrite.
  void SetInPlaceInputs() {
    const Step& last = plan_.steps.back();
    for (int i = 0; i < static_cast<int>(spec_.inputs.size()); ++i) {
      bool may = HasElementsOf(spec_.inputs[i], *spec_.output);
      for (int j = 0; j < last.loop.inputs() && !plan_.streams; ++j) {
        may = may && (last.operands[j] != i || last.loop.MayOverwrite(j));
      }
      if (may) plan_.in_place_inputs |= 1u << i;
    }
  }

  const Loops& loops_;
  const FusedSpec& spec_;
  FusedPlan plan_;
  std::vector<DType> dtypes_;    // of each source
  std::vector<Source> sources_;  // of each step of spec_, up to the current one
  std::vector<int> free_;
  int slots_ = 0;
};

// Computes one thread's share, block by block.
class BlockRunner {
 public:
  BlockRunner(const Loops& loops, const FusedPlan& plan, const void* const* inputs, void* output)
      : loops_(loops), plan_(plan), output_(output), inputs_(inputs) {
    for (int i = 0; i < plan.inputs; ++i) at_[i] = inputs[i];
    for (const Step& step : plan.steps) {
      if (step.uniform) RunStep(step, slots_[step.slot], 1);
    }
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlockElements) {
      Block(at, std::min<int64_t>(kBlockElements, end - at));
    }
  }

 private:
  void Block(int64_t at, int64_t n) {
    for (int i = 0; i < plan_.inputs; ++i) at_[i] = Advance(inputs_[i], at * plan_.advance[i]);
    for (const BroadcastInput& broadcast : plan_.broadcasts) {
      char* slot = slots_[broadcast.slot];
      GatherBroadcast(loops_, broadcast.nest, inputs_[broadcast.input], at, n, slot);
      at_[broadcast.input] = slot;
    }
    char* to = Advance(output_, at * plan_.output_bytes);
    for (const Step& step : plan_.steps) {
      if (!step.uniform) RunStep(step, step.slot == kNoSlot ? to : slots_[step.slot], n);
    }
    const Step& last = plan_.steps.back();
    if (last.uniform) {
      loops_.gather[SizeIndex(plan_.output_bytes)](slots_[last.slot], 0, to, n);
    } else if (last.slot != kNoSlot) {
      loops_.stream(slots_[last.slot], to, n * plan_.output_bytes);
    }
  }

  void RunStep(const Step& step, void* y, int64_t n) {
    const void* x[kMaxElementwiseInputs] = {};
    int advance[kMaxElementwiseInputs] = {};
    for (int i = 0; i < step.loop.inputs(); ++i) {
      x[i] = at_[step.operands[i]];
      advance[i] = IsUniform(step.operands[i]) ? 0 : 1;
    }
    step.loop.Run(x, advance, y, n);
    at_[plan_.inputs + (&step - plan_.steps.data())] = y;
  }

  bool IsUniform(Source source) const { return plan_.uniform[source] != 0; }

  const Loops& loops_;
  const FusedPlan& plan_;
  void* const output_;
  const void* const* const inputs_;
  const void* at_[kMaxSources];  // the current block of each source
  alignas(64) char slots_[kMaxSlots][kSlotBytes];
};

class FusedElementwise final : public PreparedKernel {
 public:
  FusedElementwise(const PrepareContext& ctx, FusedPlan plan)
      : plan_(std::move(plan)), ctx_(plan_.elements < 2 * plan_.grain ? ctx.alone : ctx.team) {
    runs_inline_ = &ctx_ == &ctx.alone;
    for (int i = 0; i < kMaxInputs; ++i) {
      if (plan_.in_place_inputs >> i & 1) SetInPlace(i);
    }
  }

  absl::Status Launch(const LaunchContext& /*context*/, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    const void* from[kMaxSources];
    const void** next = from;
    for (const Buffer* input : inputs) *next++ = input->data();
    for (const Number& number : plan_.numbers) *next++ = number.bytes;
    Buffer* const output = outputs[0];
    BeforeOverwrite(*output);
    void* const to = output->data();
    ctx_.team.For(
        plan_.elements, plan_.grain,
        [&](int64_t begin, int64_t end) {
          BlockRunner(ctx_.loops, plan_, from, to).Run(begin, end);
        },
        kBlockElements);
    return absl::OkStatus();
  }

 private:
  const FusedPlan plan_;
  const Context& ctx_;
};

}  // namespace

bool ExceedsCaches(int64_t size_bytes) {
  static const int64_t cache_bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 8 << 20);
  return size_bytes > cache_bytes;
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFusedElementwise(const PrepareContext& ctx,
                                                                        const FusedSpec& spec) {
  absl::StatusOr<FusedPlan> plan = Planner(ctx.team.loops, spec).Plan();
  if (!plan.ok()) return plan.status();
  return std::make_unique<FusedElementwise>(ctx, *std::move(plan));
}

}  // namespace tensord::server::cpu
