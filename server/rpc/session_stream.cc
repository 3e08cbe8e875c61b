#include "tensord/server/rpc/session_stream.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/handover.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// Commands after which reading waits until the devices have caught up with them.
constexpr int64_t kCommandsInFlight = 16384;
// Fetches and barriers that may be unanswered before reading waits.
constexpr int64_t kMaxUnanswered = 4096;
// Errors, and bytes of fetched elements, that one response carries at most.
constexpr size_t kErrorsPerResponse = 256;
constexpr int64_t kFetchedBytesPerResponse = 1 << 20;
// The largest tensor that Fetch brings.
constexpr int64_t kMaxFetchBytes = 1 << 20;

absl::Status CheckFetchable(const Tensor& tensor) {
  if (tensor.spec().size_bytes() <= kMaxFetchBytes) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("tensor ", tensor.handle(), " (", tensor.spec().ToString(), ") has ",
                   tensor.spec().size_bytes(), " bytes, more than Fetch brings (", kMaxFetchBytes,
                   "); use Read"));
}

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

void SessionStream::Refuse(const absl::Status& status) {
  MutexLock lock(&mu_);
  FinishLocked(ToGrpc(status));
}

void SessionStream::OnRead(bool ok) {
  {
    MutexLock lock(&mu_);
    reading_ = false;
    half_closed_ = half_closed_ || !ok;
    if (finished_) return;  // nothing is taken in any more
  }
  if (!ok) {
    MaybeWrite();
    return;
  }
  const auto message_bytes = static_cast<int64_t>(incoming_.Length());
  absl::Status status = DecodeMessage(&incoming_, &request_);
  if (status.ok()) status = Attach(request_);
  if (status.ok()) status = TakeIn(request_, message_bytes);
  if (!status.ok()) {
    MutexLock lock(&mu_);
    FinishLocked(ToGrpc(status));
    return;
  }
  ReadOn();
  MaybeWrite();
}

absl::Status SessionStream::Attach(const v1::SessionStreamRequest& request) {
  if (attached_) {
    if (!request.has_attach()) return absl::OkStatus();
    return absl::InvalidArgumentError("only the first message of a stream may carry attach");
  }
  if (!request.has_attach()) {
    return absl::InvalidArgumentError("the first message of a stream must carry attach");
  }
  TENSORD_ASSIGN_OR_RETURN(
      session_, context_->sessions->Use(admission_.principal(), request.attach().session()));
  TENSORD_RETURN_IF_ERROR(session_->AttachStream());
  MutexLock lock(&mu_);
  attached_ = true;
  // The client hears at once where the session stands, also when it comes back to it.
  received_ = taken_ = session_->commands_received();
  acked_ = ~uint64_t{0};
  ack_commands_ = request.attach().ack_commands();
  ack_bytes_ = request.attach().ack_bytes();
  packed_ = std::make_unique<PackedOps>(context_->engine, session_.ref());
  return absl::OkStatus();
}

absl::Status SessionStream::TakeIn(const v1::SessionStreamRequest& request, int64_t message_bytes) {
  absl::Status status;
  for (const v1::Command& command : request.commands()) {
    status = TakeCommand(command);
    if (!status.ok()) break;
  }
  session_->NotifyReceived(taken_);
  MutexLock lock(&mu_);
  received_ = taken_;
  unacked_bytes_ += message_bytes;
  return status;
}

absl::Status SessionStream::TakeCommand(const v1::Command& command) {
  if (command.has_batch()) return TakeBatch(command.batch());
  if (command.has_define()) {
    ++taken_;
    return TakeDefinition(command.define());
  }
  if (command.has_program()) {
    ++taken_;
    return TakeProgram(command.program());
  }
  ++since_marker_;
  ++taken_;
  if (command.has_run()) {
    TakeRun(command.run(), taken_);
  } else {
    TakeSingle(command, taken_);
  }
  return absl::OkStatus();
}

absl::Status SessionStream::TakeDefinition(const v1::Definition& definition) {
  TENSORD_ASSIGN_OR_RETURN(Attributes attrs, FromProto(definition.attrs()));
  return packed_->Define(definition.number(), definition.name(), std::move(attrs),
                         definition.device(), definition.num_inputs());
}

absl::Status SessionStream::TakeProgram(const v1::Program& program) {
  std::vector<TensorSpec> inputs;
  for (const v1::TensorSpec& input : program.inputs()) {
    TENSORD_ASSIGN_OR_RETURN(TensorSpec spec, FromProto(input));
    inputs.push_back(std::move(spec));
  }
  return packed_->AddProgram(program.number(), program.device(), std::move(inputs), program.ops(),
                             {program.outputs().begin(), program.outputs().end()});
}

