#include "tensord/client/internal/enqueue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/recorder.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/ops/op_schema.h"
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
        state->device != first->device) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<Tensor> TryEnqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                  const Attributes& attrs) {
  if (InForkedChild()) return ForkedError();
  if (!SameSessionAndDevice(inputs)) TENSORD_RETURN_IF_ERROR(CheckInputs(op, inputs));
  for (const Tensor* input : inputs) {
    if (input->state()->recorder != nullptr) {
      return input->state()->recorder->Record(op, inputs, attrs);
    }
  }
  PerInput<QueuedInput> queued;
  for (const Tensor* input : inputs) {
    const TensorState& state = *input->state();
    queued.push_back({InputHandle(input->state()), &state.spec, &state.numbered_spec});
  }
  const TensorState& first = *inputs[0]->state();
  TENSORD_ASSIGN_OR_RETURN(QueuedOp sent, first.session->SendOp(op, queued, attrs));
  return Tensor(std::make_shared<TensorState>(first.session, sent.output, std::move(sent.spec),
                                              first.device, sent.numbered_spec));
}

absl::StatusOr<Tensor> TryEnqueueCreation(absl::string_view op, const Device& device,
                                          const Attributes& attrs) {
  if (InForkedChild()) return ForkedError();
  if (!device.valid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        op, ": no device: get one from a connected client, such as client.TryDevice()"));
  }
  TENSORD_ASSIGN_OR_RETURN(OpPlan plan, PlanOp(op, {}, attrs));
  const std::shared_ptr<Session>& session = device.session();
  const uint64_t output = session->NextHandle();
  TENSORD_RETURN_IF_ERROR(session->SendCreation(op, device.id(), output, attrs));
  return Tensor(
      std::make_shared<TensorState>(session, output, std::move(plan.output), device.id()));
}

Tensor TensorOrFailed(absl::StatusOr<Tensor> tensor) {
  return tensor.ok() ? *std::move(tensor) : Tensor::Failed(std::move(tensor).status());
}

}  // namespace

Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs) {
  return TensorOrFailed(TryEnqueue(op, inputs, attrs));
}

Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs) {
  return TensorOrFailed(TryEnqueueCreation(op, device, attrs));
}

AttrValue ToAttr(Scalar value) {
  return std::visit([](auto v) { return AttrValue(v); }, value.value());
}

}  // namespace tensord::internal
