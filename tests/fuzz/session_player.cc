#include "tensord/tests/fuzz/session_player.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

constexpr int64_t kDeviceBytes = 4 << 20;

std::vector<std::unique_ptr<Device>> Devices() {
  const DeviceRequest cpu{DeviceKind::kCpu, 0, kDeviceBytes};
  auto devices = MakeDevices({cpu, cpu}, /*cpu_threads=*/1);
  if (!devices.ok()) std::abort();
  return *std::move(devices);
}

void ReadAll(const Tensor& tensor) {
  std::string data(tensor.spec().size_bytes(), '\0');
  if (data.empty()) return;
  const auto read =
      tensor.device().Read(*tensor.buffer(), 0, data.data(), static_cast<int64_t>(data.size()));
  if (!read.ok()) std::abort();
}

}  // namespace

FuzzWorld::FuzzWorld()
    : one(TestPrincipal("one")),
      other(TestPrincipal("other")),
      engine(Devices(), /*fusion=*/true, /*graphs=*/true, Executor::Threading::kCallerThread),
      sessions(Limits{}, engine.slots()),
      context{.engine = &engine, .sessions = &sessions, .workers = nullptr, .limits = {}} {}

void FuzzWorld::Drain() {
  // A task of one device may post a task to the other.
  for (bool any = true; any;) {
    any = false;
    for (DeviceSlot* slot : engine.slots()) any = slot->executor->Drain() || any;
  }
}

void FuzzWorld::RunSlice(int device) {
  engine.slots()[device % engine.slots().size()]->executor->RunSlice();
}

void FuzzWorld::CheckEmpty() {
  Drain();
  for (DeviceSlot* slot : engine.slots()) {
    if (slot->device->memory().used_bytes != 0) std::abort();
  }
  for (const PrincipalRef& principal : {one, other}) {
    for (const PrincipalLimit which :
         {PrincipalLimit::kHostBytes, PrincipalLimit::kSessions, PrincipalLimit::kHandles,
          PrincipalLimit::kUploadBytes, PrincipalLimit::kTickets, PrincipalLimit::kPublished}) {
      if (principal->budget(which).used() != 0) std::abort();
    }
    for (const int device : {0, 1}) {
      if (principal->device_bytes(device).used() != 0) std::abort();
    }
  }
}

// The server's end of a connection: a test double for SessionStream.
class SessionPlayer::Wire final : public CommandWire {
 public:
  explicit Wire(std::shared_ptr<SessionCommands> its_commands)
      : commands(std::move(its_commands)) {}

  void Resume() override {}
  void End(const absl::Status& error) override {
    superseded = superseded || absl::IsAborted(error);
  }

  const std::shared_ptr<SessionCommands> commands;
  v1::SessionStreamRequest message;
  bool unfinished = false;  // a part of `message` isn't applied yet
  bool ended = false;       // DetachEnded() must detach this object
  std::atomic<bool> superseded{false};
};

SessionPlayer::SessionPlayer(FuzzWorld* world, PrincipalRef principal)
    : world_(world), principal_(std::move(principal)) {
  OpenSession();
}

void SessionPlayer::OpenSession() {
  absl::StatusOr<SessionRef> session = world_->sessions.Open(principal_, 0, "fuzz");
  if (!session.ok()) std::abort();
  session_ = *std::move(session);
  auto commands = SessionCommands::Of(&world_->context, session_);
  if (!commands.ok()) std::abort();
  commands_ = *std::move(commands);
  received_ = 0;
}

SessionPlayer::~SessionPlayer() {
  if (!world_->sessions.Close(principal_, session_->id()).ok()) std::abort();
  AbortWrite();
  wire_.reset();
  for (const std::shared_ptr<Wire>& wire : wires_) wire->ended = true;
  Continue(Slice::kAll);
  DetachEnded();
  if (!wires_.empty()) std::abort();
}

void SessionPlayer::Close() {
  Cut(/*noticed=*/false);
  if (!world_->sessions.Close(principal_, session_->id()).ok()) std::abort();
  OpenSession();
}

