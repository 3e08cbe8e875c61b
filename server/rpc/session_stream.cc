#include "tensord/server/rpc/session_stream.h"

#include <utility>

#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// Messages that are larger, which our own client never sends, may have so many parts; and their
// memory doesn't serve for the next one.
constexpr int64_t kLargeBytes = 512 << 10;
constexpr int64_t kMaxParts = 1 << 18;

}  // namespace

SessionStream::SessionStream(ServiceContext* context, TensorRpc* rpc, CallQueue* queue)
    : context_(context), rpc_(rpc), queue_(queue), wire_(&call_) {}

void SessionStream::Await(ServiceContext* context, TensorRpc* rpc, CallQueue* queue) {
  const std::shared_ptr<SessionStream> stream(new SessionStream(context, rpc, queue));
  stream->call_.AsyncNotifyWhenDone(stream->done_.Begin(nullptr));
  rpc->RequestSessionStream(&stream->call_, &stream->wire_, queue->get(), queue->get(),
                            stream->called_.Begin(stream));
}

void SessionStream::OnCalled(bool ok) {
  if (!ok) return;  // the server shuts down; there is no call
  queue_->CallBegan();
  done_.Begin(shared_from_this());
  Await(context_, rpc_, queue_);
  const absl::Status admitted = admission_.Enter(
      queue_->gate(), &call_, [this](const absl::Status& status) { Refuse(status); });
  if (!admitted.ok()) {
    Refuse(admitted);
    return;
  }
  bool draining = false;
  {
    MutexLock lock(&context_->mu);
    draining = context_->draining;
    context_->streams.insert(this);
  }
  if (draining) {
    Drain();
  } else {
    MutexLock lock(&mu_);
    StartReadLocked();
  }
}

void SessionStream::StartReadLocked() {
  reading_ = true;
  wire_.Read(&incoming_, read_.Begin(shared_from_this()));
}

void SessionStream::StartWriteLocked() {
  wire_.Write(EncodeMessage(response_), written_.Begin(shared_from_this()));
}

void SessionStream::Drain() {
  {
    MutexLock lock(&mu_);
    draining_ = true;
  }
  MaybeWrite();
}

void SessionStream::HangUp() {
  {
    MutexLock lock(&mu_);
    hanging_up_ = true;
  }
  MaybeWrite();
}

void SessionStream::Supersede() {
  MutexLock lock(&mu_);
  FinishLocked({grpc::StatusCode::ABORTED,
                "another stream of the session has taken this one's "
                "place"});
}

void SessionStream::Refuse(const absl::Status& status) {
  MutexLock lock(&mu_);
  FinishLocked(ToGrpc(status));
}

void SessionStream::OnRead(bool ok) {
  std::shared_ptr<SessionCommands> commands;
  bool taken = false;
  {
    MutexLock lock(&mu_);
    reading_ = false;
    half_closed_ = half_closed_ || !ok;
    if (finished_) return;  // nothing is taken in any more
    commands = commands_;
    taken = ok && !draining_;
    want_read_ = ok && draining_ && commands != nullptr;
  }
  if (!taken) {
    MaybeWrite();
    return;
  }
  const auto message_bytes = static_cast<int64_t>(incoming_.Length());
  admission_.RequestReceived(incoming_.Length());
  absl::Status status;
  if (message_bytes > kLargeBytes) {
    status = CheckParts(&incoming_, *v1::SessionStreamRequest::descriptor(), kMaxParts);
  }
  if (status.ok()) status = DecodeMessage(&incoming_, &request_);
  if (status.ok() && commands == nullptr) {
    status = Attach(request_);
    MutexLock lock(&mu_);
    commands = commands_;
  } else if (status.ok() && request_.has_attach()) {
    status = absl::InvalidArgumentError("only the first message of a stream may carry attach");
  }
  if (status.ok()) status = commands->Take(this, request_, message_bytes);
  // Commands that have been parsed are kept for the next message, but not by the million.
  if (message_bytes > kLargeBytes) v1::SessionStreamRequest().Swap(&request_);
  {
    MutexLock lock(&mu_);
    if (!status.ok()) return FinishLocked(ToGrpc(status));
    want_read_ = true;
  }
  MaybeWrite();
}

