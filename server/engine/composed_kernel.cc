#include "tensord/server/engine/composed_kernel.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/server/engine/loop_kernel.h"

namespace tensord::server {
namespace {

constexpr uint32_t kNoValue = ~uint32_t{0};
constexpr size_t kMaxFusedInputs = 16;

// A part of a composition: a fusion group, a single op or a loop. It has either `fused`, `op` or
// `loop`.
struct Part {
  FusedKernelRef fused;  // of a fusion group: several elementwise ops with one result
  // The ops of `fused`. They run one by one until `fused` is prepared, or always if the device has
  // no kernel. Empty if `fused` already had a kernel when the composition was prepared.
  std::vector<Part> ops;
  PreparedOpRef op;
  std::unique_ptr<LoopKernel> loop;
  absl::InlinedVector<uint32_t, 4> operands;
  absl::InlinedVector<uint32_t, 2> results;
  absl::InlinedVector<uint32_t, 2> last_uses;  // intermediate values that no later part reads
  // Positions of operands whose memory an output may take: this part reads them last, and no other
  // operand shares their memory.
  absl::InlinedVector<int, 2> reusable;

  int64_t num_launches() const {
    if (op != nullptr) return op->is_alias() ? 0 : op->num_launches();
    if (loop != nullptr) return loop->num_launches();
    int64_t launches = 0;
    for (const Part& each : ops) launches += each.num_launches();
    return std::max<int64_t>(launches, 1);
  }

  bool runs_inline() const {
    if (op != nullptr) return op->runs_inline();
    return loop == nullptr && ops.empty() && fused->kernel()->runs_inline();
  }
};

class ComposedKernel final : public PreparedKernel {
 public:
  // `made_in[v]` is the output whose memory the intermediate value v uses, or kNoValue. Either the
  // output is an alias of v, or the op that reads v last overwrites v in place. The result of that
  // op is the output, or itself a value with `made_in`.
  ComposedKernel(const Composition& built, std::vector<Part> parts, std::vector<uint32_t> made_in,
                 ChainKernels* chains)
      : chains_(chains),
        num_inputs_(built.num_inputs),
        specs_(built.specs.begin(), built.specs.end()),
        outputs_(built.outputs.begin(), built.outputs.end()),
        parts_(std::move(parts)),
        made_in_(std::move(made_in)),
        values_(specs_.size(), nullptr),
        held_(specs_.size()) {
    // A step is also kept by the fused kernels that it belongs to.
    constexpr int64_t kPartBytes = 1024, kStepBytes = 512, kValueBytes = sizeof(TensorSpec) + 32;
    runs_inline_ = true;
    num_launches_ = 0;
    host_bytes_ = kValueBytes * static_cast<int64_t>(specs_.size()) +
                  kStepBytes * static_cast<int64_t>(built.steps.size());
    for (const Part& part : parts_) {
      runs_inline_ = runs_inline_ && part.runs_inline();
      num_launches_ = std::min(num_launches_ + part.num_launches(), int64_t{1} << 40);
      host_bytes_ += kPartBytes * static_cast<int64_t>(1 + part.ops.size());
      if (part.loop != nullptr) {
        host_bytes_ += part.loop->body().host_bytes();
      } else if (part.op == nullptr && part.ops.empty()) {
        host_bytes_ += part.fused->kernel()->host_bytes();
      }
    }
    // If the composition is one kernel, its output may use the memory of the inputs that this
    // kernel allows.
    if (parts_.size() != 1 || !parts_[0].ops.empty() || parts_[0].loop != nullptr) return;
    const Part& alone = parts_[0];
    for (int i = 0; i < static_cast<int>(alone.operands.size()); ++i) {
      const int output =
          alone.op != nullptr ? alone.op->in_place(i) : alone.fused->kernel()->in_place(i);
      if (output < 0 || output >= static_cast<int>(alone.results.size())) continue;
      const auto place = absl::c_find(outputs_, alone.results[output]);
      if (place == outputs_.end()) continue;
      SetInPlace(static_cast<int>(alone.operands[i]), static_cast<int>(place - outputs_.begin()));
    }
  }

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    for (size_t i = 0; i < inputs.size(); ++i) values_[i] = const_cast<Buffer*>(inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) values_[outputs_[i]] = outputs[i];
    const absl::Status status = LaunchParts(context, parts_);
    for (uint32_t value = num_inputs_; value < held_.size(); ++value) Drop(value);
    return status;
  }

