#include "tensord/client/internal/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session_retry.h"
#include "tensord/client/internal/stream_connection.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/gpu_names.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/utf8.h"

namespace tensord::internal {
namespace {

constexpr absl::Duration kCloseTimeout = absl::Seconds(2);
constexpr absl::Duration kCloseTimeoutWhileReconnecting = absl::Milliseconds(500);

constexpr int kMaxClientNameBytes = 128;
constexpr size_t kMaxErrorBytes = 4096;

}  // namespace

Session::Session(std::string address, std::string label, std::unique_ptr<Connection> connection)
    : address_(std::move(address)), label_(std::move(label)), connection_(std::move(connection)) {}

Session::~Session() {
  if (InForkedChild()) {
    LeakObject(std::move(connection_));
  } else {
    Close();
  }
}

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& address,
                                                       const ConnectOptions& options,
                                                       const std::string& label) {
  if (InForkedChild()) return ForkedError();
  TENSORD_RETURN_IF_ERROR(CheckAddress(address));
  if (options.client_name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("client_name has ", options.client_name.size(),
                                                   " bytes; at most ", kMaxClientNameBytes));
  }
  TENSORD_ASSIGN_OR_RETURN(const Credentials credentials, Credentials::Load(address, options));
  RecordConnect();
  std::shared_ptr<Session> session(
      new Session(address, label, std::make_unique<Connection>(address, options, credentials)));
  TENSORD_RETURN_IF_ERROR(session->Handshake(options));
  Connection& c = *session->connection_;
  const absl::Duration reconnect = options.reconnect_timeout == absl::ZeroDuration()
                                       ? session->lease_
                                       : options.reconnect_timeout;
  c.stream = std::make_unique<Stream>(
      &c.command_stub, Stream::Options{address, session->id_, credentials, options.spin, reconnect},
      &c.queue, &c.replies, &c.counters, [&c] { c.calls.CancelWaiting(); });
  c.queue.set_on_full([&c] { c.stream->ResumeBackgroundPolling(); });
  return session;
}

const DeviceInfo* Session::FindDevice(DeviceName name) const {
  const auto it = std::find_if(devices_.begin(), devices_.end(),
                               [&](const DeviceInfo& info) { return info.name == name; });
  return it == devices_.end() ? nullptr : &*it;
}

absl::StatusOr<DeviceName> Session::ParseDevice(absl::string_view name) const {
  TENSORD_ASSIGN_OR_RETURN(const DeviceName id, ParseDeviceName(name));
  if (FindDevice(id) != nullptr) return id;
  const auto append = [](std::string* out, const DeviceInfo& info) {
    out->append(info.name.ToString());
  };
  const auto unavailable = info_.unavailable_devices.find(std::string(id.kind.name()));
  return absl::NotFoundError(absl::StrCat("no device ", id.ToString(), " on ", address_,
                                          "; it has ", absl::StrJoin(devices_, ", ", append),
                                          unavailable == info_.unavailable_devices.end()
                                              ? ""
                                              : NoDeviceOfKind(id.kind, unavailable->second),
                                          GpuNameHint(id.kind)));
}

std::string Session::NameOf(DeviceName device) const {
  return label_.empty() ? device.ToString() : absl::StrCat(label_, "/", device.ToString());
}

uint64_t Session::NextHandle() {
  // Another thread of the parent may have held the queue's lock. The call that uses the handle
  // returns ForkedError().
  if (InForkedChild()) return 0;
  return connection_->queue.NextHandle();
}

absl::Status Session::Push(const v1::Command& command) {
  if (InForkedChild()) return ForkedError();
  TENSORD_RETURN_IF_ERROR(connection_->queue.Push(command));
  connection_->stream->Flush();
  return absl::OkStatus();
}

