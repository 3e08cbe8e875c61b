#include "tensord/server/rpc/stream/session_stream.h"

#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// A worker decodes and applies messages above this size: decoding alone would take about as long as
// a slice.
constexpr size_t kMaxInlineMessageBytes = 64 << 10;
// The queue's thread applies a message in slices, and handles the events of other calls between
// them. A slice takes kSlice, divided by the number of the principal's sessions, but at least
// kMinSlice.
constexpr auto kSlice = std::chrono::microseconds(60);
constexpr auto kMinSlice = std::chrono::microseconds(15);
// After this many slices of a message, a worker continues.
constexpr int kMaxSlices = 64;

// The next response reuses this one's memory, except that of elements above this size.
constexpr size_t kMaxKeptElementBytes = 1 << 10;

constexpr int kMaxKeptErrors = 16;

// Frees the memory of large elements and of many errors. Otherwise each position in the list of
// elements would keep the memory of the largest element that it ever held.
void TrimMemory(v1::SessionStreamResponse* response) {
  if (response->errors_size() > kMaxKeptErrors) {
    v1::SessionStreamResponse().Swap(response);
    return;
  }
  for (v1::Elements& elements : *response->mutable_elements()) {
    for (std::string* text : {elements.mutable_data(), elements.mutable_message()}) {
      if (text->capacity() > kMaxKeptElementBytes) std::string().swap(*text);
    }
  }
}

}  // namespace

void SessionStream::OnAdmitted() {
  if (!Join(&context_->streams)) return OnDrain();
  MutexLock lock(&mu_);
  StartReadLocked();
}

void SessionStream::StartReadLocked() {
  reading_ = true;
  StartRead(&incoming_);
}

void SessionStream::OnDrain() {
  {
    MutexLock lock(&mu_);
    draining_ = true;
  }
  Advance();
}

void SessionStream::OnDrainTimeout() {
  {
    MutexLock lock(&mu_);
    drain_timed_out_ = true;
  }
  Advance();
}

void SessionStream::End(const absl::Status& error) {
  MutexLock lock(&mu_);
  EndLocked(error);
}

void SessionStream::OnRevoked(const absl::Status& status) {
  MutexLock lock(&mu_);
  EndLocked(status);
}

void SessionStream::OnRead(bool ok) {
  bool taken = false;
  {
    MutexLock lock(&mu_);
    reading_ = false;
    half_closed_ = half_closed_ || !ok;
    taken = applying_ = ok && !draining_ && !ended_;
    if (!taken && ok && MayWait(incoming_.Length())) ReleaseMessage();
    if (!taken) incoming_.Clear();
    if (ended_) return;  // no further command is applied
    want_read_ = ok && draining_ && commands_ != nullptr;
  }
  if (!taken) {
    Advance();
  } else if (MayWait(incoming_.Length())) {
    PostToWorker(&SessionStream::DecodeMessage);
  } else {
    DecodeMessage();
  }
}

bool SessionStream::MayWait(size_t bytes) const { return bytes > kMaxInlineMessageBytes; }

void SessionStream::PostToWorker(void (SessionStream::*function)()) {
  on_worker_ = true;
  context_->message_workers->Post(
      principal().get(),
      [self = std::static_pointer_cast<SessionStream>(shared_from_this()), function] {
        ((*self).*function)();
        self->AfterEvent();
      });
}

void SessionStream::DecodeMessage() {
  const absl::Status status = TryDecode();
  if (!status.ok() || ended()) {
    EndMessage(status);
  } else if (!on_worker_ && commands()->unfinished()) {
    PostToWorker(&SessionStream::ApplyMessage);
  } else {
    ApplyMessage();
  }
}

absl::Status SessionStream::TryDecode() {
  message_bytes_ = static_cast<int64_t>(incoming_.Length());
  if (ended()) return absl::OkStatus();  // the stream ended while the message waited for a worker
  TENSORD_RETURN_IF_ERROR(
      server::DecodeMessage(&incoming_, &request_, principal(), &request_charge_));
  if (commands() == nullptr) {
    TENSORD_RETURN_IF_ERROR(Attach(request_));
  } else if (request_.has_attach()) {
    return absl::InvalidArgumentError("only the first message of a stream may carry attach");
  }
  return absl::OkStatus();
}

SessionCommands::Clock::time_point SessionStream::EndOfSlice() const {
  if (on_worker_) return PackedOps::kNoDeadline;
  const int64_t sessions =
      std::max<int64_t>(principal()->budget(PrincipalLimit::kSessions).used(), 1);
  return SessionCommands::Clock::now() +
         std::max<SessionCommands::Clock::duration>(kSlice / sessions, kMinSlice);
}

void SessionStream::ApplyMessage() {
  if (ended()) return EndMessage(absl::OkStatus());
  slices_ = 0;
  OnProgress(commands()->Apply(this, request_, message_bytes_, EndOfSlice()));
}

void SessionStream::ContinueMessage() { OnProgress(commands()->Continue(request_, EndOfSlice())); }

void SessionStream::OnProgress(absl::StatusOr<SessionCommands::Progress> progress) {
  if (!progress.ok() || *progress == SessionCommands::Progress::kDone) {
    EndMessage(progress.status());
  } else if (*progress == SessionCommands::Progress::kLongCommand || ++slices_ == kMaxSlices) {
    PostToWorker(&SessionStream::ContinueMessage);
  } else {
    Post(shared_from_this(), [this] { ContinueMessage(); });
  }
}

