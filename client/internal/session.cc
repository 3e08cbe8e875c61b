#include "tensord/client/internal/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_macros.h"

namespace tensord::internal {
namespace {

// What this library speaks.
constexpr int kMinProtocolVersion = 1;
constexpr int kMaxProtocolVersion = 1;

// Elements that come back on the command stream; more goes by a Read of its own.
constexpr int64_t kMaxFetchBytes = 1024 * 1024;

// For questions that the server answers from what it knows.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);
constexpr absl::Duration kCloseTimeout = absl::Seconds(2);
constexpr absl::Duration kCloseTimeoutWhileReconnecting = absl::Milliseconds(500);

// Of one question: each over another connection, or after a pause that grows to this, as gRPC goes
// on for a moment giving calls to a connection that it has found to be dead.
constexpr int kMostAttempts = 100;
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// UNKNOWN is what gRPC makes of some ways in which a connection breaks.
bool IsBroken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::UNKNOWN;
}

// Before an attempt, the first being 0.
void PauseBefore(int attempt) {
  if (attempt > 1) absl::SleepFor(std::min(absl::Milliseconds(5) * (attempt - 1), kLongestPause));
}

constexpr int kMaxClientNameBytes = 128;
constexpr size_t kMaxErrorBytes = 4096;
constexpr int kListPageSize = 10000;

absl::Status CheckVersion(const ServerInfo& info, absl::string_view address) {
  if (info.min_protocol_version <= kMaxProtocolVersion &&
      info.max_protocol_version >= kMinProtocolVersion) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "tensord server at ", address, " (version ", info.version, ") speaks protocol versions ",
      info.min_protocol_version, " to ", info.max_protocol_version, ", this client ",
      kMinProtocolVersion, " to ", kMaxProtocolVersion, ": update the older of the two"));
}

}  // namespace

Session::Session(std::string address, std::string label, std::unique_ptr<Connection> connection)
    : address_(std::move(address)), label_(std::move(label)), connection_(std::move(connection)) {}

Session::~Session() { Close(); }

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& address,
                                                       const ConnectOptions& options,
                                                       const std::string& label) {
  TENSORD_RETURN_IF_ERROR(CheckAddress(address));
  if (options.client_name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("client_name is longer than ", kMaxClientNameBytes, " bytes"));
  }
  TENSORD_ASSIGN_OR_RETURN(const Credentials credentials, Credentials::Load(address, options));
  std::shared_ptr<Session> session(
      new Session(address, label, std::make_unique<Connection>(address, options, credentials)));
  TENSORD_RETURN_IF_ERROR(session->Greet(options));
  Connection& c = *session->connection_;
  const absl::Duration reconnect = options.reconnect_timeout == absl::ZeroDuration()
                                       ? session->lease_
                                       : options.reconnect_timeout;
  c.stream = std::make_unique<Stream>(
      &c.command_stub, Stream::Options{address, session->id_, credentials, options.spin, reconnect},
      &c.queue, &c.replies, &c.counters, [&c] { c.calls.CancelWaiting(); });
  c.queue.set_on_full([&c] { c.stream->Help(); });
  return session;
}

absl::Status Session::Greet(const ConnectOptions& options) {
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  // Runs one call of the handshake; what fails for want of a server is UNAVAILABLE.
  const auto call = [&](auto method, const auto& request, auto* response) -> absl::Status {
    CallRegistry::Call registered(&connection_->calls);
    registered.context()->set_deadline(absl::ToChronoTime(deadline));
    const grpc::Status status =
        (connection_->stub.get()->*method)(registered.context(), request, response);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(absl::StrCat("tensord server at ", address_, ": no answer in ",
                                                 absl::FormatDuration(options.connect_timeout)));
    }
    return StatusFromGrpc(status, address_);
  };
  using Stub = v1::TensorService::Stub;

  v1::ServerInfo info;
  TENSORD_RETURN_IF_ERROR(call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info));
  info_ = ServerInfoFromProto(info);
  if (options.shared_memory) connection_->shared_memory.Enable(info.boot_id());
  TENSORD_RETURN_IF_ERROR(CheckVersion(info_, address_));

  v1::ListDevicesResponse devices;
  TENSORD_RETURN_IF_ERROR(call(&Stub::ListDevices, v1::ListDevicesRequest(), &devices));
  for (const v1::Device& device : devices.devices()) {
    TENSORD_ASSIGN_OR_RETURN(DeviceInfo converted, DeviceFromProto(device));
    devices_.push_back(std::move(converted));
  }

  v1::OpenSessionRequest request;
  request.set_lease_seconds(absl::ToInt64Seconds(options.lease));
  request.set_client_name(options.client_name);
  v1::Session session;
  TENSORD_RETURN_IF_ERROR(call(&Stub::OpenSession, request, &session));
  id_ = session.session();
  number_ = session.session_number();
  lease_ = absl::Seconds(session.lease_seconds());
  return absl::OkStatus();
}