void SessionPlayer::Send(const v1::SessionStreamRequest& message, Slice slice) {
  // The server reads a message only after it has applied the previous message.
  if (wire_ != nullptr && wire_->unfinished) Continue(Slice::kAll);
  if (!commands_->MayRead()) {  // the server wouldn't read
    world_->Drain();
    Read(/*must_ack=*/true);
    if (!commands_->MayRead()) return;
  }
  if (wire_ == nullptr) {
    auto wire = std::make_shared<Wire>(commands_);
    if (!commands_->Attach(wire, message.attach(), message.answers_received()).ok()) return;
    wires_.push_back(wire);
    wire_ = std::move(wire);
  } else if (wire_->superseded) {
    std::abort();  // no other connection has attached
  }
  wire_->message = message;
  Apply(*wire_, /*begin=*/true, slice);
  DetachEnded();
  if (commands_->unfinished() != (wire_ != nullptr && wire_->unfinished)) std::abort();
}

void SessionPlayer::Apply(Wire& wire, bool begin, Slice slice) {
  using Progress = SessionCommands::Progress;
  // If the deadline has passed before the slice begins, the slice is as small as possible.
  constexpr SessionCommands::Clock::time_point kPassed;
  const auto deadline = slice == Slice::kSmallest ? kPassed : PackedOps::kNoDeadline;
  const absl::StatusOr<Progress> progress =
      begin ? wire.commands->Apply(&wire, wire.message,
                                   static_cast<int64_t>(wire.message.ByteSizeLong()), deadline)
            : wire.commands->Continue(wire.message, deadline);
  wire.unfinished = progress.ok() && *progress != Progress::kDone;
  if (wire.unfinished && slice == Slice::kAll) std::abort();
  if (progress.ok()) return;
  wire.ended = true;
  if (wire_.get() == &wire) wire_.reset();
}

void SessionPlayer::Continue(Slice slice) {
  for (const std::shared_ptr<Wire>& wire : wires_) {
    if (wire->unfinished) Apply(*wire, /*begin=*/false, slice);
  }
  DetachEnded();
}

void SessionPlayer::DetachEnded() {
  const auto detach = [](const std::shared_ptr<Wire>& wire) {
    if (!wire->ended || wire->unfinished) return false;
    wire->commands->Detach(wire.get());
    return true;
  };
  wires_.erase(std::remove_if(wires_.begin(), wires_.end(), detach), wires_.end());
}

void SessionPlayer::Cut(bool noticed) {
  if (wire_ == nullptr) return;
  wire_->ended = noticed;
  wire_.reset();
  DetachEnded();
}

void SessionPlayer::Read(bool must_ack) {
  if (wire_ == nullptr) return;
  v1::SessionStreamResponse response;
  std::vector<SessionCommands::ReadyElements> ready;
  while (commands_->NextResponse(wire_.get(), must_ack, &response, &ready)) {
    if (response.commands_received() < received_) std::abort();
    received_ = response.commands_received();
    response.Clear();
  }
  for (const SessionCommands::ReadyElements& elements : ready) {
    if (elements.status.ok()) ReadAll(*elements.tensor);
  }
}

absl::Status SessionPlayer::BeginWrite(v1::WriteSpec spec) {
  spec.set_session(session_->id());
  auto received = std::make_shared<absl::Status>(absl::UnavailableError("not received"));
  TENSORD_RETURN_IF_ERROR(upload_->Await(
      principal_, spec, [received](const absl::Status& status) { *received = status; }));
  TENSORD_RETURN_IF_ERROR(*received);  // a call that would wait counts as failed here
  stop_ = std::make_shared<std::atomic<bool>>(false);
  return upload_->Begin(spec, [stop = stop_] { *stop = true; });
}

void SessionPlayer::Write(const std::string& message) {
  const grpc::Slice slice(message);
  grpc::ByteBuffer buffer(&slice, 1);
  const absl::StatusOr<WriteChunk> chunk = DecodeWriteRequest(&buffer);
  if (!chunk.ok()) return AbortWrite();
  if (upload_ == nullptr) {
    upload_ = std::make_unique<TensorUpload>(&world_->context);
    const absl::Status begun = BeginWrite(chunk->spec);
    if (!begun.ok()) {
      upload_->Fail(begun);
      upload_.reset();
      return;
    }
  }
  StoreChunk(&buffer, *chunk);
}