  // The record has the number of an input and the position of an element, but not the op. Names the
  // first op that reports values and whose input has that position.
  absl::Status BadValueError(const CheckRecord& record) const override {
    const auto input = static_cast<size_t>(InputOfKey(record.key));
    for (const Part& part : parts_) {
      if (part.op == nullptr || !part.op->reports_values()) continue;
      const auto inputs = part.op->inputs();
      if (input >= inputs.size()) continue;
      if (PositionOfKey(record.key) >= inputs[input].num_elements()) continue;
      return WithPrefix(part.op->BadValueError(record), absl::StrCat(part.op->name(), ": "));
    }
    return absl::InternalError("no op of the composition checks this value");
  }

  void PrepareFully() override {
    for (const Part& part : parts_) {
      if (part.fused != nullptr) part.fused->Prepare();
      if (part.loop != nullptr) part.loop->body().PrepareFully();
    }
  }

 private:
  void Drop(uint32_t value) {
    held_[value] = nullptr;
    values_[value] = nullptr;
  }

  absl::Status LaunchParts(const LaunchContext& context, absl::Span<const Part> parts) {
    for (const Part& part : parts) {
      TENSORD_RETURN_IF_ERROR(CheckStop());
      TENSORD_RETURN_IF_ERROR(LaunchPart(context, part));
      for (uint32_t value : part.last_uses) Drop(value);
    }
    return absl::OkStatus();
  }

  absl::Status LaunchPart(const LaunchContext& context, const Part& part) {
    const bool fused = part.fused != nullptr && chains_->PrepareOrQueue(part.fused) &&
                       part.fused->kernel() != nullptr;
    if (!fused && part.op == nullptr && part.loop == nullptr) {
      return LaunchParts(context, part.ops);
    }
    if (part.op != nullptr && part.op->is_alias()) return HoldAlias(part);
    absl::InlinedVector<Buffer*, 2> results;
    for (size_t i = 0; i < part.results.size(); ++i) {
      const uint32_t result = part.results[i];
      if (values_[result] == nullptr) {
        TENSORD_RETURN_IF_ERROR(HoldResult(context, part, fused, static_cast<int>(i)));
      }
      results.push_back(values_[result]);
    }
    absl::InlinedVector<const Buffer*, 4> operands;
    for (uint32_t operand : part.operands) operands.push_back(values_[operand]);
    if (part.loop != nullptr) return part.loop->Launch(context, operands, results);
    if (fused) return part.fused->kernel()->Launch(context, operands, results);
    const absl::Status launched =
        part.op->LaunchInto(context.account, operands, results, context.check, context.kept);
    if (!absl::IsInvalidArgument(launched)) return launched;
    return WithPrefix(launched, absl::StrCat(part.op->name(), ": "));
  }

  // Gives a result the memory of an output, that of an operand that isn't needed any more, or new
  // memory.
  absl::Status HoldResult(const LaunchContext& context, const Part& part, bool fused, int output) {
    const uint32_t result = part.results[output];
    if (made_in_[result] != kNoValue) {
      values_[result] = values_[made_in_[result]];
      return absl::OkStatus();
    }
    for (int i : part.reusable) {
      const BufferRef& operand = held_[part.operands[i]];
      const int in_place_output = fused ? part.fused->kernel()->in_place(i) : part.op->in_place(i);
      if (operand == nullptr || in_place_output != output ||
          operand->size_bytes() != specs_[result].size_bytes())
        continue;
      held_[result] = operand;
      values_[result] = operand.get();
      return absl::OkStatus();
    }
    TENSORD_ASSIGN_OR_RETURN(
        held_[result], AllocateFor(context.account, context.device, specs_[result].size_bytes()));
    values_[result] = held_[result].get();
    if (context.kept != nullptr) context.kept->push_back(held_[result]);
    return absl::OkStatus();
  }

  absl::Status HoldAlias(const Part& part) {
    const uint32_t result = part.results[0];
    // The operand was written into this output's memory.
    if (values_[result] != nullptr) return absl::OkStatus();
    held_[result] =
        BufferView::MakeUnowned(*values_[part.operands[0]], part.op->plan().alias_offset_bytes,
                                specs_[result].size_bytes());
    values_[result] = held_[result].get();
    return absl::OkStatus();
  }

