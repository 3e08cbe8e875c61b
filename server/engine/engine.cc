#include "tensord/server/engine/engine.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/device_name.h"
#include "tensord/common/gpu_names.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/engine/op_node.h"
#include "tensord/server/engine/readiness.h"
#include "tensord/server/engine/resolve_checks.h"

namespace tensord::server {
namespace {

// Calls `callback` when Tick() has been called `count` times. Copies share one count.
class CountDown {
 public:
  CountDown(size_t count, std::function<void()> callback)
      : state_(std::make_shared<State>(count, std::move(callback))) {}
  void Tick() {
    if (state_->left.fetch_sub(1, std::memory_order_acq_rel) == 1) state_->callback();
  }

 private:
  struct State {
    State(size_t count, std::function<void()> f) : left(count), callback(std::move(f)) {}
    std::atomic<size_t> left;
    std::function<void()> callback;
  };
  std::shared_ptr<State> state_;
};

absl::Status InOp(absl::string_view op, const absl::Status& status) {
  return WithPrefix(status, absl::StrCat(op, ": "));
}

absl::Status CheckServing(const DeviceSlot& slot) {
  const DeviceHealth health = slot.device->health();
  if (health.serving()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(slot.device->name().ToString(), " can't be used now: ", health.reason,
                   "; wait until it serves again (see ListDevices), or use another device"));
}

absl::StatusOr<TensorRef> FindInput(const Session& session, absl::string_view op, Handle handle) {
  absl::StatusOr<TensorRef> input = session.Find(handle);
  if (!input.ok()) return InOp(op, input.status());
  if (StateOf(**input, nullptr) == InputState::kFailed) return (*input)->status();
  return input;
}

absl::StatusOr<TensorRefs> FindInputs(const Session& session, absl::string_view op,
                                      absl::Span<const Handle> handles) {
  TensorRefs inputs;
  for (Handle handle : handles) {
    TENSORD_ASSIGN_OR_RETURN(TensorRef input, FindInput(session, op, handle));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Returns the inputs of an op. Those that are scalars are pending tensors without a handle, for
// MakeScalarTensor().
absl::StatusOr<TensorRefs> FindInputs(const Session& session, const OpRequest& request) {
  if (request.scalars.empty()) return FindInputs(session, request.op, request.inputs);
  TensorRefs inputs(request.inputs.size());
  DeviceSlot* slot = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (ScalarAt(request.scalars, i) != nullptr) continue;
    TENSORD_ASSIGN_OR_RETURN(inputs[i], FindInput(session, request.op, request.inputs[i]));
    if (slot == nullptr) slot = inputs[i]->slot();
  }
  if (slot == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.op, ": all inputs are scalars; at least one must be a tensor"));
  }
  for (const ScalarInput& scalar : request.scalars) {
    inputs[scalar.position] = Tensor::Make(Handle{0}, SpecOf(scalar), slot);
  }
  return inputs;
}

absl::Status CheckDonations(absl::string_view op, absl::Span<const uint32_t> donate,
                            size_t num_inputs) {
  std::vector<bool> is_donated(donate.empty() ? 0 : num_inputs);
  for (uint32_t position : donate) {
    if (position < num_inputs && !is_donated[position]) {
      is_donated[position] = true;
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": donates input ", position, ", which it lacks or donates twice; it has ",
                     num_inputs, num_inputs == 1 ? " input" : " inputs", ", counted from 0"));
  }
  return absl::OkStatus();
}

// Removes the handles of donated inputs. An input that waits for an upload keeps its handle until
// the upload has ended, because the upload names it.
void RemoveDonated(const SessionRef& session, absl::Span<const TensorRef> inputs,
                   absl::Span<const uint32_t> donate) {
  for (uint32_t position : donate) {
    const TensorRef& input = inputs[position];
    if (input->done() || input->upload() == nullptr) {
      session->Remove(input);
      continue;
    }
    input->WhenDone([session, weak = std::weak_ptr<Tensor>(input)] {
      if (const TensorRef done = weak.lock(); done != nullptr) session->Remove(done);
    });
  }
}