const DeviceInfo* Session::FindDevice(DeviceName name) const {
  const auto it = std::find_if(devices_.begin(), devices_.end(),
                               [&](const DeviceInfo& info) { return info.name == name; });
  return it == devices_.end() ? nullptr : &*it;
}

std::string Session::NameOf(DeviceName device) const {
  return label_.empty() ? device.ToString() : absl::StrCat(label_, "/", device.ToString());
}

uint64_t Session::NextHandle() { return connection_->queue.NextHandle(); }

absl::Status Session::Push(const v1::Command& command) {
  TENSORD_RETURN_IF_ERROR(connection_->queue.Push(command));
  connection_->stream->Flush();
  return absl::OkStatus();
}

absl::StatusOr<QueuedOp> Session::SendOp(absl::string_view op, absl::Span<const QueuedInput> inputs,
                                         const Attributes& attrs) {
  absl::StatusOr<QueuedOp> queued = connection_->queue.PushOp(op, inputs, attrs);
  connection_->stream->Flush();
  return queued;
}

absl::StatusOr<uint32_t> Session::DefineOp(absl::string_view op, size_t num_inputs,
                                           const Attributes& attrs) {
  return connection_->queue.Define(op, num_inputs, attrs);
}

absl::StatusOr<uint32_t> Session::SendProgram(DeviceName device,
                                              absl::Span<const TensorSpec> inputs,
                                              absl::Span<const uint32_t> ops,
                                              absl::Span<const uint32_t> outputs) {
  v1::Program program;
  program.set_device(device.ToString());
  for (const TensorSpec& input : inputs) SpecToProto(input, program.add_inputs());
  program.mutable_ops()->Assign(ops.begin(), ops.end());
  program.mutable_outputs()->Assign(outputs.begin(), outputs.end());
  absl::StatusOr<uint32_t> number = connection_->queue.PushProgram(std::move(program));
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
  connection_->queue.PushDropProgram(number);
  connection_->stream->Flush();
}

absl::Status Session::SendCreation(absl::string_view op, DeviceName device, uint64_t output,
                                   const Attributes& attrs) {
  v1::Command command;
  v1::Op* proto = command.mutable_op();
  proto->set_name(op.data(), op.size());
  proto->set_output(output);
  proto->set_device(device.ToString());
  for (const auto& [name, value] : attrs) AttrToProto(value, &(*proto->mutable_attrs())[name]);
  return Push(command);
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
  connection_->queue.PushDrop(handle);
  connection_->stream->Flush();
}

absl::StatusOr<v1::WriteSpec> Session::Promise(uint64_t handle, const TensorSpec& spec,
                                               DeviceName device) {
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
  write.set_after_command(commands_given());
  return write;
}

void Session::FailPromise(uint64_t handle, const absl::Status& error) {
  v1::Command command;
  v1::FailPromise* fail = command.mutable_fail();
  fail->set_handle(handle);
  fail->set_code(error.raw_code());
  fail->set_message(std::string(error.message().substr(0, kMaxErrorBytes)));
  Push(command).IgnoreError();  // where the session has ended the tensor is gone anyway
  connection_->stream->Help();
}

absl::Status Session::SendCollective(const v1::Collective& collective) {
  v1::Command command;
  *command.mutable_collective() = collective;
  TENSORD_RETURN_IF_ERROR(Push(command));
  // The others wait for this member, though this program may not wait for it.
  connection_->stream->Help();
  return absl::OkStatus();
}

void Session::LeaveGroup(uint32_t member) {
  v1::Command command;
  command.set_leave_group(member);
  Push(command).IgnoreError();  // the member goes with its session
}

uint64_t Session::commands_given() {
  connection_->stream->Help();
  return connection_->queue.pushed();
}

