#include "tensord/client/internal/enqueue.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/recorder.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/op_words.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

template <typename T>
using PerInput = absl::InlinedVector<T, 3>;

// A program runs on one device, and its placeholders can't be copied while it is recorded. So the
// error says how to copy the tensor that isn't a placeholder.
absl::Status CheckRecordedDevice(absl::string_view op, absl::Span<const Tensor* const> inputs) {
  const auto recorded = std::find_if(inputs.begin(), inputs.end(), [](const Tensor* input) {
    return input->state()->recorder != nullptr;
  });
  if (recorded == inputs.end()) return absl::OkStatus();
  const std::string device = (*recorded)->device().name();
  for (const Tensor* input : inputs) {
    if (input->device() == (*recorded)->device()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": the program that is being recorded runs on ", device, ", and ",
                     input->Describe(), " is on ", input->device().name(),
                     input->state()->recorder == nullptr
                         ? absl::StrCat("; copy that to ", device, " before Program::Record")
                         : std::string("; it is a value of another program")));
  }
  return absl::OkStatus();
}

// For a cluster, returns "": the name of the device contains the server's name.
std::string AtServer(const TensorState& state) {
  return state.session->label().empty() ? absl::StrCat(" at ", state.session->address()) : "";
}

absl::Status DifferentSessions(absl::string_view op, const Tensor& a, const Tensor& b) {
  const TensorState& first = *a.state();
  const TensorState& second = *b.state();
  if (first.session->address() == second.session->address()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": inputs belong to two connections to the server at ",
                     first.session->address(), ": ", a.Describe(), " and ", b.Describe(),
                     "; make both through one Client, or copy one first: b.To(a.device())"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": inputs are on different devices: ", a.Describe(), AtServer(first),
                   " and ", b.Describe(), AtServer(second), "; copy one first: b.To(a.device())"));
}

// Returns the error of inputs for which SameSessionAndDevice is false.
absl::Status CheckInputs(absl::string_view op, absl::Span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) TENSORD_RETURN_IF_ERROR(input->status());
  const TensorState& first = *inputs[0]->state();
  PerInput<NamedInput> named;
  for (const Tensor* input : inputs) {
    const TensorState& state = *input->state();
    if (state.session != first.session) return DifferentSessions(op, *inputs[0], *input);
    named.push_back({state.handle, &state.spec, state.device});
  }
  TENSORD_RETURN_IF_ERROR(CheckRecordedDevice(op, inputs));
  return CheckSameDevice(op, named);
}

bool SameSessionAndDevice(absl::Span<const Tensor* const> inputs) {
  const TensorState* first = inputs[0]->state().get();
  if (first == nullptr) return false;
  for (const Tensor* input : inputs) {
    const TensorState* state = input->state().get();
    if (state == nullptr || !state->status.ok() || state->session != first->session ||
        state->device != first->device ||
        state->donated_to.load(std::memory_order_relaxed) != nullptr) {
      return false;
    }
  }
  return true;
}

// Returns the recorder of the program of which an input is a placeholder; null if there is none.
Recorder* RecorderOf(absl::Span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) {
    if (input->state()->recorder != nullptr) return input->state()->recorder.get();
  }
  return nullptr;
}

std::vector<Tensor> MakeTensors(const TensorState& like, QueuedOp queued) {
  std::vector<Tensor> tensors;
  for (TensorSpec& spec : queued.specs) {
    tensors.push_back(Tensor(std::make_shared<TensorState>(like.session, queued.output++,
                                                           std::move(spec), like.device)));
  }
  return tensors;
}

// Queues an op for the inputs, and `numbers` at their positions.
absl::StatusOr<QueuedOp> Send(absl::string_view op, absl::Span<const Tensor* const> inputs,
                              absl::Span<const NumberInput> numbers, const Attributes& attrs,
                              absl::Span<const int> donate) {
  PerInput<QueuedInput> queued;
  auto number = numbers.begin();
  for (const Tensor* input : inputs) {
    for (; number != numbers.end() && number->position == queued.size(); ++number) {
      queued.push_back({number->word, &number->spec, /*is_number=*/true});
    }
    queued.push_back({InputHandle(input->state()), &input->state()->spec});
  }
  for (; number != numbers.end(); ++number) {
    queued.push_back({number->word, &number->spec, /*is_number=*/true});
  }
  uint32_t donated = 0;
  for (int position : donate) {
    // If a transfer needs the handle, the server keeps the tensor. The destructor of its state
    // drops the handle when the transfer has ended.
    if (!IsInTransfer(*inputs[position]->state())) donated |= 1u << position;
  }
  TENSORD_ASSIGN_OR_RETURN(QueuedOp sent,
                           inputs[0]->state()->session->SendOp({op, queued, &attrs, donated}));
  return sent;
}