absl::Status AllocateUpload(Session& session, Engine::Upload* upload) {
  TENSORD_RETURN_IF_ERROR(CheckServing(*upload->tensor->slot()));
  const int64_t bytes = upload->tensor->spec().size_bytes();
  TENSORD_ASSIGN_OR_RETURN(upload->in_flight, session.BeginUpload(bytes));
  TENSORD_ASSIGN_OR_RETURN(upload->buffer,
                           AllocateFor(session.account(*upload->tensor->slot()),
                                       upload->tensor->device(), bytes, FirstUse::kTransfer));
  return absl::OkStatus();
}

// Gives `copy` the memory or the error of `source`, which is done.
void FinishAs(const Tensor& source, Tensor& copy) {
  if (source.status().ok()) {
    copy.Finish(source.buffer(), source.checks());
  } else {
    copy.Finish(source.status());
  }
}

// Inserts the promised result of a copy, and counts the copy as an op in flight until it is done.
absl::Status BeginCopy(const SessionRef& session, const TensorRef& copy) {
  constexpr int64_t kHostBytes = InFlight::BytesOfOp(1, 1);
  TENSORD_RETURN_IF_ERROR(session->ops().Begin(kHostBytes));
  if (absl::Status taken = session->Insert(copy); !taken.ok()) {
    session->ops().End(kHostBytes);
    return taken;
  }
  copy->WhenDone([session] { session->ops().End(kHostBytes); });
  return absl::OkStatus();
}

absl::Status CheckInputDevices(absl::string_view op, absl::Span<const TensorRef> inputs) {
  absl::InlinedVector<PlacedInput, 3> placed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = *inputs[i];
    if (input.handle() == 0) continue;  // a scalar
    placed.push_back({i, input.handle(), &input.spec(), input.device().name()});
  }
  return CheckSameDevice(op, placed);
}

}  // namespace

Engine::Engine(std::vector<std::unique_ptr<Device>> devices, bool fusion, bool graphs,
               Executor::Threading threading)
    : fusion_(fusion), graphs_(graphs) {
  if (fusion_) prepared_ops_.SetChains(&chains_);
  for (std::unique_ptr<Device>& device : devices) {
    auto slot = std::make_unique<DeviceSlot>();
    slot->index = static_cast<int>(owned_.size());
    slot->device = std::move(device);
    slot->executor = std::make_unique<Executor>(slot->device.get(), threading);
    slots_.push_back(slot.get());
    owned_.push_back(std::move(slot));
  }
  for (std::vector<DeviceSlot*>& domain : FaultDomains(slots_)) {
    monitors_.push_back(std::make_unique<DeviceMonitor>(
        std::move(domain),
        [this](DeviceSlot& slot, DeviceEvent event) { NotifyDeviceListener(slot, event); }));
  }
}

Engine::~Engine() {
  monitors_.clear();
  // A task of one device may post to another, so all queues are drained before any is destroyed.
  bool had_work = true;
  while (had_work) {
    had_work = false;
    for (auto& slot : owned_) had_work |= slot->executor->Drain();
  }
  // Everything has finished. Waiters of unresolved checks refer to the checks, so they must run.
  for (auto& slot : owned_) {
    for (const ValueCheckRef& check : slot->checks.Take()) check->Resolve(absl::OkStatus());
  }
  for (auto& slot : owned_) slot->executor.reset();
}

void Engine::SetDeviceListener(DeviceMonitor::Listener listener) {
  MutexLock lock(&listener_mu_);
  listener_ = std::move(listener);
  if (!listener_) return;
  for (DeviceSlot* slot : slots_) {
    if (!slot->device->health().serving()) listener_(*slot, DeviceEvent::kLost);
  }
}

void Engine::NotifyDeviceListener(DeviceSlot& slot, DeviceEvent event) {
  MutexLock lock(&listener_mu_);
  if (listener_) listener_(slot, event);
}