absl::Status Session::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  // Where the stream has ended it says better why the call was cancelled or refused.
  const bool lost = status.error_code() == grpc::StatusCode::CANCELLED ||
                    status.error_code() == grpc::StatusCode::UNAVAILABLE;
  const absl::Status ended = connection_->queue.status();
  return lost && !ended.ok() ? ended : StatusFromGrpc(status, address_);
}

bool Session::Recovered(const grpc::Status& status) {
  return IsBroken(status) && connection_->stream->AwaitConnected();
}

template <typename Ask>
absl::Status Session::Insist(Ask ask) {
  grpc::Status status;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    PauseBefore(attempt);
    CallRegistry::Call call(&connection_->calls);
    // A connection that has broken is given the time to be made anew.
    call.context()->set_wait_for_ready(attempt > 0);
    status = ask(&call);
    if (!Recovered(status)) break;
  }
  return Outcome(status);
}

// Where the upload broke off with its connection: finds out how far it had come, and goes on.
grpc::Status Session::FinishUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                                   const TransferOptions& options, grpc::Status status) {
  v1::GetUploadRequest question;
  question.set_session(write.session());
  question.set_handle(write.handle());
  question.set_after_command(write.after_command());
  // A call that was sent over the broken connection may arrive late, and bring more, or be the one
  // that is under way: then ours ends with ABORTED.
  const auto broke_off = [&] {
    return status.error_code() == grpc::StatusCode::ABORTED || Recovered(status);
  };
  for (int attempt = 0; attempt < kMostAttempts && broke_off(); ++attempt) {
    PauseBefore(attempt);
    v1::Upload upload;
    CallRegistry::Call asking(&connection_->calls);
    asking.context()->set_wait_for_ready(true);
    status = connection_->stub->GetUpload(asking.context(), question, &upload);
    if (!status.ok()) continue;
    if (upload.done()) return status;
    status = internal::Upload(&connection_->bulk_stub, &connection_->calls,
                              /*wait_for_ready=*/true, write, data, upload.received_bytes(),
                              options.progress);
  }
  return status;
}

absl::Status Session::Upload(uint64_t handle, const TensorSpec& spec, DeviceName device,
                             absl::Span<const uint8_t> data, const TransferOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(const v1::WriteSpec write, Promise(handle, spec, device));
  WaitTimer timer(&connection_->counters, WaitKind::kUpload, {"upload", handle, &spec});
  const std::optional<grpc::Status> shared =
      connection_->shared_memory.Upload(write, data, options.progress);
  grpc::Status written;
  if (shared.has_value()) {
    written = *shared;
  } else {
    written =
        internal::Upload(&connection_->bulk_stub, &connection_->calls,
                         /*wait_for_ready=*/false, write, data, /*offset=*/0, options.progress);
  }
  const absl::Status status = Outcome(FinishUpload(write, data, options, std::move(written)));
  if (status.ok()) {
    if (shared.has_value() && shared->ok()) connection_->counters.bytes_shared += data.size();
    connection_->counters.bytes_uploaded += static_cast<int64_t>(data.size());
  } else {
    Drop(handle);
  }
  return status;
}

absl::Status Session::FillPromise(const v1::WriteSpec& write, absl::Span<const uint8_t> data) {
  // As if an upload had broken off: something of it may be there.
  const grpc::Status status = FinishUpload(
      write, data, TransferOptions(), grpc::Status(grpc::StatusCode::UNAVAILABLE, "not begun"));
  if (status.ok()) connection_->counters.bytes_uploaded += static_cast<int64_t>(data.size());
  return Outcome(status);
}

absl::Status Session::Download(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out,
                               const TransferOptions& options) {
  WaitTimer timer(&connection_->counters, WaitKind::kRead, {"read", handle, &spec});
  if (spec.size_bytes() <= kMaxFetchBytes) {
    TENSORD_RETURN_IF_ERROR(Fetch(handle, spec, out));
    if (options.progress) options.progress(spec.size_bytes(), spec.size_bytes());
    return absl::OkStatus();
  }
  TENSORD_RETURN_IF_ERROR(status());
  v1::ReadRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  connection_->stream->Help();
  request.set_after_command(connection_->queue.pushed());
  const std::optional<grpc::Status> shared =
      connection_->shared_memory.Download(request, out, options.progress);
  absl::Status status;
  if (shared.has_value() && !Recovered(*shared)) {
    status = Outcome(*shared);
  } else {
    int64_t filled = 0;
    status = Insist([&](CallRegistry::Call* call) {
      request.set_offset(filled);
      return internal::Download(&connection_->bulk_stub, call, request, out, &filled,
                                options.progress);
    });
  }
  if (status.ok()) {
    if (shared.has_value() && shared->ok()) connection_->counters.bytes_shared += out.size();
    connection_->counters.bytes_downloaded += static_cast<int64_t>(out.size());
  } else {
    connection_->replies.MarkTold(status);
  }
  return status;
}

