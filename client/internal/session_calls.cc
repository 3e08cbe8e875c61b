// The session's unary calls, which wait for the server's answer.
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/mark.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/session_retry.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// The time limit of calls that the server answers without waiting for ops.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);
constexpr int kListPageSize = 10000;

using Stub = v1::TensorService::Stub;

// Makes the call GetTensor. While it waits, looks for an interruption of the calling thread, which
// cancels the call (Interruption::CallScope).
grpc::Status GetTensor(Stub* stub, grpc::ClientContext* context,
                       const v1::GetTensorRequest& request, v1::Tensor* tensor) {
  if (Interruption::OfThisThread() == nullptr) return stub->GetTensor(context, request, tensor);
  grpc::CompletionQueue queue;
  const auto call = stub->AsyncGetTensor(context, request, &queue);
  grpc::Status status;
  call->Finish(tensor, &status, call.get());
  NextOrCheck(&queue);
  return status;
}

}  // namespace

template <typename Method, typename Request, typename Response>
absl::Status Session::Ask(Method method, const Request& request, Response* response,
                          absl::Duration timeout) {
  return CallWithRetry([&](CallRegistry::Call* call) {
    if (timeout < absl::InfiniteDuration()) {
      call->context()->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    return (connection_->stub.get()->*method)(call->context(), request, response);
  });
}

absl::Status Session::Await(uint64_t handle) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::GetTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  request.set_after_command(FlushCommands());
  v1::Tensor tensor;
  WaitTimer timer(&connection_->counters, WaitKind::kTensor, {"tensor", handle});
  const absl::Status status = CallWithRetry([&](CallRegistry::Call* call) {
    return GetTensor(connection_->stub.get(), call->context(), request, &tensor);
  });
  if (!status.ok()) connection_->replies.MarkReported(status);
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
  request.set_after_command(FlushCommands());
  v1::PublishTensorResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kTensor, {"tensor", handle});
  const absl::Status published =
      Ask(&Stub::PublishTensor, request, &response, absl::InfiniteDuration());
  if (!published.ok()) connection_->replies.MarkReported(published);
  return published;
}

absl::Status Session::Unpublish(absl::string_view name) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::UnpublishTensorRequest request;
  request.set_session(id_);
  request.set_name(std::string(name));
  v1::UnpublishTensorResponse response;
  int attempts = 0;
  const absl::Status status = CallWithRetry([&](CallRegistry::Call* call) {
    ++attempts;
    call->context()->set_deadline(absl::ToChronoTime(absl::Now() + kAnswerTimeout));
    return connection_->stub->UnpublishTensor(call->context(), request, &response);
  });
  // An earlier attempt, whose answer was lost, may have removed the name.
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
  TENSORD_RETURN_IF_ERROR(Ask(&Stub::OpenPublished, request, &tensor, kAnswerTimeout));
  return TensorFromProto(tensor);
}

absl::Status Session::Barrier() {
  if (InForkedChild()) return ForkedError();
  const uint64_t sent = connection_->queue.pushed();
  if (sent == settled_commands_.load()) return status();
  const uint64_t id = connection_->replies.Expect();
  v1::Command command;
  command.mutable_barrier()->set_barrier_id(id);
  const absl::Status pushed = connection_->queue.Push(command);
  if (!pushed.ok()) {
    connection_->replies.Remove(id);
    return pushed;
  }
  WaitTimer timer(&connection_->counters, WaitKind::kSynchronize, {"everything sent so far"});
  TENSORD_RETURN_IF_ERROR(connection_->stream->Await(id).status());
  settled_commands_ = sent + 1;  // the barrier is a command, too
  return absl::OkStatus();
}

absl::Status Session::Synchronize() {
  TENSORD_RETURN_IF_ERROR(Barrier());
  return connection_->replies.TakeError();
}

