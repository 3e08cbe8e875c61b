#include "tensord/server/rpc/session_stream.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/handover.h"
#include "tensord/common/status_macros.h"
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

SessionStreamReactor* SessionStreamReactor::Start(ServiceContext* context) {
  std::shared_ptr<SessionStreamReactor> reactor(new SessionStreamReactor(context));
  reactor->self_ = reactor;
  bool draining = false;
  {
    MutexLock lock(&context->mu);
    draining = context->draining;
    context->streams.insert(reactor.get());
  }
  HandOver(reactor.get());
  if (draining) {
    reactor->Drain();
  } else {
    reactor->StartRead(&reactor->request_);
  }
  return reactor.get();
}

void SessionStreamReactor::Drain() {
  {
    MutexLock lock(&mu_);
    draining_ = true;
  }
  MaybeWrite();
}

void SessionStreamReactor::OnReadDone(bool ok) {
  TakeOver(this);
  if (!ok) {
    {
      MutexLock lock(&mu_);
      half_closed_ = true;
    }
    MaybeWrite();
    return;
  }
  absl::Status status = Attach(request_);
  if (!status.ok()) {
    MutexLock lock(&mu_);
    FinishLocked(ToGrpc(status));
    return;
  }
  status = TakeIn(request_);
  if (!status.ok()) {
    MutexLock lock(&mu_);
    FinishLocked(ToGrpc(status));
    return;
  }
  ReadOn();
  MaybeWrite();
}