void SessionPlayer::StoreChunk(grpc::ByteBuffer* message, const WriteChunk& chunk) {
  if (chunk.data_bytes == 0) return;
  const absl::Status status = upload_->Check(chunk.offset, chunk.data_bytes);
  if (!status.ok()) {
    upload_->Fail(status);
    upload_.reset();
    return;
  }
  CopyOut(message, chunk.data_position, chunk.data_bytes, upload_->destination());
  upload_->Advance(chunk.data_bytes);
}

void SessionPlayer::EndWrite() {
  if (upload_ == nullptr) return;
  if (upload_->resumable() && upload_->written_bytes() < upload_->size_bytes()) {
    return AbortWrite();
  }
  upload_->Finish().status().IgnoreError();
  upload_.reset();
}

void SessionPlayer::AbortWrite() { upload_.reset(); }

void SessionPlayer::GetUpload(uint64_t handle) {
  const absl::StatusOr<TensorRef> found = session_->Find(handle);
  if (!found.ok()) return;
  UploadState* const upload = (*found)->upload();
  if (upload != nullptr) {
    upload->Abort([tensor = *found, upload] {
      if (!tensor->done() && upload->parked_bytes() > tensor->spec().size_bytes()) std::abort();
    });
  }
  if (upload_ != nullptr && stop_ != nullptr && *stop_) AbortWrite();
}

void SessionPlayer::Publish(const v1::PublishTensorRequest& request) {
  const absl::StatusOr<TensorRef> found = session_->Find(request.handle());
  if (!found.ok() || !(*found)->done() || !(*found)->status().ok()) return;
  world_->sessions.publications()
      .Publish(session_, request.name(), *found,
               {request.principals().begin(), request.principals().end()})
      .IgnoreError();
}

void SessionPlayer::Open(const v1::OpenPublishedRequest& request) {
  const absl::StatusOr<TensorRef> published =
      world_->sessions.publications().Find(principal_, request.owner(), request.name());
  if (!published.ok() || !(*published)->status().ok()) return;
  session_
      ->Insert(Tensor::Make(request.output(), (*published)->spec(), (*published)->slot(),
                            (*published)->buffer()))
      .IgnoreError();
}

void SessionPlayer::Unpublish(absl::string_view name) {
  world_->sessions.publications().Unpublish(principal_, name).IgnoreError();
}

void SessionPlayer::CreateTicket(const v1::CreateTicketRequest& request) {
  const absl::StatusOr<TensorRef> found = session_->Find(request.handle());
  if (!found.ok() || ((*found)->done() && !(*found)->status().ok())) return;
  absl::StatusOr<std::string> ticket =
      world_->sessions.tickets().Issue(session_, *found, request.destination_epoch());
  if (ticket.ok()) tickets_.push_back(*std::move(ticket));
}

void SessionPlayer::Fetch(const v1::FetchRequest& request) {
  if (tickets_.empty()) return;
  const std::string& ticket = tickets_[request.ticket().size() % tickets_.size()];
  auto use = world_->sessions.tickets().Begin(ticket, ClaimOf(request));
  if (use.ok()) fetches_.push_back(*std::move(use));
}

void SessionPlayer::ReleaseTicket(const v1::ReleaseTicketRequest& request) {
  if (tickets_.empty()) return;
  const std::string& ticket = tickets_[request.ticket().size() % tickets_.size()];
  Tickets& tickets = world_->sessions.tickets();
  const Tickets::Claim claim = ClaimOf(request);
  const bool released = tickets.Release(ticket, claim).ok();
  if (released && tickets.Begin(ticket, claim).ok()) std::abort();
}

void SessionPlayer::EndFetch(bool finished) {
  if (fetches_.empty()) return;
  const Tensor& tensor = *fetches_.front()->tensor();
  if (tensor.done() && tensor.status().ok()) ReadAll(tensor);
  if (finished) fetches_.front()->Finished();
  fetches_.pop_front();
}

}  // namespace tensord::server