void SessionStream::TakeRun(const v1::ProgramRun& run, uint64_t number) {
  const absl::StatusOr<TensorRefs> outputs =
      packed_->RunProgram(run.number(), run.inputs(), run.outputs());
  if (outputs.ok()) {
    for (const TensorRef& output : *outputs) Watch(output, number);
  } else {
    for (Handle output : run.outputs()) Refuse(output, number, outputs.status());
  }
}

absl::Status SessionStream::TakeBatch(const v1::Batch& batch) {
  return packed_->Take(
      absl::MakeConstSpan(batch.words().data(), batch.words_size()), &taken_,
      [this](uint64_t number, Handle output, const absl::StatusOr<TensorRef>& tensor) {
        ++since_marker_;
        tensor.ok() ? Watch(*tensor, number) : Refuse(output, number, tensor.status());
      });
}

void SessionStream::TakeSingle(const v1::Command& command, uint64_t number) {
  Engine& engine = *context_->engine;
  switch (command.command_case()) {
    case v1::Command::kOp: {
      absl::Status taken = TakeOp(command.op(), number);
      if (!taken.ok()) Refuse(command.op().output(), number, taken);
      return;
    }
    case v1::Command::kCopy: {
      const v1::Copy& copy = command.copy();
      absl::StatusOr<TensorRef> tensor =
          engine.Copy(session_.ref(), copy.input(), copy.output(), copy.device(), /*share=*/true);
      tensor.ok() ? Watch(*tensor, number) : Refuse(copy.output(), number, tensor.status());
      return;
    }
    case v1::Command::kPromise: {
      absl::StatusOr<TensorRef> tensor = TakePromise(command.promise());
      tensor.ok() ? Watch(*tensor, number)
                  : Refuse(command.promise().handle(), number, tensor.status());
      return;
    }
    case v1::Command::kDrop:
      session_->Drop(command.drop().handles());
      for (uint32_t program : command.drop().programs()) packed_->DropProgram(program);
      return;
    case v1::Command::kFetch:
      TakeFetch(command.fetch());
      return;
    case v1::Command::kBarrier:
      TakeBarrier(command.barrier());
      return;
    default:
      Refuse(0, number, absl::InvalidArgumentError("a command without content"));
      return;
  }
}

absl::StatusOr<TensorRef> SessionStream::TakePromise(const v1::Promise& promise) {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(promise.spec()));
  return context_->engine->Promise(*session_, promise.handle(), spec, promise.device());
}

absl::Status SessionStream::TakeOp(const v1::Op& op, uint64_t number) {
  TENSORD_ASSIGN_OR_RETURN(Attributes attrs, FromProto(op.attrs()));
  TENSORD_ASSIGN_OR_RETURN(
      const TensorRef tensor,
      context_->engine->Run(session_.ref(),
                            {op.name(), op.inputs(), op.output(), std::move(attrs), op.device()}));
  Watch(tensor, number);
  return absl::OkStatus();
}

void SessionStream::TakeFetch(const v1::Fetch& fetch) {
  {
    MutexLock lock(&mu_);
    ++unanswered_;
  }
  auto answer = [self = shared_from_this(), fetch_id = fetch.fetch_id()](
                    TensorRef tensor, const absl::Status& status) {
    {
      MutexLock lock(&self->mu_);
      self->fetches_.push_back({fetch_id, std::move(tensor), status});
    }
    self->MaybeWrite();
  };
  absl::StatusOr<TensorRef> found = session_->Find(fetch.handle());
  absl::Status status = found.status();
  if (status.ok() && (*found)->slot() != nullptr) status = CheckFetchable(**found);
  if (!status.ok()) {
    answer(nullptr, status);
    return;
  }
  context_->engine->WhenReadable(*found, [answer, tensor = *found](const absl::Status& readable) {
    answer(tensor, readable);
  });
}

void SessionStream::TakeBarrier(const v1::Barrier& barrier) {
  {
    MutexLock lock(&mu_);
    ++unanswered_;
  }
  context_->engine->WhenIdle(session_.ref(),
                             [self = shared_from_this(), id = barrier.barrier_id()] {
                               {
                                 MutexLock lock(&self->mu_);
                                 self->barriers_.push_back(id);
                               }
                               self->MaybeWrite();
                             });
}

void SessionStream::Refuse(Handle handle, uint64_t number, const absl::Status& error) {
  // Taken or 0: then there is nothing that the error could stick to, and only the client is told.
  session_->Insert(Tensor::Failed(handle, error)).IgnoreError();
  MutexLock lock(&mu_);
  v1::HandleError& out = errors_.emplace_back();
  out.set_handle(handle);
  out.set_command(number);
  out.set_code(static_cast<int>(error.code()));
  out.set_message(WireMessage(error));
}

