// Write: chunks from the wire into a tensor's memory.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/cancellable_wait.h"
#include "tensord/common/handover.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// One message is held at a time: the next is read when the last has landed. gRPC calls back one
// event at a time, so that no lock is needed; after a wait for the session's stream the reactor
// goes on from the thread that ended the wait, when no read is outstanding.
class WriteReactor final : public grpc::ServerReadReactor<v1::WriteRequest> {
 public:
  WriteReactor(ServiceContext* context, v1::Tensor* response)
      : context_(context), response_(response) {
    HandOver(this);
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    TakeOver(this);
    if (!ok) {
      End();
    } else if (upload_.has_value()) {
      Land();
    } else {
      Begin();
    }
  }

  void OnCancel() override {
    TakeOver(this);
    if (wait_.Cancel()) Fail(absl::CancelledError("the client has gone"));
  }

  void OnDone() override {
    TakeOver(this);
    delete this;
  }

 private:
  void Begin() {
    if (!message_.has_spec()) {
      Fail(absl::InvalidArgumentError("the first message of a Write must carry its spec"));
      return;
    }
    absl::StatusOr<SessionUse> use = context_->sessions->Use(message_.spec().session());
    if (!use.ok()) {
      Fail(use.status());
      return;
    }
    session_ = *std::move(use);
    if (!wait_.Begin()) {
      Fail(absl::CancelledError("the client has gone"));
      return;
    }
    absl::Status waiting = session_->WhenReceived(
        message_.spec().after_command(), [this, wait = wait_](const absl::Status& received) {
          if (!wait.End()) return;
          absl::Status begun = received.ok() ? Allocate() : received;
          begun.ok() ? Land() : Fail(begun);
        });
    if (!waiting.ok() && wait_.End()) Fail(waiting);
  }

  absl::Status Allocate() {
    const v1::WriteSpec& wanted = message_.spec();
    TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(wanted.spec()));
    TENSORD_ASSIGN_OR_RETURN(
        upload_, context_->engine->BeginUpload(*session_, wanted.handle(), spec, wanted.device()));
    message_.clear_spec();
    return absl::OkStatus();
  }

  void Land() {
    if (upload_->tensor->device().host_accessible() || message_.data().empty()) {
      LandHere();  // a memcpy
    } else {
      context_->workers->Post([this] { LandHere(); });  // may wait for the device
    }
  }

  void LandHere() {
    absl::Status status = WriteChunk();
    if (!status.ok()) {
      Fail(status);
      return;
    }
    HandOver(this);
    StartRead(&message_);
  }

  absl::Status WriteChunk() {
    if (message_.has_spec()) {
      return absl::InvalidArgumentError("only the first message of a Write may carry a spec");
    }
    const std::string& data = message_.data();
    if (message_.offset() != written_) {
      return absl::InvalidArgumentError(absl::StrCat("a chunk says offset ", message_.offset(),
                                                     ", but ", written_,
                                                     " bytes have come so far"));
    }
    const TensorSpec& spec = upload_->tensor->spec();
    if (static_cast<int64_t>(data.size()) > spec.size_bytes() - written_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", spec.ToString(), " takes ", spec.size_bytes(), " bytes, but at least ",
                       written_ + static_cast<int64_t>(data.size()), " came"));
    }
    if (data.empty()) return absl::OkStatus();
    TENSORD_RETURN_IF_ERROR(
        upload_->tensor->device().Write(*upload_->buffer, written_, data.data(), data.size()));
    written_ += static_cast<int64_t>(data.size());
    return absl::OkStatus();
  }

  // The client has said all, or has gone.
  void End() {
    if (!upload_.has_value()) {
      Fail(absl::InvalidArgumentError("a Write without messages; the first carries the spec"));
      return;
    }
    const TensorSpec& spec = upload_->tensor->spec();
    if (written_ != spec.size_bytes()) {
      Fail(absl::InvalidArgumentError(absl::StrCat("a ", spec.ToString(), " takes ",
                                                   spec.size_bytes(), " bytes, but only ", written_,
                                                   " came")));
      return;
    }
    const TensorRef tensor = upload_->tensor;
    absl::Status status =
        context_->engine->FinishUpload(*session_, *std::move(upload_), absl::OkStatus());
    upload_.reset();
    if (status.ok()) ToProto(*tensor, response_);
    HandOver(this);
    Finish(ToGrpc(status));
  }

  void Fail(const absl::Status& status) {
    if (upload_.has_value()) {
      context_->engine->FinishUpload(*session_, *std::move(upload_), status).IgnoreError();
      upload_.reset();
    }
    HandOver(this);
    Finish(ToGrpc(status));
  }

  ServiceContext* const context_;
  v1::Tensor* const response_;
  v1::WriteRequest message_;
  SessionUse session_;
  CancellableWait wait_;  // for the session's stream; else a broken stream ends the call
  std::optional<Engine::Upload> upload_;
  int64_t written_ = 0;
};

}  // namespace

grpc::ServerReadReactor<v1::WriteRequest>* TensorServiceImpl::Write(Context*,
                                                                    v1::Tensor* response) {
  return new WriteReactor(context_, response);
}

}  // namespace tensord::server
