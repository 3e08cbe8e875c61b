#include "tensord/client/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/recorder.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

namespace internal {

struct ProgramState {
  ProgramState() = default;
  ~ProgramState() {
    if (number != 0) device.session()->DropProgram(number);
  }
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  Device device;
  uint32_t number = 0;  // on the stream; 0: not sent
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<Tensor> captured;
  int64_t num_ops = 0;
};

}  // namespace internal

namespace {

const internal::ProgramState& NoProgram() {
  static const auto* const none = new internal::ProgramState;
  return *none;
}

absl::Status CheckCaptured(absl::Span<const Tensor> captured, const Device& device) {
  for (const Tensor& tensor : captured) {
    if (tensor.device() == device) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("program: it runs on ", device.name(), " and uses ", tensor.Describe(),
                     "; copy that tensor to ", device.name(), " before Program::Record"));
  }
  return absl::OkStatus();
}

// Returns the error of a tensor that the program reads and that was donated since the recording.
absl::Status CheckCapturedTensors(const internal::ProgramState& program) {
  for (const Tensor& tensor : program.captured) {
    if (!tensor.ok()) return WithPrefix(tensor.status(), "program: a tensor that it reads: ");
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const internal::ProgramState& program, absl::Span<const Tensor> inputs) {
  if (!program.device.valid())
    return absl::FailedPreconditionError("an empty Program: use Program::Record");
  if (inputs.size() != program.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("program: got ", inputs.size(),
                                                   " inputs; the recorded number of inputs is ",
                                                   program.inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    TENSORD_RETURN_IF_ERROR(inputs[i].status());
    if (inputs[i].spec() != program.inputs[i] || inputs[i].device() != program.device) {
      return absl::InvalidArgumentError(
          absl::StrCat("program: input ", i, " is ", inputs[i].Describe(), "; it was recorded for ",
                       program.inputs[i].ToString(), " on ", program.device.name()));
    }
    if (inputs[i].state()->recorder != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("program: input ", i, " is a value of a program that is being recorded"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> Program::Record(const Device& device, std::vector<TensorSpec> inputs,
                                        const Body& body) {
  if (internal::InForkedChild()) return internal::ForkedError();
  if (!device.valid()) {
    return absl::FailedPreconditionError("program: no device: get one from a connected client");
  }
  const auto recorder = std::make_shared<internal::Recorder>(device);
  std::vector<Tensor> placeholders;
  for (const TensorSpec& input : inputs) {
    TENSORD_RETURN_IF_ERROR(input.Validate());
    TENSORD_RETURN_IF_ERROR(device.session()->CheckDType("program", input.dtype));
    placeholders.push_back(recorder->AddInput(input));
  }
  const std::vector<Tensor> outputs = body(placeholders);
  recorder->Close();
  if (outputs.empty()) return absl::InvalidArgumentError("program: the body returned no tensors");
  TENSORD_ASSIGN_OR_RETURN(internal::Recorder::Recorded recorded, recorder->Finish(outputs));
  TENSORD_RETURN_IF_ERROR(CheckCaptured(recorded.captured, device));

  auto state = std::make_shared<internal::ProgramState>();
  state->device = device;
  state->inputs = std::move(inputs);
  for (const Tensor& output : outputs) state->outputs.push_back(output.spec());
  std::vector<TensorSpec> all_inputs = state->inputs;
  for (const Tensor& tensor : recorded.captured) all_inputs.push_back(tensor.spec());
  TENSORD_ASSIGN_OR_RETURN(
      state->number,
      device.session()->SendProgram(device.id(), all_inputs, recorded.ops, recorded.outputs));
  state->captured = std::move(recorded.captured);
  state->num_ops = static_cast<int64_t>(recorded.ops.size());
  return Program(std::move(state));
}

std::vector<Tensor> Program::Run(absl::Span<const Tensor> inputs) const {
  const internal::ProgramState& program = state_ == nullptr ? NoProgram() : *state_;
  const size_t num_outputs = std::max<size_t>(1, program.outputs.size());
  absl::Status status = CheckInputs(program, inputs);
  if (status.ok()) status = CheckCapturedTensors(program);
  std::vector<uint64_t> handles;
  if (status.ok()) {
    std::vector<uint64_t> input_handles;
    for (const Tensor& input : inputs) {
      input_handles.push_back(internal::InputHandle(input.state()));
    }
    for (const Tensor& tensor : program.captured) {
      input_handles.push_back(internal::InputHandle(tensor.state()));
    }
    status =
        program.device.session()->SendRun(program.number, input_handles, num_outputs, &handles);
  }
  if (!status.ok()) return std::vector<Tensor>(num_outputs, Tensor::Failed(status));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs.push_back(Tensor(std::make_shared<internal::TensorState>(
        program.device.session(), handles[i], program.outputs[i], program.device.id())));
  }
  return outputs;
}

const std::vector<TensorSpec>& Program::inputs() const {
  return (state_ == nullptr ? NoProgram() : *state_).inputs;
}
const std::vector<TensorSpec>& Program::outputs() const {
  return (state_ == nullptr ? NoProgram() : *state_).outputs;
}
int64_t Program::num_ops() const { return state_ == nullptr ? 0 : state_->num_ops; }

}  // namespace tensord
