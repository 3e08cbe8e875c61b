// The handshake of Connect: identifies the server, lists its devices and opens a session.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/connect_failure.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/session_retry.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// The protocol versions that this library supports.
constexpr int kMinProtocolVersion = 1;
constexpr int kMaxProtocolVersion = 1;

// The pause between attempts to connect doubles from the first of these to the second.
constexpr absl::Duration kMinConnectPause = absl::Milliseconds(50);
constexpr absl::Duration kMaxConnectPause = absl::Seconds(1);
// Connect fails after so many of these failures in a row.
constexpr int kMaxBrokenAttempts = 10;
constexpr int kMaxUnresolvedAttempts = 2;
constexpr int kMaxClosedAttempts = 5;

// Counts consecutive failures of one kind, to decide when to stop trying.
class ConnectFailureCounter {
 public:
  bool ShouldGiveUp(ConnectFailure failure) {
    consecutive_ = failure == last_ ? consecutive_ + 1 : 1;
    last_ = failure;
    switch (failure) {
      case ConnectFailure::kFinal:
        return true;
      case ConnectFailure::kUnresolved:
        return consecutive_ >= kMaxUnresolvedAttempts;
      case ConnectFailure::kClosed:
        return consecutive_ >= kMaxClosedAttempts;
      case ConnectFailure::kBroken:
        return consecutive_ >= kMaxBrokenAttempts;
      case ConnectFailure::kUnreachable:
        break;
    }
    return false;
  }

 private:
  ConnectFailure last_ = ConnectFailure::kUnreachable;
  int consecutive_ = 0;
};

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

absl::Status Session::Handshake(const ConnectOptions& options) {
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  const bool uses_tls = connection_->calls.credentials().uses_tls();
  // Makes one call of the handshake, with retries. If no server can be reached, returns
  // UNAVAILABLE.
  const auto call = [&](auto method, const auto& request, auto* response) -> absl::Status {
    ConnectFailureCounter failures;
    std::string last_failure;
    absl::Duration pause = kMinConnectPause;
    const auto no_answer = [&] {
      return absl::UnavailableError(absl::StrCat("tensord server at ", address_, ": no answer in ",
                                                 absl::FormatDuration(options.connect_timeout),
                                                 last_failure.empty() ? "" : "; ", last_failure,
                                                 DescribeProxy(address_)));
    };
    while (true) {
      CallRegistry::Call registered(&connection_->calls);
      const Interruption::CallScope interruptible(registered.context());
      registered.context()->set_deadline(absl::ToChronoTime(deadline));
      const grpc::Status status =
          (connection_->stub.get()->*method)(registered.context(), request, response);
      if (Interruption::Interrupted()) return InterruptedError();
      if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return no_answer();
      const ConnectFailure failure = ClassifyConnectFailure(status.error_message());
      if (!IsBroken(status)) return StatusFromGrpc(status, address_);
      last_failure = DescribeConnectFailure(status.error_message(), uses_tls);
      if (failures.ShouldGiveUp(failure)) {
        return StatusFromGrpc(
            {status.error_code(), last_failure + DescribeProxy(address_), status.error_details()},
            address_);
      }
      if (absl::Now() + pause > deadline) return no_answer();
      if (failure == ConnectFailure::kBroken) continue;
      SleepUnlessInterrupted(pause);
      pause = std::min(2 * pause, kMaxConnectPause);
      // The old channel would fail calls with its last failure until its own backoff is over.
      connection_->RenewUnaryChannel();
    }
  };
  using Stub = v1::TensorService::Stub;

  v1::ServerInfo info;
  TENSORD_RETURN_IF_ERROR(call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info));
  info_ = ServerInfoFromProto(info);
  if (options.shared_memory) connection_->shared_memory.Enable(info.boot_id());
  TENSORD_RETURN_IF_ERROR(CheckVersion(info_, address_));
  dtype_support_ = DTypeSupport(info_, address_);
  connection_->queue.set_dtype_support(dtype_support_);

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

}  // namespace tensord::internal
