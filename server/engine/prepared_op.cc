#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/device/stop_token.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/device_memory_limit.h"
#include "tensord/server/device/value_check.h"
#include "tensord/server/engine/composed_kernel.h"

namespace tensord::server {
namespace {

// Returns the estimated memory of the dimensions of a shape that don't fit into the object itself.
int64_t DimsBytes(const Shape& shape) {
  return shape.rank() > kInlineRank ? 16 + 8 * shape.rank() : 0;
}

}  // namespace

absl::StatusOr<PreparedOpRef> PreparedOp::Make(absl::string_view op,
                                               absl::Span<const TensorSpec> inputs,
                                               const Attributes& attrs, DeviceSlot* slot,
                                               const BudgetRef& caller,
                                               PreparedOpCache* prepared_ops,
                                               ChainKernels* chains) {
  auto prepared = std::make_shared<PreparedOp>();
  prepared->caller_ = caller;
  TENSORD_ASSIGN_OR_RETURN(prepared->plan_, PlanOp(op, inputs, attrs));
  prepared->slot_ = slot;
  prepared->inputs_.assign(inputs.begin(), inputs.end());
  TENSORD_RETURN_IF_ERROR(prepared->CheckSizes());
  TENSORD_RETURN_IF_ERROR(prepared->Prepare(prepared_ops, chains));
  prepared->host_bytes_ = prepared->EstimateHostBytes();
  return prepared;
}

absl::Status PreparedOp::ChargeCaller() {
  BudgetRef caller = caller_.lock();
  if (caller == nullptr) return absl::OkStatus();
  charge_ = Charge(std::move(caller));
  return charge_.Add(host_bytes_);
}

void PreparedOp::ChargeCallerPastLimit() {
  BudgetRef caller = caller_.lock();
  if (caller == nullptr) return;
  charge_ = Charge(std::move(caller));
  charge_.AddPastLimit(host_bytes_);
}

int64_t PreparedOp::EstimateHostBytes() const {
  // A kernel's object, with the values that it computes in advance and its copy of the attributes.
  constexpr int64_t kKernelBytes = 1536;
  // The kernel's copy of a spec, its operand and the entry of casts_.
  constexpr int64_t kKernelInputBytes = sizeof(TensorSpec) + 48;
  const auto attrs_bytes = static_cast<int64_t>(plan_.attrs.AllocatedBytes());
  int64_t bytes = sizeof(PreparedOp) + attrs_bytes;
  for (const TensorSpec& output : plan_.outputs) {
    bytes += sizeof(TensorSpec) + DimsBytes(output.shape);
  }
  for (const TensorSpec& input : inputs_) bytes += sizeof(TensorSpec) + DimsBytes(input.shape);
  if (kernel_ == nullptr) return bytes;
  if (fused_steps_ != nullptr) {
    // A step, and the plan of its op.
    constexpr int64_t kFusedStepBytes = sizeof(FusedSpec::Step) + 512;
    bytes += kFusedStepBytes * static_cast<int64_t>(fused_steps_->size());
  }
  bytes += kKernelBytes + attrs_bytes + kernel_->host_bytes();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    bytes += kKernelInputBytes + DimsBytes(inputs_[i].shape);
    if (casts_[i] != nullptr) bytes += kKernelBytes + casts_[i]->host_bytes();
  }
  return bytes;
}

absl::Status PreparedOp::CheckSizes() const {
  const auto check = [this](absl::string_view role, const TensorSpec& spec) {
    const absl::Status fits = CheckFitsLimit(*slot_->device, spec.size_bytes());
    if (fits.ok()) return fits;
    return WithPrefix(fits, absl::StrCat(name(), ": ", role, " ", spec.ToString(), ": "));
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TENSORD_RETURN_IF_ERROR(check("the input", inputs_[i]));
    const TensorSpec read_as = {plan_.input_dtypes[i], inputs_[i].shape};
    TENSORD_RETURN_IF_ERROR(check("the converted input", read_as));
  }
  for (const TensorSpec& output : plan_.outputs) {
    TENSORD_RETURN_IF_ERROR(check("the result", output));
  }
  return absl::OkStatus();
}

