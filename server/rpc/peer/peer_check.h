// Checks whether this server can reach another server and may fetch from it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// Requests GetServerInfo twice. The second request uses the established connection and measures the
// round trip. Then calls ReleaseTicket with an invalid ticket: TICKET_REFUSED shows that the other
// server admits this one as a peer. Runs on the thread of the peers' queue.
class PeerCheck final : public PeerOperation, public std::enable_shared_from_this<PeerCheck> {
 public:
  using Done = std::function<void(const v1::CheckPeerResponse&)>;

  // `address` must be listed (Peers::CheckListed). `peers` outlives the check.
  PeerCheck(Peers* peers, std::string address, Done done)
      : peers_(peers), address_(std::move(address)), done_(std::move(done)) {}

  // Starts the check. Call it once. `done` runs on the queue's thread within the peers' timeout.
  void Start();
  // Ends the check with an error. Thread-safe.
  void Cancel() override;

 private:
  friend class CallEvent<PeerCheck>;
  using Event = CallEvent<PeerCheck>;

  void RequestInfo();
  void OnInfo(bool ok);
  void OnReleased(bool ok);
  void AfterEvent() {}
  const void* event_owner() const { return nullptr; }
  // Makes the context of the next call.
  void Prepare();
  void End(const grpc::Status& status);

  Peers* const peers_;
  const std::string address_;
  const Done done_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TensorService::Stub> stub_;

  Event info_{&PeerCheck::OnInfo};
  Event released_{&PeerCheck::OnReleased};
  std::chrono::system_clock::time_point deadline_;
  std::chrono::steady_clock::time_point info_requested_at_;
  bool info_requested_twice_ = false;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // Only the queue's thread writes it, with the lock held. That thread reads it without the lock.
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ServerInfo>> info_call_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ReleaseTicketResponse>> release_call_;
  v1::ReleaseTicketResponse release_response_;
  grpc::Status status_;
  v1::CheckPeerResponse response_;
};

}  // namespace tensord::server