absl::StatusOr<uint64_t> SendMark(Session& session) {
  // If more than 65536 answers aren't acknowledged, the server ends the session. The barrier reads
  // all earlier answers, and the next message acknowledges them.
  constexpr uint64_t kMarksPerBarrier = 1 << 14;
  if (InForkedChild()) return ForkedError();
  Session::Connection& connection = session.connection();
  if (++connection.num_mark_calls % kMarksPerBarrier == 0) {
    const HookedWait hooked;
    TENSORD_RETURN_IF_ERROR(session.Barrier());
  }
  const uint64_t id = connection.replies.Expect();
  v1::Command command;
  command.mutable_barrier()->set_barrier_id(id);
  if (const absl::Status pushed = connection.queue.Push(command); !pushed.ok()) {
    connection.replies.Remove(id);
    return pushed;
  }
  session.FlushCommands();
  return id;
}

bool MarkPassed(Session& session, uint64_t mark) {
  return session.connection().replies.Arrived(mark);
}

absl::StatusOr<std::chrono::steady_clock::time_point> AwaitMark(Session& session, uint64_t mark) {
  Session::Connection& connection = session.connection();
  std::chrono::steady_clock::time_point arrival;
  if (MarkPassed(session, mark)) {
    TENSORD_RETURN_IF_ERROR(connection.replies.Await(mark, &arrival).status());
    return arrival;
  }
  WaitTimer timer(&connection.counters, WaitKind::kSynchronize, {"a mark"});
  TENSORD_RETURN_IF_ERROR(connection.stream->Await(mark, &arrival).status());
  return arrival;
}

void ForgetMark(Session& session, uint64_t mark) { session.connection().replies.Remove(mark); }

absl::StatusOr<ServerInfo> Session::GetServerInfo() {
  TENSORD_RETURN_IF_ERROR(status());
  v1::ServerInfo info;
  WaitTimer timer(&connection_->counters, WaitKind::kInfoCall, {"GetServerInfo"});
  TENSORD_RETURN_IF_ERROR(
      Ask(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, kAnswerTimeout));
  return ServerInfoFromProto(info);
}

absl::StatusOr<PeerCheck> Session::CheckPeer(absl::string_view address) {
  TENSORD_RETURN_IF_ERROR(status());
  v1::CheckPeerRequest request;
  request.set_address(std::string(address));
  v1::CheckPeerResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kInfoCall, {"CheckPeer"});
  TENSORD_RETURN_IF_ERROR(Ask(&Stub::CheckPeer, request, &response, kAnswerTimeout));
  return PeerCheck{StatusFromCode(response.code(), response.message(), ""),
                   ServerInfoFromProto(response.server()),
                   absl::Nanoseconds(response.round_trip_nanoseconds())};
}

absl::StatusOr<std::vector<DeviceInfo>> Session::ListDevices() {
  TENSORD_RETURN_IF_ERROR(Barrier());
  v1::ListDevicesResponse response;
  WaitTimer timer(&connection_->counters, WaitKind::kInfoCall, {"ListDevices"});
  TENSORD_RETURN_IF_ERROR(
      Ask(&Stub::ListDevices, v1::ListDevicesRequest(), &response, kAnswerTimeout));
  std::vector<DeviceInfo> devices;
  for (const v1::Device& device : response.devices()) {
    TENSORD_ASSIGN_OR_RETURN(DeviceInfo info, DeviceFromProto(device));
    devices.push_back(std::move(info));
  }
  return devices;
}

absl::StatusOr<std::vector<TensorInfo>> Session::ListTensors(TensorScope scope) {
  TENSORD_RETURN_IF_ERROR(Barrier());
  v1::ListTensorsRequest request;
  request.set_session(scope == TensorScope::kSession ? id_ : "-");
  request.set_all_principals(scope == TensorScope::kAllPrincipals);
  request.set_page_size(kListPageSize);
  std::vector<TensorInfo> tensors;
  WaitTimer timer(&connection_->counters, WaitKind::kInfoCall, {"ListTensors"});
  do {
    v1::ListTensorsResponse response;
    TENSORD_RETURN_IF_ERROR(Ask(&Stub::ListTensors, request, &response, kAnswerTimeout));
    for (const v1::Tensor& tensor : response.tensors()) {
      TENSORD_ASSIGN_OR_RETURN(TensorInfo info, TensorFromProto(tensor));
      tensors.push_back(std::move(info));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return tensors;
}

}  // namespace tensord::internal