absl::Status PreparedOp::Prepare(PreparedOpCache* prepared_ops, ChainKernels* chains) {
  Device& device = *slot_->device;
  constant_ = plan_.schema->name == "constant";
  may_run_inline_ = device.host_accessible();
  const bool empty = absl::c_all_of(
      plan_.outputs, [](const TensorSpec& output) { return output.num_elements() == 0; });
  // A kernel that checks values has values to check even if its results are empty.
  const bool checks_values =
      plan_.schema->value_checked && inputs_.size() > 1 && inputs_[1].num_elements() > 0;
  if (constant_ || plan_.alias || (empty && !checks_values)) return absl::OkStatus();

  static const OpSchema* const kCast = FindOp("cast");
  absl::InlinedVector<TensorSpec, 3> read_as(inputs_.begin(), inputs_.end());
  casts_.resize(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    read_as[i].dtype = plan_.input_dtypes[i];
    if (read_as[i] == inputs_[i] || inputs_[i].num_elements() == 0) continue;
    const Attributes attrs{{"dtype", read_as[i].dtype}};
    TENSORD_ASSIGN_OR_RETURN(casts_[i],
                             device.Prepare({kCast, &attrs, absl::MakeConstSpan(&inputs_[i], 1),
                                             absl::MakeConstSpan(&read_as[i], 1)}));
    may_run_inline_ = may_run_inline_ && casts_[i]->runs_inline();
    has_casts_ = true;
  }
  if (plan_.schema->formula != nullptr) {
    TENSORD_ASSIGN_OR_RETURN(
        PreparedComposition composition,
        PrepareComposition(plan_, inputs_, slot_, prepared_ops, chains, caller_.lock()));
    kernel_ = std::move(composition.kernel);
    fused_steps_ = std::move(composition.fused_steps);
  } else {
    TENSORD_ASSIGN_OR_RETURN(kernel_,
                             device.Prepare({plan_.schema, &plan_.attrs, read_as, plan_.outputs}));
  }
  may_run_inline_ = may_run_inline_ && kernel_->runs_inline();
  reports_values_ = plan_.schema->value_checked && device.defers_checks();
  return absl::OkStatus();
}

absl::Status PreparedOp::BadValueError(const CheckRecord& record) const {
  if (plan_.schema->formula != nullptr) return kernel_->BadValueError(record);
  return BadIndexError(record, inputs_[InputOfKey(record.key)].shape);
}

absl::StatusOr<CheckCell> PreparedOp::MakeCheck(ValueCheckRefs* checks, bool in_program) {
  if (!reports_values_) return CheckCell();
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<CheckMemory> memory, slot_->device->MakeCheckMemory());
  const auto describe = [op = shared_from_this(), in_program](const CheckRecord& record) {
    const absl::Status error = op->BadValueError(record);
    return in_program ? WithPrefix(error, absl::StrCat(op->name(), ": ")) : error;
  };
  checks->push_back(std::make_shared<ValueCheck>(std::move(memory), describe));
  return checks->back()->cell();
}

BufferRef PreparedOp::Alias(const BufferRef& input) const {
  const int64_t bytes = output().size_bytes();
  if (bytes == input->size_bytes()) return input;
  return BufferView::Make(input, plan_.alias_offset_bytes, bytes);
}

BufferRef PreparedOp::ReusableInput(const MemoryAccount& account,
                                    absl::Span<const TensorRef> inputs, int output) const {
  if (kernel_ == nullptr) return nullptr;
  const int64_t bytes = plan_.outputs[output].size_bytes();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool fits =
        kernel_->in_place(static_cast<int>(i)) == output && inputs[i].use_count() == 1;
    if (!fits || inputs[i]->buffer()->size_bytes() != bytes) continue;
    const BufferRef& buffer = inputs[i]->buffer();
    if (buffer.use_count() == 1 && buffer->account() == &account) return buffer;
  }
  return nullptr;
}

absl::StatusOr<BufferRef> PreparedOp::MakeOutput(MemoryAccount& account,
                                                 absl::Span<const TensorRef> inputs,
                                                 int output) const {
  BufferRef reused = ReusableInput(account, inputs, output);
  if (reused != nullptr) return reused;
  return AllocateFor(account, *slot_->device, plan_.outputs[output].size_bytes());
}