void SessionStream::Watch(const TensorRef& tensor, uint64_t number) {
  // A weak reference: the tensor holds this call back, and the stream doesn't outlive its call for
  // it.
  tensor->WhenDone([weak = weak_from_this(), raw = tensor.get(), number] {
    if (raw->status().ok()) return;
    std::shared_ptr<SessionStream> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(&self->mu_);
      v1::HandleError& out = self->errors_.emplace_back();
      out.set_handle(raw->handle());
      out.set_command(number);
      out.set_code(static_cast<int>(raw->status().code()));
      out.set_message(WireMessage(raw->status()));
    }
    self->MaybeWrite();
  });
}

bool SessionStream::MayReadLocked() const {
  return want_read_ && !catching_up_ && !finished_ && !draining_ && unanswered_ < kMaxUnanswered &&
         errors_.size() < kErrorsPerResponse * 16;
}

void SessionStream::ReadOn() {
  const bool catch_up = since_marker_ >= kCommandsInFlight;
  {
    MutexLock lock(&mu_);
    want_read_ = true;
    catching_up_ = catch_up;
  }
  if (!catch_up) return;  // MaybeWrite, which follows, asks for the next batch
  since_marker_ = 0;
  auto left = std::make_shared<std::atomic<size_t>>(context_->engine->slots().size());
  for (DeviceSlot* slot : context_->engine->slots()) {
    slot->executor->Post(session_->lane(*slot), [self = shared_from_this(), left] {
      if (left->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      {
        MutexLock lock(&self->mu_);
        self->catching_up_ = false;
      }
      self->MaybeWrite();
    });
  }
}

bool SessionStream::MustAckLocked() const {
  if (!attached_ || acked_ == received_) return false;
  return acked_ > received_ || half_closed_ || draining_ || received_ - acked_ >= ack_commands_ ||
         (ack_bytes_ != 0 && unacked_bytes_ >= ack_bytes_);
}

grpc::Status SessionStream::EndStatus() const {
  if (draining_) return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  if (attached_) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          "the stream ended before a message that carries attach"};
}

void SessionStream::MaybeWrite() {
  std::vector<ReadyFetch> fetches;
  {
    MutexLock lock(&mu_);
    if (MayReadLocked()) {
      want_read_ = false;
      StartReadLocked();
    }
    if (writing_ || finished_) return;
    const bool news =
        !errors_.empty() || !fetches_.empty() || !barriers_.empty() || MustAckLocked();
    if (!news) {
      const bool ending = half_closed_ || draining_;
      if (ending && unanswered_ == 0) {
        // No later than the client hears of the end, so that it may attach anew at once.
        if (attached_ && !std::exchange(detached_, true)) session_->DetachStream();
        FinishLocked(EndStatus());
      }
      return;
    }
    writing_ = true;
    response_.Clear();
    response_.set_commands_received(received_);
    acked_ = received_;
    unacked_bytes_ = 0;
    for (size_t i = 0; i < kErrorsPerResponse && !errors_.empty(); ++i) {
      *response_.add_errors() = std::move(errors_.front());
      errors_.pop_front();
    }
    for (; !barriers_.empty(); barriers_.pop_front(), --unanswered_) {
      response_.add_barriers()->set_barrier_id(barriers_.front());
    }
    int64_t bytes = 0;
    while (!fetches_.empty() && bytes < kFetchedBytesPerResponse) {
      if (fetches_.front().status.ok()) bytes += fetches_.front().tensor->spec().size_bytes();
      fetches.push_back(std::move(fetches_.front()));
      fetches_.pop_front();
      --unanswered_;
    }
  }
  WriteFetches(std::move(fetches));
}

void SessionStream::WriteFetches(std::vector<ReadyFetch> fetches) {
  const auto fill_and_send = [self = shared_from_this()](std::vector<ReadyFetch>& ready) {
    for (ReadyFetch& fetch : ready) {
      v1::Fetched* out = self->response_.add_fetched();
      out->set_fetch_id(fetch.fetch_id);
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
  for (const ReadyFetch& fetch : fetches) {
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

void SessionStream::OnFinished(bool /*ok*/) {}

void SessionStream::OnDone(bool /*ok*/) {
  admission_.Leave();
  MutexLock lock(&mu_);
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
  {
    MutexLock lock(&mu_);
    if (!over_ || reading_ || writing_ || let_go_) return;
    let_go_ = true;
  }
  {
    MutexLock lock(&context_->mu);
    context_->streams.erase(this);
  }
  if (attached_ && !detached_) session_->DetachStream();
  session_ = SessionUse();  // the lease runs from here
  queue_->CallEnded();
}

}  // namespace tensord::server
