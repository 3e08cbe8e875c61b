#include "tensord/client/internal/recorder.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {

Tensor Recorder::MakePlaceholder(uint32_t value, const TensorSpec& spec) {
  return Tensor(std::make_shared<TensorState>(shared_from_this(), value, device_.session(), spec,
                                              device_.id()));
}

Tensor Recorder::AddInput(const TensorSpec& spec) {
  uint32_t value = 0;
  {
    MutexLock lock(&mu_);
    value = num_inputs_++;
  }
  return MakePlaceholder(value, spec);
}

absl::StatusOr<uint32_t> Recorder::ValueOf(const Tensor& tensor) {
  TENSORD_RETURN_IF_ERROR(tensor.status());
  const TensorState& state = *tensor.state();
  if (state.recorder.get() == this) return state.value;
  if (state.recorder != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        tensor.Describe(), " is a value of another program; use it only in that program"));
  }
  if (state.session != device_.session()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.Describe(), " belongs to another connection, at ",
                     state.session->address(), "; copy it to ", device_.name(), " first"));
  }
  const auto [number, is_new] =
      captured_numbers_.try_emplace(state.handle, kCaptured + captured_.size());
  if (is_new) captured_.push_back(tensor);
  return number->second;
}

absl::StatusOr<Tensors> Recorder::Record(absl::string_view op,
                                         absl::Span<const Tensor* const> inputs,
                                         const Attributes& attrs) {
  absl::InlinedVector<const TensorSpec*, 3> specs;
  for (const Tensor* input : inputs) specs.push_back(&input->spec());
  OutputSpecs outputs;
  TENSORD_RETURN_IF_ERROR(InferOutputs(op, specs, attrs, &outputs));
  for (const TensorSpec& output : outputs) {
    TENSORD_RETURN_IF_ERROR(device_.session()->CheckDType(op, output.dtype));
  }
  uint32_t value = 0;
  {
    MutexLock lock(&mu_);
    if (closed_) {
      return absl::FailedPreconditionError(absl::StrCat(
          op, ": an input is a value of a program whose recording has ended; call Program::Run"));
    }
    ProgramOp recorded{.op = FindOp(op)->name,
                       .attrs = attrs,
                       .num_outputs = static_cast<uint32_t>(outputs.size())};
    for (const Tensor* input : inputs) {
      TENSORD_ASSIGN_OR_RETURN(const uint32_t operand, ValueOf(*input));
      recorded.operands.push_back(operand);
    }
    ops_.push_back(std::move(recorded));
    value = num_inputs_ + num_results_;
    num_results_ += static_cast<uint32_t>(outputs.size());
  }
  Tensors placeholders;
  for (const TensorSpec& output : outputs) {
    placeholders.push_back(MakePlaceholder(value++, output));
  }
  return placeholders;
}

void Recorder::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
}

uint32_t Recorder::Renumber(uint32_t value) const {
  if (value >= kCaptured) return num_inputs_ + (value - kCaptured);
  if (value < num_inputs_) return value;
  return value + static_cast<uint32_t>(captured_.size());
}

absl::StatusOr<Recorder::Recorded> Recorder::Finish(absl::Span<const Tensor> outputs) {
  MutexLock lock(&mu_);
  Recorded recorded;
  std::vector<uint32_t> values;
  for (const Tensor& output : outputs) {
    TENSORD_ASSIGN_OR_RETURN(const uint32_t value, ValueOf(output));
    values.push_back(value);
  }
  for (uint32_t value : values) recorded.outputs.push_back(Renumber(value));
  recorded.ops = ops_;
  for (ProgramOp& op : recorded.ops) {
    for (uint32_t& operand : op.operands) operand = Renumber(operand);
  }
  recorded.captured = captured_;
  return recorded;
}

}  // namespace tensord::internal