absl::Status SessionStream::Attach(const v1::SessionStreamRequest& request) {
  if (!request.has_attach()) {
    return absl::InvalidArgumentError("the first message of a stream must carry attach");
  }
  TENSORD_ASSIGN_OR_RETURN(
      session_, context_->sessions->Use(admission_.principal(), request.attach().session()));
  admission_.SessionUsed();
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<SessionCommands> commands,
                           SessionCommands::Of(context_, session_.ref()));
  TENSORD_RETURN_IF_ERROR(
      commands->Attach(shared_from_this(), request.attach(), request.answers_received()));
  MutexLock lock(&mu_);
  commands_ = std::move(commands);
  return absl::OkStatus();
}

grpc::Status SessionStream::EndStatus() const {
  if (draining_) return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  if (commands_ != nullptr) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          "the stream ended before a message that carries attach"};
}

void SessionStream::MaybeWrite() {
  std::vector<ReadyElements> fetches;
  {
    MutexLock lock(&mu_);
    if (want_read_ && !finished_ && (draining_ || commands_->MayTake())) {
      want_read_ = false;
      StartReadLocked();
    }
    if (writing_ || finished_) return;
    const bool ending = half_closed_ || draining_;
    response_.Clear();
    const bool news =
        commands_ != nullptr && commands_->NextResponse(this, ending, &response_, &fetches);
    const bool tell_draining = draining_ && !told_draining_ && commands_ != nullptr;
    if (!news && !tell_draining) {
      if (commands_ != nullptr && draining_ && !half_closed_ && !hanging_up_) return;
      if (ending && (commands_ == nullptr || commands_->AllAnswered())) {
        // No later than the client hears of the end, so that it may attach anew at once.
        if (commands_ != nullptr) commands_->Detach(this);
        FinishLocked(EndStatus());
      }
      return;
    }
    response_.set_draining(draining_);
    told_draining_ = draining_;
    writing_ = true;
  }
  WriteFetches(std::move(fetches));
}

void SessionStream::WriteFetches(std::vector<ReadyElements> fetches) {
  const auto fill_and_send = [self = shared_from_this()](std::vector<ReadyElements>& ready) {
    for (ReadyElements& fetch : ready) {
      v1::Elements* out = self->response_.add_elements();
      out->set_request_id(fetch.request_id);
      if (fetch.status.ok()) {
        ToProto(fetch.tensor->spec(), out->mutable_spec());
        out->mutable_data()->resize(fetch.tensor->spec().size_bytes());
        if (!out->data().empty()) {
          fetch.status =
              fetch.tensor->device().Read(*fetch.tensor->buffer(), 0, out->mutable_data()->data(),
                                          static_cast<int64_t>(out->data().size()));
        }
      }
      if (!fetch.status.ok()) {
        out->clear_data();
        out->set_code(static_cast<int>(fetch.status.code()));
        out->set_message(WireMessage(fetch.status));
        out->set_status_details(WireDetails(fetch.status));
      }
    }
    MutexLock lock(&self->mu_);
    if (!self->finished_) {
      self->StartWriteLocked();
      return;
    }
    self->writing_ = false;
    self->BeginFinishLocked();
  };
  bool may_block = false;
  for (const ReadyElements& fetch : fetches) {
    may_block |= fetch.status.ok() && !fetch.tensor->device().host_accessible();
  }
  if (!may_block) {
    fill_and_send(fetches);
    return;
  }
  context_->workers->Post(
      [fill_and_send, fetches = std::move(fetches)]() mutable { fill_and_send(fetches); });
}

void SessionStream::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) FinishLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone"));
    BeginFinishLocked();
  }
  MaybeWrite();
}

void SessionStream::OnDone(bool /*ok*/) {
  admission_.Leave();
  MutexLock lock(&mu_);
  if (commands_ == nullptr && call_.IsCancelled()) admission_.Cancelled();
  over_ = true;
  // Does nothing where we have ended the call; gRPC wants to hear it where the client has.
  FinishLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone"));
}

void SessionStream::FinishLocked(const grpc::Status& status) {
  if (finished_) return;
  finished_ = true;
  outcome_ = status;
  BeginFinishLocked();
}

void SessionStream::BeginFinishLocked() {
  if (!finished_ || writing_ || finish_begun_) return;
  finish_begun_ = true;
  wire_.Finish(outcome_, finish_.Begin(shared_from_this()));
}

void SessionStream::AfterEvent() {
  std::shared_ptr<SessionCommands> commands;
  {
    MutexLock lock(&mu_);
    if (!over_ || reading_ || writing_ || let_go_) return;
    let_go_ = true;
    commands = commands_;
  }
  {
    MutexLock lock(&context_->mu);
    context_->streams.erase(this);
  }
  if (commands != nullptr) commands->Detach(this);
  session_ = SessionUse();  // the lease runs from here
  queue_->CallEnded();
}

}  // namespace tensord::server
