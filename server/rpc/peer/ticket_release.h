// Releases the ticket of a pull that has ended without its tensor.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/session/principal.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// One call of ReleaseTicket, so that the source frees the ticket and its tensor at once. If the
// call fails, or doesn't end within kTimeout, it isn't repeated: the ticket expires after a minute.
// Runs on the thread of the peers' queue. Its operation on the queue keeps it alive.
class TicketRelease final : public PeerOperation,
                            public std::enable_shared_from_this<TicketRelease> {
 public:
  static constexpr std::chrono::seconds kTimeout{2};

  // `peers` outlives the call. `counted` counts the pull against its principal's limit until the
  // call has ended, so that limit also bounds these calls.
  TicketRelease(Peers* peers, Charge counted) : peers_(peers), counted_(std::move(counted)) {}

  // Starts the call. Call it once, from any thread.
  void Start(const std::string& address, const v1::ReleaseTicketRequest& request);
  // Ends the call. Thread-safe.
  void Cancel() override { context_.TryCancel(); }

 private:
  friend class CallEvent<TicketRelease>;

  // Ignores the status: see above.
  void OnFinished(bool ok);
  void AfterEvent() {}
  const void* event_owner() const { return nullptr; }

  Peers* const peers_;
  Charge counted_;
  CallEvent<TicketRelease> finished_{&TicketRelease::OnFinished};
  grpc::ClientContext context_;
  // Destroyed before context_.
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ReleaseTicketResponse>> call_;
  v1::ReleaseTicketResponse response_;
  grpc::Status status_;
};

}  // namespace tensord::server
