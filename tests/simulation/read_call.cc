#include "tensord/tests/simulation/read_call.h"

#include <string>
#include <utility>

#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::simulation {

using server::TensorRef;

ReadCall::Call::~Call() {
  if (use.ref() != nullptr) leases->End(use.ref().get());
}

ReadCall::ReadCall(server::ServiceContext* context, server::PrincipalRef principal,
                   ClientEnd* client, ValueRef value, LeaseBook* leases, Trace* trace)
    : context_(context),
      principal_(std::move(principal)),
      client_(client),
      value_(std::move(value)),
      after_command_(client->queue().pushed()),
      leases_(leases),
      trace_(trace) {
  ++value_->reads;
}

ReadCall::~ReadCall() { --value_->reads; }

bool ReadCall::Step() {
  if (client_->over()) done_ = true;
  if (done_) {
    call_ = nullptr;
    return false;
  }
  if (call_ == nullptr) {
    AddPending();
    return true;
  }
  if (!call_->ready) return false;
  TakeAnswer();
  return true;
}

void ReadCall::AddPending() {
  absl::StatusOr<server::SessionUse> use =
      context_->sessions->Use(principal_, client_->options().session);
  if (!use.ok()) {
    done_ = true;  // the stream reports the reason
    return;
  }
  call_ = std::make_shared<Call>();
  call_->leases = leases_;
  call_->use = *std::move(use);
  leases_->Begin(call_->use.ref().get());
  server::WaitUntilReadable(
      context_->engine, call_->use.ref(), after_command_, value_->handle,
      [weak = std::weak_ptr<Call>(call_)](const absl::StatusOr<TensorRef>& tensor) {
        const std::shared_ptr<Call> call = weak.lock();
        if (call == nullptr) return;
        call->tensor = tensor;
        call->ready = true;
      });
}

void ReadCall::TakeAnswer() {
  done_ = true;
  absl::StatusOr<std::string> read = std::string();
  if (!call_->tensor.ok()) {
    read = call_->tensor.status();
  } else {
    const server::Tensor& tensor = **call_->tensor;
    std::string bytes(tensor.spec().size_bytes(), '\0');
    const absl::Status status =
        tensor.device().Read(*tensor.buffer(), 0, bytes.data(), static_cast<int64_t>(bytes.size()));
    if (!status.ok()) trace_->Fail("a device can't be read: ", status.ToString());
    read = std::move(bytes);
  }
  call_ = nullptr;
  trace_->Note("  tensor ", value_->handle,
               " is read by a unary call: ", absl::StatusCodeToString(read.status().code()));
  if (const std::string wrong = client_->model().OnUnaryRead(*value_, read); !wrong.empty()) {
    trace_->Fail(client_->name(), ": ", wrong);
  }
}

}  // namespace tensord::simulation