  ChainKernels* const chains_;  // null: no part has `fused`
  const uint32_t num_inputs_;
  const std::vector<TensorSpec> specs_;  // of every value
  const std::vector<uint32_t> outputs_;
  const std::vector<Part> parts_;
  const std::vector<uint32_t> made_in_;
  // The buffers of the current launch, by value. Those that the launch has allocated are also in
  // held_.
  std::vector<Buffer*> values_;
  std::vector<BufferRef> held_;
};

class Composer {
 public:
  Composer(Composition built, DeviceSlot* slot, PreparedOpCache* prepared_ops, ChainKernels* chains,
           const BudgetRef& caller)
      : built_(std::make_shared<const Composition>(std::move(built))),
        slot_(slot),
        prepared_ops_(prepared_ops),
        chains_(chains),
        caller_(caller) {
    made_by_.assign(built_->specs.size(), kNoValue);
    readers_.resize(built_->specs.size());
    is_output_.assign(built_->specs.size(), false);
    for (uint32_t output : built_->outputs) is_output_[output] = true;
    needed_.assign(built_->steps.size(), false);
    uint32_t end = static_cast<uint32_t>(built_->specs.size());
    for (uint32_t i = static_cast<uint32_t>(built_->steps.size()); i-- > 0;) {
      const Composition::Step& step = built_->steps[i];
      made_by_[step.result] = i;
      needed_[i] = step.loop == nullptr && step.schema->value_checked;
      for (uint32_t value = step.result; value < end; ++value) {
        if (is_output_[value] || !readers_[value].empty()) needed_[i] = true;
      }
      end = step.result;
      if (!needed_[i]) continue;
      for (uint32_t operand : step.operands) readers_[operand].push_back(i);
    }
    same_memory_.resize(built_->specs.size());
    std::iota(same_memory_.begin(), same_memory_.end(), 0);
    made_in_.assign(built_->specs.size(), kNoValue);
  }

  absl::StatusOr<PreparedComposition> Prepare() {
    FindGroups();
    std::vector<Part> parts;
    for (uint32_t i = 0; i < built_->steps.size(); ++i) {
      if (group_of_[i] == i) TENSORD_RETURN_IF_ERROR(AddGroup(i, &parts));
    }
    SetLastUses(&parts);
    FindMadeIn(parts);
    return PreparedComposition{
        std::make_unique<ComposedKernel>(*built_, std::move(parts), std::move(made_in_), chains_),
        FusedStepsOfAll()};
  }

 private:
  bool IsNumber(uint32_t step) const {
    static const OpSchema* const kFull = FindOp("full");
    const Composition::Step& made = built_->steps[step];
    return made.schema == kFull && built_->specs[made.result].shape.rank() == 0;
  }

  bool ReadsNumber(uint32_t step) const {
    const auto& operands = built_->steps[step].operands;
    return std::any_of(operands.begin(), operands.end(), [this](uint32_t operand) {
      return made_by_[operand] != kNoValue && IsNumber(made_by_[operand]);
    });
  }

  bool IsElementwise(uint32_t step) const {
    const Composition::Step& made = built_->steps[step];
    return made.loop == nullptr && made.schema->elementwise.has_value() &&
           built_->specs[made.result].num_elements() > 0 &&
           !IsComplex(built_->specs[made.result].dtype);
  }

  // Sets group_of_[step] to the last step of the step's fusion group. Steps outside of the group
  // read only the result of this last step. A number that isn't an output is in no group, because
  // each group has its own copy of it.
  void FindGroups() {
    const auto count = static_cast<uint32_t>(built_->steps.size());
    group_of_.assign(count, kNoValue);
    for (uint32_t i = count; i-- > 0;) {
      if (!needed_[i] || (IsNumber(i) && !is_output_[built_->steps[i].result])) continue;
      group_of_[i] = FindGroup(i);
    }
  }

