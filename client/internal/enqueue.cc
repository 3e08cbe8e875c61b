#include "tensord/client/internal/enqueue.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/op_table.h"
#include "tensord/client/internal/recorder.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/op_words.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

template <typename T>
using PerInput = absl::InlinedVector<T, 6>;

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

// Returns the error of the inputs `moved` and `kept`, which belong to two sessions.
absl::Status DifferentSessions(absl::string_view op, absl::Span<const Tensor* const> inputs,
                               size_t moved, size_t kept) {
  const OpSchema* schema = FindOp(op);
  const auto name = [&](size_t i) {
    return schema == nullptr ? absl::StrCat("input ", i) : InputName(*schema, i);
  };
  const size_t a = std::min(moved, kept), b = std::max(moved, kept);
  const TensorState& first = *inputs[a]->state();
  const TensorState& second = *inputs[b]->state();
  const bool same_server = first.session->address() == second.session->address();
  const auto describe = [&](size_t i, const TensorState& state) {
    return absl::StrCat(name(i), " is ", inputs[i]->Describe(),
                        same_server ? std::string() : AtServer(state));
  };
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": inputs ",
      same_server
          ? absl::StrCat("belong to two connections to the server at ", first.session->address())
          : std::string("are on different devices"),
      ": ", describe(a, first), " and ", describe(b, second),
      same_server ? "; make both through one Client, or copy " : "; copy ", name(moved),
      " to the device of ", name(kept), " (Tensor::To)"));
}

// Returns the error of inputs for which SameSessionAndDevice is false.
absl::Status CheckInputs(absl::string_view op, absl::Span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) {
    TENSORD_RETURN_IF_ERROR(input->status());
    // The reason why a connection has ended explains more than a mismatch of connections.
    const std::shared_ptr<Session>& session = input->state()->session;
    if (session != nullptr) TENSORD_RETURN_IF_ERROR(session->status());
  }
  const OpSchema* schema = FindOp(op);
  const size_t wanted = schema == nullptr ? 0 : PositionToKeep(*schema);
  const size_t kept = wanted < inputs.size() ? wanted : 0;
  PerInput<PlacedInput> placed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorState& state = *inputs[i]->state();
    if (state.session != inputs[kept]->state()->session) {
      return DifferentSessions(op, inputs, i, kept);
    }
    placed.push_back({i, state.handle, &state.spec, state.device});
  }
  TENSORD_RETURN_IF_ERROR(CheckRecordedDevice(op, inputs));
  return CheckSameDevice(op, placed);
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

// Returns the recorder of the program of which an input is a placeholder. If there is none, returns
// null.
Recorder* RecorderOf(absl::Span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) {
    if (input->state()->recorder != nullptr) return input->state()->recorder.get();
  }
  return nullptr;
}

// Returns a scalar's spec as an input.
const TensorSpec& ScalarSpec(DType dtype) {
  static const std::vector<TensorSpec>& specs = *new std::vector<TensorSpec>([] {
    std::vector<TensorSpec> by_number(kDTypeTableSize);
    for (DType each : kAllDTypes) by_number[static_cast<int>(each)].dtype = each;
    return by_number;
  }());
  return specs[static_cast<int>(dtype)];
}

// Queues an op on `inputs` and `scalars`, which take their positions among all inputs. `to_queue`
// has everything else.
absl::Status Send(OpToQueue to_queue, absl::Span<const Tensor* const> inputs,
                  absl::Span<const ScalarInput> scalars, absl::Span<const int> donate,
                  QueuedOp* sent) {
  PerInput<QueuedInput> queued;
  const ScalarInput* scalar = scalars.begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (; scalar != scalars.end() && scalar->position == queued.size(); ++scalar) {
      queued.push_back({scalar->word, &ScalarSpec(scalar->dtype)});
    }
    const std::shared_ptr<const TensorState>& state = inputs[i]->state();
    const bool donated = std::find(donate.begin(), donate.end(), i) != donate.end();
    // If a transfer needs the handle, the server keeps the tensor. The destructor of its state
    // drops the handle when the transfer has ended.
    if (donated && !IsInTransfer(*state)) to_queue.donate |= 1u << queued.size();
    queued.push_back({InputHandle(state), &state->spec});
  }
  for (; scalar != scalars.end(); ++scalar) {
    queued.push_back({scalar->word, &ScalarSpec(scalar->dtype)});
  }
  for (const ScalarInput& input : scalars) to_queue.scalars |= 1u << input.position;
  to_queue.inputs = queued;
  return inputs[0]->state()->session->SendOp(to_queue, sent);
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