absl::StatusOr<BufferRef> PreparedOp::RunSingle(MemoryAccount& account,
                                                absl::Span<const TensorRef> inputs,
                                                ValueCheckRefs* checks) {
  if (plan_.alias) return Alias(inputs[0]->buffer());
  if (constant_) return MakeConstant(account);
  TENSORD_ASSIGN_OR_RETURN(BufferRef output, MakeOutput(account, inputs, 0));
  if (kernel_ == nullptr) return output;
  absl::InlinedVector<const Buffer*, 3> operands;
  for (const TensorRef& input : inputs) operands.push_back(input->buffer().get());
  Buffer* const result = output.get();
  TENSORD_ASSIGN_OR_RETURN(const CheckCell check, MakeCheck(checks, /*in_program=*/false));
  TENSORD_RETURN_IF_ERROR(LaunchInto(account, operands, absl::MakeConstSpan(&result, 1), check));
  return output;
}

absl::StatusOr<BufferRefs> PreparedOp::Run(MemoryAccount& account,
                                           absl::Span<const TensorRef> inputs,
                                           ValueCheckRefs* checks) {
  BufferRefs outputs;
  if (plan_.outputs.size() == 1) {
    TENSORD_ASSIGN_OR_RETURN(BufferRef output, RunSingle(account, inputs, checks));
    outputs.push_back(std::move(output));
    return outputs;
  }
  absl::InlinedVector<Buffer*, 3> results;
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    TENSORD_ASSIGN_OR_RETURN(BufferRef output, MakeOutput(account, inputs, static_cast<int>(i)));
    results.push_back(output.get());
    outputs.push_back(std::move(output));
  }
  absl::InlinedVector<const Buffer*, 3> operands;
  for (const TensorRef& input : inputs) operands.push_back(input->buffer().get());
  TENSORD_ASSIGN_OR_RETURN(const CheckCell check, MakeCheck(checks, /*in_program=*/false));
  TENSORD_RETURN_IF_ERROR(LaunchInto(account, operands, results, check));
  return outputs;
}

absl::Status PreparedOp::LaunchInto(MemoryAccount& account, absl::Span<const Buffer* const> inputs,
                                    absl::Span<Buffer* const> outputs, const CheckCell& check,
                                    std::vector<BufferRef>* kept) {
  if (kernel_ == nullptr) return absl::OkStatus();
  // A kernel isn't reentrant. A short task may launch any kernel that runs inline. So such kernels
  // must not yield.
  const YieldScope scope(may_run_inline_ ? nullptr : YieldScope::Current());
  if (launching_)
    return absl::InternalError(absl::StrCat(name(), ": its kernel already runs here"));
  launching_ = true;
  const absl::Cleanup launched = [this] { launching_ = false; };
  const LaunchContext context = {account, *slot_->device, check, kept};
  if (!has_casts_) return kernel_->Launch(context, inputs, outputs);
  absl::InlinedVector<const Buffer*, 3> operands(inputs.begin(), inputs.end());
  absl::InlinedVector<BufferRef, 3> cast_buffers;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (casts_[i] == nullptr) continue;
    TENSORD_ASSIGN_OR_RETURN(BufferRef cast, Cast(account, i, *operands[i]));
    operands[i] = cast.get();
    if (kept != nullptr) kept->push_back(cast);
    cast_buffers.push_back(std::move(cast));
  }
  return kernel_->Launch(context, operands, outputs);
}

absl::StatusOr<BufferRef> PreparedOp::Cast(MemoryAccount& account, size_t input,
                                           const Buffer& from) {
  const int64_t bytes = inputs_[input].num_elements() * SizeOf(plan_.input_dtypes[input]);
  TENSORD_ASSIGN_OR_RETURN(BufferRef cast, AllocateFor(account, *slot_->device, bytes));
  const Buffer* source = &from;
  TENSORD_RETURN_IF_ERROR(casts_[input]->Launch({account, *slot_->device},
                                                absl::MakeConstSpan(&source, 1), cast.get()));
  return cast;
}

absl::StatusOr<BufferRef> PreparedOp::MakeConstant(MemoryAccount& account) {
  const std::string& data = plan_.attrs.Data("data");
  const auto bytes = static_cast<int64_t>(data.size());
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, AllocateFor(account, *slot_->device, bytes));
  if (bytes > 0) {
    TENSORD_RETURN_IF_ERROR(slot_->device->Write(*buffer, 0, data.data(), bytes));
  }
  return buffer;
}

absl::Status CheckNumOutputs(const PreparedOp& op, size_t num_outputs) {
  const size_t has = op.outputs().size();
  if (has == num_outputs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op.name(), ": has ", has, has == 1 ? " output" : " outputs",
                   " for these inputs and attributes, and num_outputs is ", num_outputs));
}

}  // namespace tensord::server
