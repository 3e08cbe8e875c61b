#include "tensord/server/engine/program.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server {
namespace {

// The memory of values up to this size is kept between runs.
constexpr int64_t kMaxKeptBytes = 16 << 10;
// The limits of a program that runs inline: the bytes that it reads and writes, and its steps.
constexpr int64_t kMaxInlineBytes = 1 << 20;
constexpr size_t kMaxInlineSteps = 2048;

constexpr uint32_t kNever = ~uint32_t{0};

}  // namespace

absl::StatusOr<std::shared_ptr<Program>> Program::Make(const ProgramSpec& spec, DeviceSlot* slot,
                                                       MemoryAccount& account,
                                                       const BudgetRef& host,
                                                       PreparedOpCache* prepared_ops,
                                                       ChainKernels* chains, bool graphs) {
  auto program = std::make_shared<Program>();
  program->slot_ = slot;
  for (const TensorSpec& input : spec.inputs) TENSORD_RETURN_IF_ERROR(input.Validate());
  program->inputs_ = program->specs_ = spec.inputs;
  if (spec.steps.size() > ProgramSpec::kMaxSteps) {
    return absl::InvalidArgumentError(absl::StrCat("a program has at most ", ProgramSpec::kMaxSteps,
                                                   " ops, not ", spec.steps.size(), "; split it"));
  }
  program->charge_ = Charge(host);
  TENSORD_RETURN_IF_ERROR(program->charge_.Add(HostBytesFor(spec)));
  for (const ProgramSpec::Step& step : spec.steps) {
    const absl::Status added = program->AddStep(step, prepared_ops);
    if (!added.ok()) {
      return WithPrefix(added, absl::StrCat("op ", program->steps_.size(), " of a program: "));
    }
  }
  TENSORD_RETURN_IF_ERROR(program->CheckOutputs(spec.outputs));
  program->may_run_inline_ = program->IsSmall() && slot->device->host_accessible();
  if (chains != nullptr) {
    program->steps_ =
        FuseSteps(std::move(program->steps_), spec.inputs.size(), spec.outputs, chains);
  }
  for (const ProgramStep& step : program->steps_) program->may_run_inline_ &= step.runs_inline();
  TENSORD_RETURN_IF_ERROR(program->PlanMemory(account));
  if (graphs) {
    program->graph_ = ProgramGraph::Make({slot, spec.inputs.size(), program->specs_,
                                          program->places_, program->steps_, program->outputs_});
  }
  return program;
}

int64_t Program::HostBytesFor(const ProgramSpec& spec) {
  // kStepBytes counts the step, its first result, a part of a fused kernel, and a buffer that is
  // kept. The constants allow for vectors, which double their memory when they grow.
  constexpr int64_t kStepBytes = 768, kResultBytes = 256, kOperandBytes = 16;
  constexpr int64_t kInputBytes = 512, kOutputBytes = 16;
  int64_t bytes = sizeof(Program) + kInputBytes * static_cast<int64_t>(spec.inputs.size()) +
                  kOutputBytes * static_cast<int64_t>(spec.outputs.size());
  for (const ProgramSpec::Step& step : spec.steps) {
    bytes += kStepBytes + kResultBytes * (int64_t{step.num_results} - 1) +
             kOperandBytes * static_cast<int64_t>(step.operands.size());
  }
  return bytes;
}

absl::Status Program::AddStep(const ProgramSpec::Step& step, PreparedOpCache* prepared_ops) {
  absl::InlinedVector<TensorSpec, 3> operands;
  for (uint32_t value : step.operands) {
    if (value >= specs_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(step.op, " reads value ", value, ", but only ",
                                                     specs_.size(), " exist so far"));
    }
    operands.push_back(specs_[value]);
  }
  TENSORD_ASSIGN_OR_RETURN(PreparedOpRef op, prepared_ops->Find(step.op, operands, *step.attrs,
                                                                slot_, charge_.budget()));
  TENSORD_RETURN_IF_ERROR(CheckNumOutputs(*op, step.num_results));
  op->PrepareFully();  // a graph must record the fused kernels
  const auto result = static_cast<uint32_t>(specs_.size());
  specs_.insert(specs_.end(), op->outputs().begin(), op->outputs().end());
  steps_.push_back({std::move(op), nullptr, result, step.operands, {}});
  return absl::OkStatus();
}