void SessionStream::EndMessage(const absl::Status& status) {
  on_worker_ = false;
  // Parsing the next message reuses the memory of request_, unless it is charged.
  if (request_charge_.bytes() > ParsedCharge::kUnchargedBytes) {
    v1::SessionStreamRequest().Swap(&request_);
    request_charge_.Release();
  }
  if (MayWait(static_cast<size_t>(message_bytes_))) ReleaseMessage();
  {
    MutexLock lock(&mu_);
    applying_ = false;
    if (!status.ok()) return EndLocked(status);
    want_read_ = true;
  }
  Advance();
}

absl::Status SessionStream::Attach(const v1::SessionStreamRequest& request) {
  if (!request.has_attach()) {
    return absl::InvalidArgumentError("the first message of a stream must carry attach");
  }
  TENSORD_ASSIGN_OR_RETURN(session_,
                           context_->sessions->Use(principal(), request.attach().session()));
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<SessionCommands> commands,
                           SessionCommands::Of(context_, session_.ref()));
  TENSORD_RETURN_IF_ERROR(
      commands->Attach(std::static_pointer_cast<SessionStream>(shared_from_this()),
                       request.attach(), request.answers_received()));
  TolerateCancellation();
  MutexLock lock(&mu_);
  commands_ = std::move(commands);
  return absl::OkStatus();
}

absl::Status SessionStream::EndStatus() const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (commands_ != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("the stream ended before a message that carries attach");
}

void SessionStream::Advance() {
  {
    MutexLock lock(&mu_);
    if (want_read_ && !ended_ && (draining_ || commands_->MayRead())) {
      want_read_ = false;
      StartReadLocked();
    }
    if (writing_ || ended_) return;
    const bool ending = (half_closed_ || draining_) && !applying_;
    response_.Clear();
    const bool has_answers =
        commands_ != nullptr && commands_->NextResponse(this, ending, &response_, &ready_);
    const bool send_draining = draining_ && !draining_sent_ && commands_ != nullptr;
    if (!has_answers && !send_draining) {
      if (commands_ != nullptr && draining_ && !half_closed_ && !drain_timed_out_) return;
      if (ending && (commands_ == nullptr || commands_->AllAnswered())) {
        // Detach before the client learns of the end, so that it can attach again at once.
        if (commands_ != nullptr) commands_->Detach(this);
        EndLocked(EndStatus());
      }
      return;
    }
    response_.set_draining(draining_);
    draining_sent_ = draining_;
    writing_ = awaits_room_ = true;
  }
  WriteResponse();
}

void SessionStream::WriteResponse() {
  int64_t bytes = 0;
  {
    MutexLock lock(&mu_);
    if (!awaits_room_) return;  // the stream has ended
    for (const ReadyElements& elements : ready_) {
      bytes += elements.status.ok() ? elements.tensor->spec().size_bytes()
                                    : HostBytesOf(elements.status);
    }
    for (const v1::HandleError& error : response_.errors()) {
      bytes += static_cast<int64_t>(error.message().size() + error.status_details().size());
    }
  }
  WhenResponseFits(bytes, [this] {
    std::vector<ReadyElements> ready;
    {
      MutexLock lock(&mu_);
      if (!std::exchange(awaits_room_, false)) return;
      ready.swap(ready_);
    }
    WriteElements(std::move(ready));
  });
}

void SessionStream::WriteElements(std::vector<ReadyElements> ready) {
  const auto fill_and_send = [self = std::static_pointer_cast<SessionStream>(shared_from_this())](
                                 std::vector<ReadyElements>& all) {
    for (ReadyElements& elements : all) {
      v1::Elements* out = self->response_.add_elements();
      out->set_request_id(elements.request_id);
      if (elements.status.ok()) {
        ToProto(elements.tensor->spec(), out->mutable_spec());
        out->mutable_data()->resize(elements.tensor->spec().size_bytes());
        if (!out->data().empty()) {
          elements.status = elements.tensor->device().Read(
              *elements.tensor->buffer(), 0, out->mutable_data()->data(),
              static_cast<int64_t>(out->data().size()));
        }
      }
      if (!elements.status.ok()) {
        out->clear_data();
        out->set_code(static_cast<int>(elements.status.code()));
        out->set_message(WireMessage(elements.status));
        out->set_status_details(WireDetails(elements.status));
      }
    }
    const grpc::ByteBuffer encoded = EncodeMessage(self->response_);
    // While the message waits for its client, only the encoded form exists.
    TrimMemory(&self->response_);
    MutexLock lock(&self->mu_);
    if (!self->ended_) {
      self->StartWrite(encoded);
      return;
    }
    self->writing_ = false;
    self->MaybeFinishLocked();
  };
  bool may_block = false;
  for (const ReadyElements& elements : ready) {
    may_block |= elements.status.ok() && !elements.tensor->device().host_accessible();
  }
  if (!may_block) {
    fill_and_send(ready);
    return;
  }
  context_->workers->Post(principal().get(), [fill_and_send, ready = std::move(ready)]() mutable {
    fill_and_send(ready);
  });
}

void SessionStream::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) EndLocked(ClientDisconnected());
    MaybeFinishLocked();
  }
  ReturnResponse();
  Advance();
}

void SessionStream::OnDone() {
  MutexLock lock(&mu_);
  grpc_done_ = true;
  EndLocked(ClientDisconnected());
}

void SessionStream::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  outcome_ = status;
  if (std::exchange(awaits_room_, false)) writing_ = false;
  MaybeFinishLocked();
}

void SessionStream::MaybeFinishLocked() {
  if (ended_ && !writing_) Finish(outcome_);
}

void SessionStream::AfterEvent() {
  std::shared_ptr<SessionCommands> commands;
  {
    MutexLock lock(&mu_);
    if (!grpc_done_ || reading_ || applying_ || writing_ || detached_) return;
    detached_ = true;
    commands = commands_;
  }
  if (commands != nullptr) commands->Detach(this);
  session_ = SessionUse();  // the lease begins to run
}

}  // namespace tensord::server