absl::StatusOr<DeviceSlot*> Engine::FindDevice(absl::string_view name) const {
  TENSORD_ASSIGN_OR_RETURN(const DeviceName wanted, ParseDeviceName(name));
  for (DeviceSlot* slot : slots_) {
    if (slot->device->name() == wanted) return slot;
  }
  std::string message =
      absl::StrCat("this server has no device ", wanted.ToString(), "; it has ",
                   absl::StrJoin(slots_, ", ", [](std::string* out, const DeviceSlot* slot) {
                     out->append(slot->device->name().ToString());
                   }));
  for (const auto& [kind, reason] : unavailable_kinds_) {
    if (kind == wanted.kind) absl::StrAppend(&message, NoDeviceOfKind(kind, reason));
  }
  absl::StrAppend(&message, GpuNameHint(wanted.kind));
  return absl::NotFoundError(message);
}

absl::StatusOr<DeviceSlot*> Engine::FindSlot(const OpRequest& request,
                                             absl::Span<const TensorRef> inputs) const {
  if (!inputs.empty() && request.device.empty()) return inputs[0]->slot();
  absl::StatusOr<DeviceSlot*> named = FindDevice(request.device);
  if (!named.ok()) return InOp(request.op, named.status());
  if (inputs.empty() || inputs[0]->slot() == *named) return named;
  return absl::InvalidArgumentError(
      absl::StrCat(request.op, ": the inputs are on ", inputs[0]->device().name().ToString(),
                   ", so the result can't be on ", (*named)->device->name().ToString(),
                   "; name no device, or copy the inputs first"));
}

absl::StatusOr<PreparedOpRef> Engine::FindPreparedOp(const Session& session,
                                                     const OpRequest& request,
                                                     absl::Span<const TensorRef> inputs) {
  absl::InlinedVector<TensorSpec, 3> specs;
  for (const TensorRef& input : inputs) specs.push_back(input->spec());
  TENSORD_RETURN_IF_ERROR(CheckInputDevices(request.op, inputs));
  const absl::StatusOr<DeviceSlot*> slot = FindSlot(request, inputs);
  if (slot.ok()) {
    // If the device is lost, so are the inputs in its memory, and the caller gets their error.
    if (inputs.empty()) TENSORD_RETURN_IF_ERROR(CheckServing(**slot));
    return prepared_ops_.Find(request.op, specs, request.attrs, *slot, session.host_budget());
  }
  // If the op itself is invalid, returns that error and not the device's.
  TENSORD_RETURN_IF_ERROR(PlanOp(request.op, specs, request.attrs).status());
  return slot.status();
}

absl::StatusOr<TensorRefs> Engine::RunOp(const SessionRef& session, const OpRequest& request) {
  TENSORD_RETURN_IF_ERROR(CheckDonations(request.op, request.donate, request.inputs.size()));
  TENSORD_ASSIGN_OR_RETURN(TensorRefs inputs, FindInputs(*session, request));
  absl::StatusOr<PreparedOpRef> found = FindPreparedOp(*session, request, inputs);
  if (absl::IsResourceExhausted(found.status())) {
    // The error of each op has a text of its own, because clients report a text once.
    return WithPrefix(found.status(), absl::StrCat("tensor ", request.output, ": "));
  }
  TENSORD_ASSIGN_OR_RETURN(PreparedOpRef op, std::move(found));
  TENSORD_RETURN_IF_ERROR(CheckNumOutputs(*op, request.num_outputs));
  TensorRefs outputs;
  for (const TensorSpec& output : op->outputs()) {
    outputs.push_back(Tensor::Make(request.output + outputs.size(), output, op->slot()));
  }
  TENSORD_RETURN_IF_ERROR(
      Start(session, std::move(op), std::move(inputs), outputs, request.donate, request.scalars));
  return outputs;
}

absl::StatusOr<TensorRef> Engine::Run(const SessionRef& session, const OpRequest& request) {
  TENSORD_ASSIGN_OR_RETURN(TensorRefs outputs, RunOp(session, request));
  return std::move(outputs[0]);
}