absl::Status CheckDonations(absl::string_view op, absl::Span<const Tensor* const> inputs,
                            absl::Span<const int> donate) {
  constexpr int kMaxPosition = 31;
  const int count = std::min<int>(static_cast<int>(inputs.size()), kMaxPosition + 1);
  for (int position : donate) {
    if (position >= 0 && position < count) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": can't donate input ", position, "; the inputs are numbered from 0 to ", count - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> TryEnqueueAll(absl::string_view op,
                                                  absl::Span<const Tensor* const> inputs,
                                                  const Attributes& attrs,
                                                  absl::Span<const int> donate) {
  if (InForkedChild()) return ForkedError();
  if (!SameSessionAndDevice(inputs)) TENSORD_RETURN_IF_ERROR(CheckInputs(op, inputs));
  if (Recorder* recorder = RecorderOf(inputs)) return recorder->Record(op, inputs, attrs);
  TENSORD_RETURN_IF_ERROR(CheckDonations(op, inputs, donate));
  TENSORD_ASSIGN_OR_RETURN(QueuedOp sent, Send(op, inputs, {}, attrs, donate));
  for (int position : donate) {
    inputs[position]->state()->donated_to.store(FindOp(op)->name.c_str(),
                                                std::memory_order_relaxed);
  }
  return MakeTensors(*inputs[0]->state(), std::move(sent));
}

absl::StatusOr<Tensor> TryEnqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                  absl::Span<const NumberInput> numbers, const Attributes& attrs) {
  if (InForkedChild()) return ForkedError();
  if (!SameSessionAndDevice(inputs)) TENSORD_RETURN_IF_ERROR(CheckInputs(op, inputs));
  if (Recorder* recorder = RecorderOf(inputs)) {
    TENSORD_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, recorder->Record(op, inputs, attrs));
    return std::move(outputs[0]);
  }
  TENSORD_ASSIGN_OR_RETURN(QueuedOp sent, Send(op, inputs, numbers, attrs, {}));
  const TensorState& first = *inputs[0]->state();
  return Tensor(std::make_shared<TensorState>(first.session, sent.output, std::move(sent.specs[0]),
                                              first.device));
}

absl::StatusOr<Tensor> TryEnqueueCreation(absl::string_view op, const Device& device,
                                          const Attributes& attrs) {
  if (InForkedChild()) return ForkedError();
  if (!device.valid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        op, ": no device: get one from a connected client, such as client.TryDevice()"));
  }
  const std::shared_ptr<Session>& session = device.session();
  const DeviceName name = device.id();
  TENSORD_ASSIGN_OR_RETURN(QueuedOp sent, session->SendOp({op, {}, &attrs, 0, &name}));
  return Tensor(
      std::make_shared<TensorState>(session, sent.output, std::move(sent.specs[0]), name));
}

Tensor TensorOrFailed(absl::StatusOr<Tensor> tensor) {
  return tensor.ok() ? *std::move(tensor) : Tensor::Failed(std::move(tensor).status());
}

}  // namespace

absl::Status StatusOf(const TensorState& state) {
  if (!state.status.ok()) return state.status;
  const char* const op = state.donated_to.load(std::memory_order_relaxed);
  if (op == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tensor ", state.handle, " was donated to ", op,
                   ", which may have overwritten it; use the result of that op instead"));
}

Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs) {
  return TensorOrFailed(TryEnqueue(op, inputs, {}, attrs));
}

Tensor EnqueueWithNumbers(absl::string_view op, absl::Span<const Tensor* const> inputs,
                          absl::Span<const NumberInput> numbers) {
  return TensorOrFailed(TryEnqueue(op, inputs, numbers, {}));
}

absl::StatusOr<std::vector<Tensor>> EnqueueAll(absl::string_view op,
                                               absl::Span<const Tensor* const> inputs,
                                               const Attributes& attrs,
                                               absl::Span<const int> donate) {
  return TryEnqueueAll(op, inputs, attrs, donate);
}

Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs) {
  return TensorOrFailed(TryEnqueueCreation(op, device, attrs));
}

bool IsRecorded(const Tensor& tensor) {
  return tensor.state() != nullptr && tensor.state()->recorder != nullptr;
}

std::optional<NumberInput> ToNumberInput(Scalar value, DType dtype, uint32_t position) {
  if (IsFloating(dtype)) {
    const double real = std::visit([](auto v) { return static_cast<double>(v); }, value.value());
    if (std::isfinite(real) && std::abs(real) > MaxFinite(dtype)) return std::nullopt;
    return NumberInput{position, {dtype, {}}, FloatToWord(real)};
  }
  if (value.is_float()) return std::nullopt;
  const int64_t integer =
      value.is_bool() ? (std::get<bool>(value.value()) ? 1 : 0) : std::get<int64_t>(value.value());
  if (!IsBool(dtype) && !FitsInteger(dtype, integer)) return std::nullopt;
  return NumberInput{position, {dtype, {}}, IntToWord(IsBool(dtype) ? integer != 0 : integer)};
}

AttrValue ToAttr(Scalar value) {
  return std::visit([](auto v) { return AttrValue(v); }, value.value());
}

}  // namespace tensord::internal
