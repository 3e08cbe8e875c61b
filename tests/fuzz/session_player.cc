#include "tensord/tests/fuzz/session_player.h"

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

}  // namespace

FuzzWorld::FuzzWorld()
    : engine(Devices(), /*fusion=*/true, /*graphs=*/true, Executor::Threading::kByHand),
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
}

class SessionPlayer::Wire final : public CommandWire {
 public:
  void Resume() override {}
  void Supersede() override { superseded_ = true; }
  bool superseded() const { return superseded_; }

 private:
  std::atomic<bool> superseded_{false};
};

SessionPlayer::SessionPlayer(FuzzWorld* world, absl::string_view principal)
    : world_(world), principal_(TestPrincipal(principal)) {
  absl::StatusOr<SessionRef> session = world_->sessions.Open(principal_, 0, "fuzz");
  if (!session.ok()) std::abort();
  session_ = *std::move(session);
  auto commands = SessionCommands::Of(&world_->context, session_);
  if (!commands.ok()) std::abort();
  commands_ = *std::move(commands);
}

SessionPlayer::~SessionPlayer() {
  Cut(/*noticed=*/true);
  for (const std::shared_ptr<Wire>& wire : broken_) commands_->Detach(wire.get());
  BreakOffWrite();
  if (!world_->sessions.Close(principal_, session_->id()).ok()) std::abort();
}

void SessionPlayer::Send(const v1::SessionStreamRequest& message) {
  if (!commands_->MayRead()) {  // the server wouldn't read
    world_->Drain();
    Read(/*must_ack=*/true);
    if (!commands_->MayRead()) return;
  }
  absl::Status status;
  if (wire_ == nullptr) {
    auto wire = std::make_shared<Wire>();
    status = commands_->Attach(wire, message.attach(), message.answers_received());
    if (!status.ok()) return;
    wire_ = std::move(wire);
  } else if (wire_->superseded()) {
    std::abort();  // no other connection has attached
  }
  using Progress = SessionCommands::Progress;
  // This deadline has passed, so the message is applied in as many slices as possible.
  constexpr SessionCommands::Clock::time_point kPassed;
  absl::StatusOr<Progress> progress =
      commands_->Apply(wire_.get(), message, static_cast<int64_t>(message.ByteSizeLong()), kPassed);
  while (progress.ok() && *progress != Progress::kDone) {
    const bool timed_out = *progress == Progress::kTimedOut;
    progress = commands_->Continue(message, timed_out ? kPassed : PackedOps::kNoDeadline);
  }
  if (!progress.ok()) Cut(/*noticed=*/true);
}

void SessionPlayer::Cut(bool noticed) {
  if (wire_ == nullptr) return;
  if (noticed) {
    commands_->Detach(wire_.get());
  } else {
    broken_.push_back(wire_);
  }
  wire_.reset();
}

void SessionPlayer::Read(bool must_ack) {
  if (wire_ == nullptr) return;
  v1::SessionStreamResponse response;
  std::vector<SessionCommands::ReadyElements> fetches;
  while (commands_->NextResponse(wire_.get(), must_ack, &response, &fetches)) {
    if (response.commands_received() < received_) std::abort();
    received_ = response.commands_received();
    response.Clear();
  }
  for (const SessionCommands::ReadyElements& fetch : fetches) {
    if (!fetch.status.ok()) continue;
    std::string data(fetch.tensor->spec().size_bytes(), '\0');
    if (data.empty()) continue;
    const auto read = fetch.tensor->device().Read(*fetch.tensor->buffer(), 0, data.data(),
                                                  static_cast<int64_t>(data.size()));
    if (!read.ok()) std::abort();
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
  if (!chunk.ok()) return BreakOffWrite();
  if (upload_ == nullptr) {
    upload_ = std::make_unique<TensorUpload>(&world_->context);
    const absl::Status begun = BeginWrite(chunk->spec);
    if (!begun.ok()) {
      upload_->Fail(begun);
      upload_.reset();
      return;
    }
  }
  Land(&buffer, *chunk);
}

void SessionPlayer::Land(grpc::ByteBuffer* message, const WriteChunk& chunk) {
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
    return BreakOffWrite();
  }
  upload_->Finish().status().IgnoreError();
  upload_.reset();
}

void SessionPlayer::BreakOffWrite() { upload_.reset(); }

void SessionPlayer::GetUpload(uint64_t handle) {
  const absl::StatusOr<TensorRef> found = session_->Find(handle);
  if (!found.ok()) return;
  (*found)->StopUpload([tensor = *found] {
    if (!tensor->done() && tensor->parked_bytes() > tensor->spec().size_bytes()) std::abort();
  });
  if (upload_ != nullptr && stop_ != nullptr && *stop_) BreakOffWrite();
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

}  // namespace tensord::server