absl::Status Engine::Start(const SessionRef& session, std::shared_ptr<Executable> executable,
                           TensorRefs inputs, const TensorRefs& outputs,
                           absl::Span<const uint32_t> donate,
                           absl::Span<const ScalarInput> scalars) {
  // On a device that the host can't access, a scalar is a task, so the op must be accepted first.
  const bool posts_scalars = !executable->slot()->device->host_accessible();
  const auto make_scalars = [&] {
    for (const ScalarInput& scalar : scalars) {
      MakeScalarTensor(session, scalar, inputs[scalar.position]);
    }
  };
  if (!posts_scalars) make_scalars();
  const auto insert_all = [&session, &outputs] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const absl::Status taken = session->Insert(outputs[i]);
      if (taken.ok()) continue;
      for (size_t j = 0; j < i; ++j) session->Remove(outputs[j]);
      return taken;
    }
    return absl::OkStatus();
  };
  if (CanRunInline(*executable, inputs)) {
    Executor::InlineLock lock(executable->slot()->executor.get(),
                              session->lane(*executable->slot()).get());
    if (lock.held()) {
      TENSORD_RETURN_IF_ERROR(insert_all());
      RemoveDonated(session, inputs, donate);
      RunInline(*session, *executable, inputs, outputs, &inline_watch_);
      const int64_t acquired_at = lock.acquired_at();
      inline_watch_.OnLockReleased(lock.Release() - acquired_at);
      return absl::OkStatus();
    }
  }
  const int64_t host_bytes = InFlight::BytesOfOp(inputs.size(), outputs.size());
  TENSORD_RETURN_IF_ERROR(session->ops().Begin(host_bytes));
  if (absl::Status taken = insert_all(); !taken.ok()) {
    session->ops().End(host_bytes);
    return taken;
  }
  RemoveDonated(session, inputs, donate);
  if (posts_scalars) make_scalars();
  std::make_shared<OpNode>(session, std::move(executable), std::move(inputs), outputs,
                           fusion_ ? &chains_ : nullptr, host_bytes)
      ->Schedule();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Program>> Engine::Prepare(Session& session, const ProgramSpec& spec,
                                                         absl::string_view device) {
  TENSORD_ASSIGN_OR_RETURN(DeviceSlot * slot, FindDevice(device));
  TENSORD_RETURN_IF_ERROR(CheckServing(*slot));
  return Program::Make(spec, slot, session.account(*slot), session.host_budget(), &prepared_ops_,
                       fusion_ ? &chains_ : nullptr, graphs_);
}

absl::StatusOr<TensorRefs> Engine::Run(const SessionRef& session,
                                       const std::shared_ptr<Program>& program,
                                       absl::Span<const Handle> input_handles,
                                       absl::Span<const Handle> output_handles,
                                       absl::Span<const uint32_t> donate) {
  if (input_handles.size() != program->inputs().size() ||
      output_handles.size() != program->num_outputs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "program: called with ", input_handles.size(), " inputs and ", output_handles.size(),
        " outputs; it has ", program->inputs().size(), " and ", program->num_outputs()));
  }
  TENSORD_RETURN_IF_ERROR(CheckDonations("program", donate, input_handles.size()));
  TENSORD_ASSIGN_OR_RETURN(TensorRefs inputs, FindInputs(*session, "program", input_handles));
  const size_t i = FirstMismatch(program->inputs(), program->slot(), inputs);
  if (i < inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "program: input ", i, " is ", inputs[i]->spec().ToString(), " on ",
        inputs[i]->device().name().ToString(), "; it was recorded for ",
        program->inputs()[i].ToString(), " on ", program->slot()->device->name().ToString()));
  }
  if (inputs.empty()) TENSORD_RETURN_IF_ERROR(CheckServing(*program->slot()));
  TensorRefs outputs;
  for (size_t i = 0; i < output_handles.size(); ++i) {
    outputs.push_back(Tensor::Make(output_handles[i], program->output(i), program->slot()));
  }
  TENSORD_RETURN_IF_ERROR(Start(session, program, std::move(inputs), outputs, donate));
  return outputs;
}