absl::Status Session::Fetch(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out) {
  const uint64_t id = connection_->replies.Expect();
  v1::Command command;
  command.mutable_fetch()->set_handle(handle);
  command.mutable_fetch()->set_fetch_id(id);
  const absl::Status pushed = connection_->queue.Push(command);
  if (!pushed.ok()) {
    connection_->replies.Forget(id);
    return pushed;
  }
  TENSORD_ASSIGN_OR_RETURN(const v1::Fetched fetched, connection_->stream->Await(id));
  if (fetched.data().size() != out.size()) {
    return absl::InternalError(absl::StrCat("the server sent ", fetched.data().size(),
                                            " bytes for ", spec.ToString(), ", handle ", handle));
  }
  if (!out.empty()) std::memcpy(out.data(), fetched.data().data(), out.size());
  return absl::OkStatus();
}

absl::Status Session::Await(uint64_t handle) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::GetTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  connection_->stream->Help();
  request.set_after_command(connection_->queue.pushed());
  v1::Tensor tensor;
  WaitTimer timer(&connection_->counters, WaitKind::kTensor, {"tensor", handle});
  const absl::Status status = Insist([&](CallRegistry::Call* call) {
    return connection_->stub->GetTensor(call->context(), request, &tensor);
  });
  if (!status.ok()) connection_->replies.MarkTold(status);
  return status;
}

absl::Status Session::Publish(uint64_t handle, absl::string_view name,
                              const std::vector<std::string>& principals) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::PublishTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  request.set_name(std::string(name));
  for (const std::string& principal : principals) request.add_principals(principal);
  connection_->stream->Help();
  request.set_after_command(connection_->queue.pushed());
  v1::PublishTensorResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kTensor, {"tensor", handle});
  const absl::Status published = Insist([&](CallRegistry::Call* call) {
    return connection_->stub->PublishTensor(call->context(), request, &response);
  });
  if (!published.ok()) connection_->replies.MarkTold(published);
  return published;
}

absl::Status Session::Unpublish(absl::string_view name) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::UnpublishTensorRequest request;
  request.set_session(id_);
  request.set_name(std::string(name));
  v1::UnpublishTensorResponse response;
  int attempts = 0;
  const absl::Status status = Insist([&](CallRegistry::Call* call) {
    ++attempts;
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->UnpublishTensor(call->context(), request, &response);
  });
  // The attempt whose answer was lost may have taken the name back.
  return attempts > 1 && absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<TensorInfo> Session::OpenPublished(absl::string_view name, absl::string_view owner) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::OpenPublishedRequest request;
  request.set_session(id_);
  request.set_output(NextHandle());
  request.set_name(std::string(name));
  request.set_owner(std::string(owner));
  v1::Tensor tensor;
  TENSORD_RETURN_IF_ERROR(Insist([&](CallRegistry::Call* call) {
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->OpenPublished(call->context(), request, &tensor);
  }));
  return TensorFromProto(tensor);
}

absl::Status Session::Barrier() {
  const uint64_t sent = connection_->queue.pushed();
  if (sent == settled_commands_.load()) return status();
  const uint64_t id = connection_->replies.Expect();
  v1::Command command;
  command.mutable_barrier()->set_barrier_id(id);
  const absl::Status pushed = connection_->queue.Push(command);
  if (!pushed.ok()) {
    connection_->replies.Forget(id);
    return pushed;
  }
  WaitTimer timer(&connection_->counters, WaitKind::kSynchronize, {"everything sent so far"});
  TENSORD_RETURN_IF_ERROR(connection_->stream->Await(id).status());
  settled_commands_ = sent + 1;  // the barrier was a command too
  return absl::OkStatus();
}

absl::Status Session::Synchronize() {
  TENSORD_RETURN_IF_ERROR(Barrier());
  return connection_->replies.TakeError();
}