  uint32_t FindGroup(uint32_t step) const {
    const uint32_t result = built_->steps[step].result;
    if (!IsElementwise(step) || is_output_[result] || readers_[result].empty()) return step;
    const uint32_t group = group_of_[readers_[result].front()];
    for (uint32_t reader : readers_[result]) {
      if (group_of_[reader] != group) return step;
    }
    const Composition::Step& last = built_->steps[group];
    // A value of shape [] is computed once for all elements of the group.
    const Shape& shape = built_->specs[result].shape;
    const bool fits = shape.rank() == 0 || shape == built_->specs[last.result].shape;
    return IsElementwise(group) && fits ? group : step;
  }

  // Adds the parts that compute a group: one if the device has a kernel for it.
  absl::Status AddGroup(uint32_t last, std::vector<Part>* parts) {
    std::vector<uint32_t> steps;
    for (uint32_t i = 0; i <= last; ++i) {
      if (group_of_[i] == last) steps.push_back(i);
    }
    std::optional<Part> fused;
    const bool several = steps.size() > 1 || ReadsNumber(last);
    if (chains_ != nullptr && several && IsElementwise(last)) fused = Fuse(steps);
    if (!fused.has_value()) return AddOps(steps, parts);
    const FusedKernel& kernel = *fused->fused;
    if (!kernel.prepared() || kernel.kernel() == nullptr) {
      TENSORD_RETURN_IF_ERROR(AddOps(steps, &fused->ops));
    }
    parts->push_back(*std::move(fused));
    return absl::OkStatus();
  }

  absl::Status AddOps(absl::Span<const uint32_t> steps, std::vector<Part>* parts) {
    for (uint32_t step : steps) TENSORD_RETURN_IF_ERROR(AddOp(step, parts));
    return absl::OkStatus();
  }

  // The steps of a fusion group.
  struct GroupSteps {
    FusedSteps steps;
    std::vector<uint32_t> operands;  // the value that each operand >= 0 of a step is
    // These own what `steps` points to.
    std::shared_ptr<const Composition> built;
    std::vector<std::unique_ptr<const OpPlan>> plans;
  };

  // Returns null if an op can't be planned.
  std::shared_ptr<GroupSteps> StepsOf(absl::Span<const uint32_t> group) const {
    auto made = std::make_shared<GroupSteps>();
    made->built = built_;
    absl::flat_hash_map<uint32_t, int> place;  // of each value, as an operand of a step
    const auto place_of = [&](uint32_t value) {
      const auto [found, is_new] = place.try_emplace(value, 0);
      if (!is_new) return found->second;
      const uint32_t maker = made_by_[value];
      if (maker != kNoValue && IsNumber(maker)) {
        const Composition::Step& number = built_->steps[maker];
        made->steps.push_back({number.schema, &number.attrs, {}, built_->specs[value].dtype});
        return found->second = -static_cast<int>(made->steps.size());
      }
      made->operands.push_back(value);
      return found->second = static_cast<int>(made->operands.size()) - 1;
    };
    for (uint32_t number : group) {
      const Composition::Step& step = built_->steps[number];
      const auto specs = SpecsOf(step);
      absl::StatusOr<OpPlan> plan = PlanOp(step.schema->name, specs, step.attrs);
      if (!plan.ok()) return nullptr;
      made->plans.push_back(std::make_unique<const OpPlan>(*std::move(plan)));
      absl::InlinedVector<int, 3> operands;
      for (uint32_t operand : step.operands) operands.push_back(place_of(operand));
      place[step.result] = AppendSteps(*made->plans.back(), specs, operands, &made->steps);
    }
    return made;
  }

  // If the steps can't be one kernel, returns nullopt. If the kernel isn't compiled yet, returns a
  // part whose kernel is queued.
  std::optional<Part> Fuse(absl::Span<const uint32_t> group) const {
    std::shared_ptr<GroupSteps> made = StepsOf(group);
    if (made == nullptr || made->operands.empty() || made->operands.size() > kMaxFusedInputs) {
      return std::nullopt;
    }
    Part part;
    std::vector<TensorSpec> inputs;
    for (uint32_t operand : made->operands) {
      part.operands.push_back(operand);
      inputs.push_back(built_->specs[operand]);
    }
    const uint32_t result = built_->steps[group.back()].result;
    part.results.push_back(result);
    FusedSteps steps = std::move(made->steps);
    part.fused = std::make_shared<FusedKernel>(slot_, std::move(inputs), std::move(steps),
                                               built_->specs[result], std::move(made));
    if (chains_->PrepareOrQueue(part.fused) && part.fused->kernel() == nullptr) return std::nullopt;
    return part;
  }