absl::Status SessionStreamReactor::Attach(const v1::SessionStreamRequest& request) {
  if (attached_) {
    if (!request.has_attach()) return absl::OkStatus();
    return absl::InvalidArgumentError("only the first message of a stream may carry attach");
  }
  if (!request.has_attach()) {
    return absl::InvalidArgumentError("the first message of a stream must carry attach");
  }
  TENSORD_ASSIGN_OR_RETURN(session_, context_->sessions->Use(request.attach().session()));
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

absl::Status SessionStreamReactor::TakeIn(const v1::SessionStreamRequest& request) {
  absl::Status status;
  for (const v1::Command& command : request.commands()) {
    status = TakeCommand(command);
    if (!status.ok()) break;
  }
  session_->NotifyReceived(taken_);
  MutexLock lock(&mu_);
  received_ = taken_;
  unacked_bytes_ += static_cast<int64_t>(request.ByteSizeLong());
  return status;
}

absl::Status SessionStreamReactor::TakeCommand(const v1::Command& command) {
  if (command.has_batch()) return TakeBatch(command.batch());
  if (command.has_define()) {
    ++taken_;
    return TakeDefinition(command.define());
  }
  ++since_marker_;
  TakeSingle(command, ++taken_);
  return absl::OkStatus();
}

absl::Status SessionStreamReactor::TakeDefinition(const v1::Definition& definition) {
  TENSORD_ASSIGN_OR_RETURN(Attributes attrs, FromProto(definition.attrs()));
  return packed_->Define(definition.number(), definition.name(), std::move(attrs),
                         definition.device(), definition.num_inputs());
}

absl::Status SessionStreamReactor::TakeBatch(const v1::Batch& batch) {
  return packed_->Take(
      absl::MakeConstSpan(batch.words().data(), batch.words_size()), &taken_,
      [this](uint64_t number, Handle output, const absl::StatusOr<TensorRef>& tensor) {
        ++since_marker_;
        tensor.ok() ? Watch(*tensor, number) : Refuse(output, number, tensor.status());
      });
}

void SessionStreamReactor::TakeSingle(const v1::Command& command, uint64_t number) {
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

absl::StatusOr<TensorRef> SessionStreamReactor::TakePromise(const v1::Promise& promise) {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(promise.spec()));
  return context_->engine->Promise(*session_, promise.handle(), spec, promise.device());
}

absl::Status SessionStreamReactor::TakeOp(const v1::Op& op, uint64_t number) {
  TENSORD_ASSIGN_OR_RETURN(Attributes attrs, FromProto(op.attrs()));
  TENSORD_ASSIGN_OR_RETURN(
      const TensorRef tensor,
      context_->engine->Run(session_.ref(),
                            {op.name(), op.inputs(), op.output(), std::move(attrs), op.device()}));
  Watch(tensor, number);
  return absl::OkStatus();
}

void SessionStreamReactor::TakeFetch(const v1::Fetch& fetch) {
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

void SessionStreamReactor::TakeBarrier(const v1::Barrier& barrier) {
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

void SessionStreamReactor::Refuse(Handle handle, uint64_t number, const absl::Status& error) {
  // Taken or 0: then there is nothing that the error could stick to, and only the client is told.
  session_->Insert(Tensor::Failed(handle, error)).IgnoreError();
  MutexLock lock(&mu_);
  v1::HandleError& out = errors_.emplace_back();
  out.set_handle(handle);
  out.set_command(number);
  out.set_code(static_cast<int>(error.code()));
  out.set_message(WireMessage(error));
}

void SessionStreamReactor::Watch(const TensorRef& tensor, uint64_t number) {
  // A weak reference: the tensor holds this call back, and the stream doesn't outlive its call for
  // it.
  tensor->WhenDone([weak = weak_from_this(), raw = tensor.get(), number] {
    if (raw->status().ok()) return;
    std::shared_ptr<SessionStreamReactor> self = weak.lock();
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

bool SessionStreamReactor::MayReadLocked() const {
  return want_read_ && !catching_up_ && !finished_ && !draining_ && unanswered_ < kMaxUnanswered &&
         errors_.size() < kErrorsPerResponse * 16;
}

void SessionStreamReactor::ReadOn() {
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

bool SessionStreamReactor::MustAckLocked() const {
  if (!attached_ || acked_ == received_) return false;
  return acked_ > received_ || half_closed_ || draining_ || received_ - acked_ >= ack_commands_ ||
         (ack_bytes_ != 0 && unacked_bytes_ >= ack_bytes_);
}

grpc::Status SessionStreamReactor::EndStatus() const {
  if (draining_) return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  if (attached_) return grpc::Status::OK;
  // Also where bytes came that are no message: gRPC then says no more than that nothing else comes.
  return {grpc::StatusCode::INVALID_ARGUMENT,
          "the stream ended before a message that carries attach"};
}

void SessionStreamReactor::MaybeWrite() {
  std::vector<ReadyFetch> fetches;
  {
    MutexLock lock(&mu_);
    if (MayReadLocked()) {
      want_read_ = false;
      HandOver(this);
      StartRead(&request_);
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

void SessionStreamReactor::WriteFetches(std::vector<ReadyFetch> fetches) {
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
    if (self->finished_) return;
    HandOver(self.get());
    self->StartWrite(&self->response_);
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

void SessionStreamReactor::OnWriteDone(bool ok) {
  TakeOver(this);
  {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) FinishLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone"));
  }
  MaybeWrite();
}

void SessionStreamReactor::OnCancel() {
  TakeOver(this);
  MutexLock lock(&mu_);
  FinishLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone"));
}

void SessionStreamReactor::FinishLocked(const grpc::Status& status) {
  if (finished_) return;
  finished_ = true;
  HandOver(this);
  Finish(status);
}

void SessionStreamReactor::OnDone() {
  TakeOver(this);
  {
    MutexLock lock(&context_->mu);
    context_->streams.erase(this);
  }
  if (attached_ && !detached_) session_->DetachStream();
  session_ = SessionUse();  // the lease runs from here
  self_.reset();
}

grpc::ServerBidiReactor<v1::SessionStreamRequest, v1::SessionStreamResponse>*
TensorServiceImpl::SessionStream(Context*) {
  return SessionStreamReactor::Start(context_);
}

}  // namespace tensord::server