absl::StatusOr<TensorRef> Engine::Copy(const SessionRef& session, Handle input, Handle output,
                                       absl::string_view device, bool share) {
  constexpr absl::string_view kName = "copy_to_device";
  TENSORD_ASSIGN_OR_RETURN(TensorRefs inputs,
                           FindInputs(*session, kName, absl::MakeConstSpan(&input, 1)));
  const TensorRef& source = inputs[0];
  absl::StatusOr<DeviceSlot*> slot = FindDevice(device);
  if (!slot.ok()) return InOp(kName, slot.status());
  const bool same_device = *slot == source->slot();
  if (same_device && !share) return source;
  if (!same_device) TENSORD_RETURN_IF_ERROR(CheckServing(**slot));
  auto copy = Tensor::Make(output, source->spec(), *slot);
  if (same_device && source->done()) {
    TENSORD_RETURN_IF_ERROR(session->Insert(copy));
    FinishAs(*source, *copy);
    return copy;
  }
  TENSORD_RETURN_IF_ERROR(BeginCopy(session, copy));
  if (same_device) {
    source->WhenDone([source, copy] { FinishAs(*source, *copy); });
    return copy;
  }
  WhenReadable(source, [session, source, copy](const absl::Status& status) {
    if (status.ok()) {
      PostCopy(session, source, copy);
    } else {
      copy->Finish(status);
    }
  });
  return copy;
}

absl::StatusOr<TensorRef> Engine::Promise(Session& session, Handle handle, const TensorSpec& spec,
                                          absl::string_view device) {
  TENSORD_RETURN_IF_ERROR(spec.Validate());
  TENSORD_ASSIGN_OR_RETURN(DeviceSlot * slot, FindDevice(device));
  TENSORD_RETURN_IF_ERROR(CheckServing(*slot));
  auto tensor = Tensor::ForUpload(handle, spec, slot);
  TENSORD_RETURN_IF_ERROR(session.Insert(tensor));
  return tensor;
}

absl::Status Engine::UploadContinuedError(Handle handle) {
  return absl::AbortedError(absl::StrCat("another call has continued the upload of tensor ", handle,
                                         "; GetUpload returns the offset"));
}

absl::StatusOr<Engine::Upload> Engine::BeginUpload(Session& session, Handle handle,
                                                   const TensorSpec& spec, absl::string_view device,
                                                   std::function<void()> stop) {
  TENSORD_ASSIGN_OR_RETURN(Upload upload,
                           ClaimUpload(session, handle, spec, device, std::move(stop)));
  TENSORD_RETURN_IF_ERROR(AllocateMemory(session, &upload));
  return upload;
}

absl::StatusOr<Engine::Upload> Engine::ClaimUpload(Session& session, Handle handle,
                                                   const TensorSpec& spec, absl::string_view device,
                                                   std::function<void()> stop) {
  TENSORD_RETURN_IF_ERROR(spec.Validate());
  TENSORD_ASSIGN_OR_RETURN(DeviceSlot * slot, FindDevice(device));
  Upload upload;
  absl::StatusOr<TensorRef> promised = session.Find(handle);
  // If the promise was refused, the upload gets the same error.
  if (promised.ok() && (*promised)->slot() == nullptr) return (*promised)->status();
  UploadState* const state = promised.ok() ? (*promised)->upload() : nullptr;
  const bool resumable = stop != nullptr;
  std::optional<PartialUpload> partial;
  if (state != nullptr) partial = state->Claim(std::move(stop));
  if (partial.has_value()) {
    upload.tensor = *std::move(promised);
    upload.promised = true;
    // The promise failed before this upload: its device was lost, or the session ended.
    if (upload.tensor->done() && !upload.tensor->status().ok()) return upload.tensor->status();
    if (upload.tensor->spec() != spec || upload.tensor->slot() != slot) {
      absl::Status mismatch = absl::InvalidArgumentError(
          absl::StrCat("tensor ", handle, " was promised as ", upload.tensor->spec().ToString(),
                       " on ", upload.tensor->device().name().ToString(), ", but ", spec.ToString(),
                       " on ", slot->device->name().ToString(), " is uploaded"));
      upload.tensor->Finish(session.ChargeError(upload.tensor, mismatch));
      return mismatch;
    }
    if (partial->buffer != nullptr) {
      upload.buffer = std::move(partial->buffer);
      upload.written_bytes = partial->written_bytes;
      upload.in_flight = std::move(partial->in_flight);
    }
  } else if (resumable && state != nullptr) {
    return UploadContinuedError(handle);
  } else {
    TENSORD_RETURN_IF_ERROR(session.CheckFree(handle));
    upload.tensor = Tensor::Make(handle, spec, slot);
  }
  return upload;
}