  // If all needed steps are one group, returns its steps, with the inputs of the composition as
  // operands. Otherwise, or if a chain has no room for them, returns null.
  std::shared_ptr<const FusedSteps> FusedStepsOfAll() const {
    if (chains_ == nullptr || built_->outputs.size() != 1) return nullptr;
    const uint32_t last = made_by_[built_->outputs[0]];
    std::vector<uint32_t> group;
    for (uint32_t i = 0; i < group_of_.size(); ++i) {
      if (group_of_[i] == kNoValue) continue;
      if (group_of_[i] != last) return nullptr;
      group.push_back(i);
    }
    if (!IsElementwise(last)) return nullptr;
    std::shared_ptr<GroupSteps> made = StepsOf(group);
    if (made == nullptr || made->steps.size() >= ChainKernels::kMaxSteps) return nullptr;
    for (FusedSpec::Step& step : made->steps) {
      for (int& operand : step.operands) {
        if (operand >= 0) operand = static_cast<int>(made->operands[operand]);
      }
    }
    const FusedSteps* const steps = &made->steps;
    return std::shared_ptr<const FusedSteps>(std::move(made), steps);
  }

  absl::InlinedVector<TensorSpec, 3> SpecsOf(const Composition::Step& step) const {
    absl::InlinedVector<TensorSpec, 3> specs;
    for (uint32_t operand : step.operands) specs.push_back(built_->specs[operand]);
    return specs;
  }

  absl::Status AddOp(uint32_t number, std::vector<Part>* parts) {
    const Composition::Step& step = built_->steps[number];
    // Numbers are made where they are first used in `parts`.
    for (uint32_t operand : step.operands) {
      const uint32_t maker = made_by_[operand];
      if (maker == kNoValue || !IsNumber(maker)) continue;
      const bool made = std::any_of(parts->begin(), parts->end(),
                                    [&](const Part& part) { return part.results[0] == operand; });
      if (!made) TENSORD_RETURN_IF_ERROR(AddOp(maker, parts));
    }
    Part part;
    part.operands.assign(step.operands.begin(), step.operands.end());
    if (step.loop != nullptr) {
      TENSORD_ASSIGN_OR_RETURN(
          PreparedComposition body,
          Composer(step.loop->body, slot_, prepared_ops_, chains_, caller_).Prepare());
      part.loop = std::make_unique<LoopKernel>(step.loop, std::move(body.kernel));
      for (uint32_t i = 0; i < step.loop->body.outputs.size(); ++i) {
        part.results.push_back(step.result + i);
      }
      parts->push_back(std::move(part));
      return absl::OkStatus();
    }
    TENSORD_ASSIGN_OR_RETURN(
        part.op, prepared_ops_->Find(step.schema->name, SpecsOf(step), step.attrs, slot_, caller_));
    if (part.op->is_constant()) {
      return absl::UnimplementedError("a composition can't contain the op constant");
    }
    if (part.op->is_alias()) {
      TENSORD_RETURN_IF_ERROR(AddAlias(*part.op, step.operands[0], step.result));
    }
    for (size_t i = 0; i < part.op->outputs().size(); ++i) {
      part.results.push_back(step.result + static_cast<uint32_t>(i));
    }
    parts->push_back(std::move(part));
    return absl::OkStatus();
  }