absl::Status Program::CheckOutputs(const std::vector<uint32_t>& outputs) {
  for (uint32_t output : outputs) {
    if (output < specs_.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a program has output ", output, ", but only ", specs_.size(), " values"));
  }
  if (outputs.empty()) return absl::InvalidArgumentError("a program must have an output");
  outputs_ = outputs;
  return absl::OkStatus();
}

absl::Status Program::PlanMemory(MemoryAccount& account) {
  // root[v] is the value that owns the memory of value v: another value if v is an alias.
  // last_use[root] is the last step that uses that memory.
  std::vector<uint32_t> root(specs_.size());
  for (uint32_t value = 0; value < root.size(); ++value) root[value] = value;
  std::vector<uint32_t> last_use(specs_.size(), kNever);
  std::vector<bool> escapes(specs_.size(), false);
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> aliases;  // by root
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].op->is_alias()) {
      root[steps_[i].result] = root[steps_[i].operands[0]];
      aliases[root[steps_[i].result]].push_back(steps_[i].result);
    }
    for (uint32_t result : steps_[i].results()) last_use[root[result]] = i;
    for (uint32_t operand : steps_[i].operands) last_use[root[operand]] = i;
  }
  for (uint32_t output : outputs_) escapes[root[output]] = true;

  places_.assign(specs_.size(), ValuePlace::kInput);
  values_.assign(specs_.size(), nullptr);
  held_.assign(specs_.size(), nullptr);
  absl::flat_hash_map<int64_t, std::vector<BufferRef>> free;  // kept memory by size
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    absl::InlinedVector<uint32_t, 4> used;
    for (uint32_t result : steps_[i].results()) {
      const int64_t bytes = specs_[result].size_bytes();
      if (root[result] == result) {
        const bool kept =
            !escapes[result] && bytes <= kMaxKeptBytes && !steps_[i].op->is_constant();
        places_[result] = kept ? ValuePlace::kKept : ValuePlace::kAllocated;
      }
      if (places_[result] == ValuePlace::kKept) {
        TENSORD_RETURN_IF_ERROR(AssignPersistent(account, result, &free[bytes]));
      } else {
        holding_.push_back(result);
      }
      used.push_back(root[result]);
    }
    for (uint32_t operand : steps_[i].operands) used.push_back(root[operand]);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (uint32_t value : used) {
      if (last_use[value] != i || escapes[value]) continue;
      if (places_[value] == ValuePlace::kKept) {
        free[specs_[value].size_bytes()].push_back(held_[value]);
      } else if (places_[value] == ValuePlace::kAllocated) {
        steps_[i].last_uses.push_back(value);
        if (const auto of_value = aliases.find(value); of_value != aliases.end()) {
          steps_[i].old_aliases.insert(steps_[i].old_aliases.end(), of_value->second.begin(),
                                       of_value->second.end());
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Program::AssignPersistent(MemoryAccount& account, uint32_t value,
                                       std::vector<BufferRef>* free) {
  if (free->empty()) {
    TENSORD_ASSIGN_OR_RETURN(held_[value],
                             AllocateFor(account, *slot_->device, specs_[value].size_bytes()));
  } else {
    held_[value] = std::move(free->back());
    free->pop_back();
  }
  values_[value] = held_[value].get();
  kept_.push_back(value);
  return absl::OkStatus();
}

absl::Status Program::RenewMemory(MemoryAccount& account) {
  if (kept_.empty() || values_[kept_.back()]->device().loss() == nullptr) return absl::OkStatus();
  absl::flat_hash_map<const Buffer*, BufferRef> renewed;
  for (uint32_t value : kept_) {
    BufferRef& buffer = renewed[values_[value]];
    if (buffer != nullptr) continue;
    TENSORD_ASSIGN_OR_RETURN(buffer,
                             AllocateFor(account, *slot_->device, values_[value]->size_bytes()));
  }
  for (uint32_t value : kept_) {
    held_[value] = renewed[values_[value]];
    values_[value] = held_[value].get();
  }
  return absl::OkStatus();
}

bool Program::IsSmall() const {
  int64_t bytes = 0;
  for (const ProgramStep& step : steps_) {
    for (uint32_t operand : step.operands) bytes += specs_[operand].size_bytes();
    for (const TensorSpec& output : step.op->outputs()) bytes += output.size_bytes();
  }
  return steps_.size() <= kMaxInlineSteps && bytes <= kMaxInlineBytes;
}

absl::StatusOr<BufferRefs> Program::Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                        ValueCheckRefs* checks) {
  TENSORD_RETURN_IF_ERROR(RenewMemory(account));
  if (graph_ != nullptr) {
    TENSORD_ASSIGN_OR_RETURN(BufferRefs results, graph_->Run(account, inputs, values_, checks));
    if (!results.empty()) return results;
  }
  absl::Status status;
  for (size_t i = 0; i < inputs.size(); ++i) values_[i] = inputs[i]->buffer().get();
  for (const ProgramStep& step : steps_) {
    status = CheckStop();
    if (status.ok()) status = RunStep(account, step, inputs, checks);
    if (!status.ok()) break;
    for (uint32_t value : step.last_uses) held_[value] = nullptr;
    for (uint32_t value : step.old_aliases) held_[value] = nullptr;
  }
  BufferRefs results;
  for (size_t i = 0; status.ok() && i < outputs_.size(); ++i) {
    const BufferRef& held = held_[outputs_[i]];
    results.push_back(held != nullptr ? held : inputs[outputs_[i]]->buffer());
  }
  for (uint32_t value : holding_) held_[value] = nullptr;
  if (!status.ok()) return status;
  return results;
}

void Program::Hold(uint32_t value, BufferRef buffer) {
  values_[value] = buffer.get();
  held_[value] = std::move(buffer);
}

absl::Status Program::RunStep(MemoryAccount& account, const ProgramStep& step,
                              absl::Span<const TensorRef> inputs, ValueCheckRefs* checks) {
  PreparedOp& op = *step.op;
  if (op.is_alias()) {
    const uint32_t source = step.operands[0];
    Hold(step.result, op.Alias(source < inputs.size() ? inputs[source]->buffer() : held_[source]));
    return absl::OkStatus();
  }
  if (op.is_constant()) {
    TENSORD_ASSIGN_OR_RETURN(BufferRef constant, op.MakeConstant(account));
    Hold(step.result, std::move(constant));
    return absl::OkStatus();
  }
  return LaunchStep(account, step, checks);
}

absl::Status Program::LaunchStep(MemoryAccount& account, const ProgramStep& step,
                                 ValueCheckRefs* checks) {
  absl::InlinedVector<Buffer*, 2> results;
  for (uint32_t result : step.results()) {
    if (places_[result] == ValuePlace::kAllocated) {
      TENSORD_ASSIGN_OR_RETURN(BufferRef memory,
                               AllocateFor(account, *slot_->device, specs_[result].size_bytes()));
      Hold(result, std::move(memory));
    }
    results.push_back(values_[result]);
  }
  absl::InlinedVector<const Buffer*, 3> operands;
  for (uint32_t operand : step.operands) operands.push_back(values_[operand]);
  PreparedOp& op = *step.op;
  TENSORD_ASSIGN_OR_RETURN(const CheckCell check, op.MakeCheck(checks, /*in_program=*/true));
  const absl::Status launched =
      step.chain != nullptr ? step.chain->Launch({account, *slot_->device}, operands, results)
                            : op.LaunchInto(account, operands, results, check);
  // A bad value gives INVALID_ARGUMENT. The error then names the op, as in MakeCheck().
  if (absl::IsInvalidArgument(launched)) return WithPrefix(launched, absl::StrCat(op.name(), ": "));
  return launched;
}

}  // namespace tensord::server