absl::StatusOr<Tensor> TryEnqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                  absl::Span<const ScalarInput> scalars, const Attributes& attrs) {
  if (InForkedChild()) return ForkedError();
  if (!SameSessionAndDevice(inputs)) TENSORD_RETURN_IF_ERROR(CheckInputs(op, inputs));
  if (Recorder* recorder = RecorderOf(inputs)) {
    TENSORD_ASSIGN_OR_RETURN(Tensors outputs, recorder->Record(op, inputs, attrs));
    if (outputs.size() > 1) return SeveralOutputsError(op, outputs.size());
    return std::move(outputs[0]);
  }
  QueuedOp sent;
  TENSORD_RETURN_IF_ERROR(Send({.op = op, .attrs = &attrs}, inputs, scalars, {}, &sent));
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
  QueuedOp sent;
  TENSORD_RETURN_IF_ERROR(session->SendOp({.op = op, .attrs = &attrs, .device = &name}, &sent));
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

Tensor EnqueueWithScalars(absl::string_view op, absl::Span<const Tensor* const> inputs,
                          absl::Span<const ScalarInput> scalars) {
  return TensorOrFailed(TryEnqueue(op, inputs, scalars, {}));
}

namespace {

absl::Status EnqueueInto(const OpToQueue& op, absl::Span<const Tensor* const> inputs,
                         absl::Span<const int> donate, absl::Span<const ScalarInput> scalars,
                         Tensors* outputs) {
  if (InForkedChild()) return ForkedError();
  if (!SameSessionAndDevice(inputs)) TENSORD_RETURN_IF_ERROR(CheckInputs(op.op, inputs));
  if (Recorder* recorder = RecorderOf(inputs)) {
    TENSORD_ASSIGN_OR_RETURN(*outputs, recorder->Record(op.op, inputs, *op.attrs));
    return absl::OkStatus();
  }
  TENSORD_RETURN_IF_ERROR(CheckDonations(op.op, inputs, donate));
  QueuedOp sent;
  TENSORD_RETURN_IF_ERROR(Send(op, inputs, scalars, donate, &sent));
  for (int position : donate) {
    inputs[position]->state()->donated_to.store(
        op.prepared == nullptr ? FindOp(op.op)->name.c_str() : op.prepared->schema_name,
        std::memory_order_relaxed);
  }
  const TensorState& first = *inputs[0]->state();
  outputs->reserve(sent.specs.size());
  for (TensorSpec& spec : sent.specs) {
    outputs->push_back(Tensor(std::make_shared<TensorState>(first.session, sent.output++,
                                                            std::move(spec), first.device)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensors> EnqueueAll(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                   const Attributes& attrs, absl::Span<const int> donate,
                                   absl::Span<const ScalarInput> scalars) {
  Tensors outputs;
  TENSORD_RETURN_IF_ERROR(EnqueueInto({.op = op, .attrs = &attrs, .takes_all_outputs = true},
                                      inputs, donate, scalars, &outputs));
  return outputs;
}

Tensors EnqueueAllOrFailed(absl::string_view op, absl::Span<const Tensor* const> inputs,
                           const Attributes& attrs, size_t count, absl::Span<const int> donate) {
  absl::StatusOr<Tensors> outputs = EnqueueAll(op, inputs, attrs, donate);
  if (outputs.ok()) return *std::move(outputs);
  return Tensors(count, Tensor::Failed(outputs.status()));
}

absl::Status EnqueuePrepared(const PreparedOp& op, absl::Span<const Tensor* const> inputs,
                             absl::Span<const int> donate, absl::Span<const ScalarInput> scalars,
                             Tensors* outputs) {
  return EnqueueInto(
      {.op = op.name, .attrs = &op.attrs, .prepared = &op, .takes_all_outputs = true}, inputs,
      donate, scalars, outputs);
}

Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs) {
  return TensorOrFailed(TryEnqueueCreation(op, device, attrs));
}

bool IsRecorded(const Tensor& tensor) {
  return tensor.state() != nullptr && tensor.state()->recorder != nullptr;
}

std::optional<ScalarInput> ToScalarInput(Scalar value, DType dtype, uint32_t position) {
  if (IsFloating(dtype)) {
    const double real = std::visit([](auto v) { return static_cast<double>(v); }, value.value());
    if (!FitsFloating(dtype, real)) return std::nullopt;
    return ScalarInput{position, dtype, FloatToWord(real)};
  }
  if (value.is_float() || IsComplex(dtype)) return std::nullopt;
  if (value.is_large()) {
    if (dtype != DType::kUInt64) return std::nullopt;
    const auto bits = static_cast<int64_t>(std::get<uint64_t>(value.value()));
    return ScalarInput{position, dtype, IntToWord(bits)};
  }
  const int64_t integer =
      value.is_bool() ? (std::get<bool>(value.value()) ? 1 : 0) : std::get<int64_t>(value.value());
  if (!IsBool(dtype) && !FitsInteger(dtype, integer)) return std::nullopt;
  return ScalarInput{position, dtype, IntToWord(IsBool(dtype) ? integer != 0 : integer)};
}

AttrValue ToAttr(Scalar value) {
  return std::visit(
      [](auto v) -> AttrValue {
        if constexpr (std::is_same_v<decltype(v), uint64_t>) {
          return static_cast<double>(v);
        } else {
          return v;
        }
      },
      value.value());
}

}  // namespace tensord::internal