absl::Status Session::SendOp(const OpToQueue& op, QueuedOp* queued) {
  if (InForkedChild()) return ForkedError();
  TENSORD_RETURN_IF_ERROR(connection_->queue.PushOp(op, queued));
  connection_->stream->Flush();
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Session::SendProgram(DeviceName device,
                                              absl::Span<const TensorSpec> inputs,
                                              absl::Span<const ProgramOp> ops,
                                              absl::Span<const uint32_t> outputs) {
  if (InForkedChild()) return ForkedError();
  v1::Program program;
  program.set_device(device.ToString());
  for (const TensorSpec& input : inputs) SpecToProto(input, program.add_inputs());
  program.mutable_outputs()->Assign(outputs.begin(), outputs.end());
  absl::StatusOr<uint32_t> number = connection_->queue.PushProgram(std::move(program), ops);
  connection_->stream->Flush();
  return number;
}

absl::Status Session::SendRun(uint32_t program, absl::Span<const uint64_t> inputs,
                              size_t num_outputs, std::vector<uint64_t>* outputs) {
  v1::Command command;
  v1::ProgramRun* run = command.mutable_run();
  run->set_number(program);
  run->mutable_inputs()->Assign(inputs.begin(), inputs.end());
  for (size_t i = 0; i < num_outputs; ++i) run->add_outputs(NextHandle());
  outputs->assign(run->outputs().begin(), run->outputs().end());
  return Push(command);
}

void Session::DropProgram(uint32_t number) {
  if (InForkedChild()) return;
  connection_->queue.PushDropProgram(number);
  connection_->stream->Flush();
}

absl::Status Session::SendCopy(uint64_t input, uint64_t output, DeviceName device) {
  v1::Command command;
  v1::Copy* copy = command.mutable_copy();
  copy->set_input(input);
  copy->set_output(output);
  copy->set_device(device.ToString());
  return Push(command);
}

void Session::Drop(uint64_t handle) {
  if (InForkedChild()) return;
  connection_->queue.PushDrop(handle);
  connection_->stream->Flush();
}

absl::StatusOr<v1::WriteSpec> Session::Promise(uint64_t handle, const TensorSpec& spec,
                                               DeviceName device) {
  TENSORD_RETURN_IF_ERROR(CheckDType("transfer", spec.dtype));
  v1::Command command;
  v1::Promise* promise = command.mutable_promise();
  promise->set_handle(handle);
  SpecToProto(spec, promise->mutable_spec());
  promise->set_device(device.ToString());
  v1::WriteSpec write;
  write.set_session(id_);
  write.set_handle(handle);
  *write.mutable_spec() = promise->spec();
  write.set_device(promise->device());
  write.set_resumable(true);
  TENSORD_RETURN_IF_ERROR(Push(command));
  write.set_after_command(FlushCommands());
  return write;
}

void Session::FailPromise(uint64_t handle, const absl::Status& error) {
  v1::Command command;
  v1::FailPromise* fail = command.mutable_fail();
  fail->set_handle(handle);
  fail->set_code(error.raw_code());
  fail->set_message(ToUtf8(error.message(), kMaxErrorBytes));
  // If the session has ended, no error is needed: the server frees all its tensors.
  if (Push(command).ok()) connection_->stream->ResumeBackgroundPolling();
}

absl::Status Session::SendCollective(const v1::Collective& collective) {
  v1::Command command;
  *command.mutable_collective() = collective;
  TENSORD_RETURN_IF_ERROR(Push(command));
  // The other members wait for this one, even if this program doesn't wait for the result.
  connection_->stream->ResumeBackgroundPolling();
  return absl::OkStatus();
}

void Session::LeaveGroup(uint32_t member) {
  if (InForkedChild()) return;
  v1::Command command;
  command.set_finish_member(member);
  Push(command).IgnoreError();  // if the session has ended, the server has freed the member
}

uint64_t Session::FlushCommands() {
  if (InForkedChild()) return 0;
  connection_->stream->ResumeBackgroundPolling();
  return connection_->queue.pushed();
}

absl::Status Session::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  // If the stream has ended, its reason explains the failure better than the call's status.
  const bool lost = status.error_code() == grpc::StatusCode::CANCELLED ||
                    status.error_code() == grpc::StatusCode::UNAVAILABLE;
  const absl::Status error = StatusFromGrpc(status, address_);
  const bool closed = ErrorReason(error) == "SESSION_NOT_FOUND";
  const absl::Status ended = connection_->queue.status();
  if ((lost || closed) && !ended.ok()) return ended;
  return closed ? SessionEndedError(address_, error.message()) : error;
}

bool Session::AwaitReconnect(const grpc::Status& status) {
  return IsBroken(status) && connection_->stream->AwaitConnected();
}

absl::Status Session::status() const {
  if (InForkedChild()) return ForkedError();
  return connection_->queue.status();
}

bool Session::connected() const { return !InForkedChild() && connection_->stream->connected(); }

ClientStats Session::stats() const { return StatsFromCounters(connection_->counters); }

// If the call doesn't reach the server, or the calling thread is interrupted, the lease ends the
// session.
void Session::EndAtServer(bool alive, bool connected) {
  const absl::Time deadline =
      absl::Now() + (connected ? kCloseTimeout : kCloseTimeoutWhileReconnecting);
  for (int attempt = 0; attempt < kMaxAttempts && absl::Now() < deadline; ++attempt) {
    PauseBefore(attempt);
    grpc::ClientContext context;
    const Interruption::CallScope interruptible(&context);
    connection_->calls.credentials().AddTo(&context);
    context.set_deadline(absl::ToChronoTime(deadline));
    context.set_wait_for_ready(alive);
    v1::CloseSessionRequest request;
    request.set_session(id_);
    v1::CloseSessionResponse response;
    const grpc::Status status = connection_->stub->CloseSession(&context, request, &response);
    if (!alive || !IsBroken(status)) return;
  }
}

void Session::Close() {
  if (InForkedChild()) return;
  MutexLock lock(&close_mu_);
  if (closed_) return;
  closed_ = true;
  const bool alive = status().ok();
  const bool connected = connection_->stream != nullptr && connection_->stream->connected();
  const absl::Status reason = absl::FailedPreconditionError(
      absl::StrCat("Client::Close has closed the connection to the tensord server at ", address_,
                   "; make a new Client with Client::Connect"));
  connection_->queue.Close(reason);
  connection_->replies.Fail(reason);
  connection_->calls.CancelAll();
  connection_->shared_memory.Close();
  if (connection_->stream != nullptr) connection_->stream->Stop();
  if (!id_.empty()) EndAtServer(alive, connected);
}

}  // namespace tensord::internal