absl::StatusOr<ServerInfo> Session::GetServerInfo() {
  TENSORD_RETURN_IF_ERROR(status());
  v1::ServerInfo info;
  WaitTimer timer(&connection_->counters, WaitKind::kQuestion, {"GetServerInfo"});
  TENSORD_RETURN_IF_ERROR(Insist([&](CallRegistry::Call* call) {
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->GetServerInfo(call->context(), v1::GetServerInfoRequest(), &info);
  }));
  return ServerInfoFromProto(info);
}

absl::StatusOr<PeerCheck> Session::CheckPeer(absl::string_view address) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::CheckPeerRequest request;
  request.set_address(std::string(address));
  v1::CheckPeerResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kQuestion, {"CheckPeer"});
  TENSORD_RETURN_IF_ERROR(Insist([&](CallRegistry::Call* call) {
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->CheckPeer(call->context(), request, &response);
  }));
  return PeerCheck{StatusFromCode(response.code(), response.message(), ""),
                   ServerInfoFromProto(response.server()),
                   absl::Nanoseconds(response.round_trip_nanoseconds())};
}

absl::StatusOr<std::vector<DeviceInfo>> Session::ListDevices() {
  TENSORD_RETURN_IF_ERROR(Barrier());
  v1::ListDevicesResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kQuestion, {"ListDevices"});
  TENSORD_RETURN_IF_ERROR(Insist([&](CallRegistry::Call* call) {
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->ListDevices(call->context(), v1::ListDevicesRequest(), &response);
  }));
  std::vector<DeviceInfo> devices;
  for (const v1::Device& device : response.devices()) {
    TENSORD_ASSIGN_OR_RETURN(DeviceInfo info, DeviceFromProto(device));
    devices.push_back(std::move(info));
  }
  return devices;
}

absl::StatusOr<std::vector<TensorInfo>> Session::ListTensors(bool all_sessions) {
  TENSORD_RETURN_IF_ERROR(Barrier());
  v1::ListTensorsRequest request;
  request.set_session(all_sessions ? "-" : id_);
  request.set_page_size(kListPageSize);
  std::vector<TensorInfo> tensors;
  WaitTimer timer(&connection_->counters, WaitKind::kQuestion, {"ListTensors"});
  do {
    v1::ListTensorsResponse response;
    TENSORD_RETURN_IF_ERROR(Insist([&](CallRegistry::Call* call) {
      call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
      return connection_->stub->ListTensors(call->context(), request, &response);
    }));
    for (const v1::Tensor& tensor : response.tensors()) {
      TENSORD_ASSIGN_OR_RETURN(TensorInfo info, TensorFromProto(tensor));
      tensors.push_back(std::move(info));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return tensors;
}

absl::Status Session::status() const { return connection_->queue.status(); }

bool Session::connected() const { return connection_->stream->connected(); }

ClientStats Session::stats() const { return StatsFromCounters(connection_->counters); }

// Where it doesn't get through, the lease ends the session.
void Session::EndAtServer(bool stands, bool connected) {
  const absl::Time deadline =
      absl::Now() + (connected ? kCloseTimeout : kCloseTimeoutWhileReconnecting);
  for (int attempt = 0; attempt < kMostAttempts && absl::Now() < deadline; ++attempt) {
    PauseBefore(attempt);
    grpc::ClientContext context;
    connection_->calls.credentials().AddTo(&context);
    context.set_deadline(absl::ToChronoTime(deadline));
    context.set_wait_for_ready(stands);
    v1::CloseSessionRequest request;
    request.set_session(id_);
    v1::CloseSessionResponse response;
    const grpc::Status status = connection_->stub->CloseSession(&context, request, &response);
    if (!stands || !IsBroken(status)) return;
  }
}

void Session::Close() {
  MutexLock lock(&close_mu_);
  if (closed_) return;
  closed_ = true;
  const bool stands = status().ok();
  const bool connected = connection_->stream != nullptr && connection_->stream->connected();
  const absl::Status reason = absl::FailedPreconditionError(
      absl::StrCat("the connection to the tensord server at ", address_, " has been closed"));
  connection_->queue.Close(reason);
  connection_->replies.Fail(reason);
  connection_->calls.CancelAll();
  connection_->shared_memory.Close();
  if (connection_->stream != nullptr) connection_->stream->Stop();
  if (!id_.empty()) EndAtServer(stands, connected);
}

}  // namespace tensord::internal