absl::Status Engine::AllocateMemory(Session& session, Upload* upload) {
  if (upload->buffer != nullptr) return absl::OkStatus();
  const absl::Status taken = AllocateUpload(session, upload);
  if (!taken.ok() && upload->promised) {
    upload->tensor->Finish(session.ChargeError(upload->tensor, taken));
  }
  return taken;
}

absl::Status Engine::FinishUpload(Session& session, Upload upload, absl::Status outcome) {
  const absl::Status* loss = upload.buffer == nullptr ? nullptr : upload.buffer->device().loss();
  if (outcome.ok() && loss != nullptr) outcome = *loss;
  if (!outcome.ok()) {
    upload.tensor->Finish(session.ChargeError(upload.tensor, outcome));
    return outcome;
  }
  if (!upload.promised) TENSORD_RETURN_IF_ERROR(session.Insert(upload.tensor));
  upload.tensor->Finish(std::move(upload.buffer));
  return upload.tensor->status();
}

void Engine::WhenReadable(const TensorRef& tensor, std::function<void(absl::Status)> callback) {
  tensor->WhenDone([tensor, callback = std::move(callback)]() mutable {
    if (!tensor->status().ok() || tensor->device().host_accessible()) {
      callback(tensor->status());  // in host memory, a kernel has finished when its launch returns
      return;
    }
    DeviceSlot& slot = *tensor->slot();
    slot.executor->Post(slot.executor->NewLane(),
                        [&slot, checks = tensor->checks(), callback = std::move(callback)] {
                          FenceAndResolve(slot, [checks, callback](const absl::Status& fenced) {
                            if (checks == nullptr || !fenced.ok()) return callback(fenced);
                            checks->Resolve(fenced);
                            callback(checks->status());
                          });
                        });
  });
}

absl::Status Engine::WhenIdle(const SessionRef& session, std::function<void()> callback) {
  std::vector<TensorRef> pending = session->Pending();
  const int64_t bytes = InFlight::kWaitBytes * static_cast<int64_t>(pending.size() + 1);
  TENSORD_RETURN_IF_ERROR(session->waits().Begin(bytes));
  const auto finish = [session, bytes, callback = std::move(callback)] {
    session->waits().End(bytes);
    callback();
  };
  CountDown tensors(pending.size() + 1, [this, session, finish] {
    CountDown devices(slots_.size(), finish);
    for (DeviceSlot* slot : slots_) {
      slot->executor->Post(
          session->lane(*slot),
          [slot, devices]() mutable {
            FenceAndResolve(*slot, [devices](const absl::Status&) mutable { devices.Tick(); });
          },
          Executor::Length::kShort);
    }
  });
  for (const TensorRef& tensor : pending) {
    // The callback keeps the tensor alive. A fused kernel may leave out a tensor that nothing else
    // refers to, and that tensor never becomes done.
    tensor->WhenDone([tensors, tensor]() mutable { tensors.Tick(); });
  }
  tensors.Tick();
  return absl::OkStatus();
}

}  // namespace tensord::server