  // Sets Part::last_uses and Part::reusable of all parts, and of the ops within them.
  void SetLastUses(std::vector<Part>* parts) const {
    // The value whose memory a value has: another one if it is an alias.
    std::vector<uint32_t> root(built_->specs.size());
    std::iota(root.begin(), root.end(), 0);
    std::vector<Part*> last(root.size(), nullptr);
    const auto use = [&](Part* part, Part* within) {
      if (part->op != nullptr && part->op->is_alias()) {
        root[part->results[0]] = root[part->operands[0]];
      }
      for (uint32_t value : part->operands) last[value] = last[root[value]] = within;
      for (uint32_t value : part->results) last[value] = last[root[value]] = within;
    };
    for (Part& part : *parts) {
      // If only the part's own ops use a value, the last of these ops frees it.
      for (Part& op : part.ops) use(&op, &op);
      use(&part, &part);
    }
    for (uint32_t value = built_->num_inputs; value < last.size(); ++value) {
      if (last[value] != nullptr && !is_output_[value]) last[value]->last_uses.push_back(value);
    }
    const auto find_reusable = [&](Part& part) {
      if (part.loop != nullptr) return;
      for (size_t i = 0; i < part.operands.size(); ++i) {
        const uint32_t value = part.operands[i];
        const bool is_last = absl::c_linear_search(part.last_uses, value) && root[value] == value;
        const auto num_sharing =
            absl::c_count_if(part.operands, [&](uint32_t other) { return root[other] == value; });
        if (is_last && num_sharing == 1) part.reusable.push_back(static_cast<int>(i));
      }
    };
    for (Part& part : *parts) {
      absl::c_for_each(part.ops, find_reusable);
      find_reusable(part);
    }
  }

  // Completes made_in_ with the operands of ops that write in place.
  void FindMadeIn(absl::Span<const Part> parts) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->op == nullptr) continue;
      absl::InlinedVector<bool, 2> taken(part->results.size(), false);
      for (int i : part->reusable) {
        const int output = part->op->in_place(i);
        // A schema may name outputs that this call doesn't have.
        if (output < 0 || output >= static_cast<int>(taken.size()) || taken[output]) continue;
        const uint32_t result = part->results[output], operand = part->operands[i];
        const uint32_t target = is_output_[result] ? result : made_in_[result];
        const bool fits = built_->specs[result].size_bytes() == built_->specs[operand].size_bytes();
        if (target == kNoValue || !fits || made_in_[operand] != kNoValue) continue;
        made_in_[operand] = target;
        taken[output] = true;
      }
    }
  }

  // Records that the result of an alias shares the memory of its operand. If the result is an
  // output, the op that computes the operand writes into the output's memory. If it can't, returns
  // UNIMPLEMENTED.
  absl::Status AddAlias(const PreparedOp& op, uint32_t operand, uint32_t result) {
    if (built_->specs[operand].size_bytes() == built_->specs[result].size_bytes()) {
      same_memory_[result] = same_memory_[operand];
    }
    if (!is_output_[result]) return absl::OkStatus();
    const uint32_t value = same_memory_[result];
    const bool can_write_to_output = value != result && value >= built_->num_inputs &&
                                     !is_output_[value] && made_in_[value] == kNoValue;
    if (!can_write_to_output) {
      return absl::UnimplementedError(
          absl::StrCat("an output of the composition is the result of ", op.name(),
                       ", which has no kernel, and no kernel can write its operand there"));
    }
    made_in_[value] = result;
    return absl::OkStatus();
  }

  const std::shared_ptr<const Composition> built_;
  DeviceSlot* const slot_;
  PreparedOpCache* const prepared_ops_;
  ChainKernels* const chains_;  // null: ops must not be fused
  const BudgetRef& caller_;
  std::vector<uint32_t> made_by_;               // by value: the step whose first result it is
  std::vector<std::vector<uint32_t>> readers_;  // by value: the needed steps that read it
  // By step: whether it checks values, or an output depends on it.
  std::vector<bool> needed_;
  std::vector<bool> is_output_;     // by value
  std::vector<uint32_t> group_of_;  // by step
  // By value: the value whose memory it shares completely, or itself.
  std::vector<uint32_t> same_memory_;
  std::vector<uint32_t> made_in_;  // the argument of ComposedKernel
};

}  // namespace

absl::StatusOr<PreparedComposition> PrepareComposition(
    const OpPlan& plan, absl::Span<const TensorSpec> inputs, DeviceSlot* slot,
    PreparedOpCache* prepared_ops, ChainKernels* chains, const BudgetRef& caller) {
  absl::InlinedVector<const TensorSpec*, 3> specs;
  for (const TensorSpec& input : inputs) specs.push_back(&input);
  TENSORD_ASSIGN_OR_RETURN(const BoundAttributes attrs,
                           BoundAttributes::Bind(*plan.schema, plan.attrs));
  TENSORD_ASSIGN_OR_RETURN(Composition built, Compose(*plan.schema, specs, attrs));
  return Composer(std::move(built), slot, prepared_ops, chains, caller).Prepare();
}

}  // namespace tensord::server
