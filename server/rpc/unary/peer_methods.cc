// The methods that copy tensors between servers.
#include <memory>
#include <utility>

#include "tensord/server/rpc/peer/peer_check.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/pull_table.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {
namespace {

constexpr size_t kMaxEpochBytes = 64;

absl::Status IssueTicket(SessionTable& sessions, const SessionRef& session, Handle handle,
                         const std::string& destination_epoch, v1::Ticket* ticket) {
  const absl::StatusOr<TensorRef> tensor = session->Find(handle);
  if (!tensor.ok()) return tensor.status();
  if ((*tensor)->done() && !(*tensor)->status().ok()) return (*tensor)->status();
  absl::StatusOr<std::string> issued =
      sessions.tickets().Issue(session, *tensor, destination_epoch);
  if (!issued.ok()) return issued.status();
  ticket->set_ticket(*std::move(issued));
  ticket->set_expires_in_seconds(Tickets::kLifetime.count());
  ToProto((*tensor)->spec(), ticket->mutable_spec());
  return absl::OkStatus();
}

}  // namespace

void UnaryMethods::CreateTicket(const UnaryRef<v1::CreateTicketRequest, v1::Ticket>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const v1::CreateTicketRequest& request = call->request();
  if (request.destination_epoch().empty() || request.destination_epoch().size() > kMaxEpochBytes) {
    return call->Finish(absl::InvalidArgumentError(
        "destination_epoch must be the ServerInfo.epoch of the server that will fetch the tensor"));
  }
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  const absl::Status waiting = session->WhenReceived(
      request.after_command(), [this, weak = call->weak_from_this(), session,
                                handle = request.handle(), epoch = request.destination_epoch(),
                                response = call->response()](const absl::Status& received) {
        const std::shared_ptr<UnaryCallBase> live_call = weak.lock();
        if (live_call == nullptr) return;
        live_call->Finish(received.ok()
                              ? IssueTicket(*context_->sessions, session, handle, epoch, response)
                              : received);
      });
  if (!waiting.ok()) call->Finish(waiting);
}

void UnaryMethods::PullTensor(const UnaryRef<v1::PullTensorRequest, v1::PullTensorResponse>& call) {
  const v1::PullTensorRequest& request = call->request();
  absl::StatusOr<SessionUse> use = UseSession(*call, request.tensor().session());
  if (!use.ok()) return call->Finish(use.status());
  const absl::Status listed = context_->peers->CheckListed(request.source_address());
  if (!listed.ok()) return call->Finish(listed);
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  const auto answer = [weak = call->weak_from_this(),
                       response = call->response()](const PullTable::Outcome& outcome) {
    const std::shared_ptr<UnaryCallBase> live_call = weak.lock();
    if (live_call == nullptr) return;
    if (outcome.status.ok()) {
      ToProto(*outcome.tensor, response->mutable_tensor());
      response->set_path(outcome.path);
      response->set_bytes(outcome.bytes);
      response->set_transfer_nanoseconds(outcome.transfer.count());
      response->set_resumptions(outcome.resumptions);
      response->set_connections(outcome.connections);
    }
    live_call->Finish(outcome.status);
  };
  const absl::Status waiting = session->WhenReceived(
      request.tensor().after_command(), [this, weak = call->weak_from_this(), session, request,
                                         answer](const absl::Status& received) {
        const std::shared_ptr<UnaryCallBase> live_call = weak.lock();
        if (live_call == nullptr) return;
        if (!received.ok()) return live_call->Finish(received);
        context_->pulls->Pull(session, request, answer);
        live_call->SendInitialMetadata(kPullStartedKey, "1");
      });
  if (!waiting.ok()) call->Finish(waiting);
}

void UnaryMethods::CheckPeer(const UnaryRef<v1::CheckPeerRequest, v1::CheckPeerResponse>& call) {
  const std::string& address = call->request().address();
  const absl::Status listed = context_->peers->CheckListed(address);
  if (!listed.ok()) {
    call->response()->set_code(static_cast<int>(listed.code()));
    call->response()->set_message(std::string(listed.message()));
    return call->Finish(absl::OkStatus());
  }
  std::make_shared<PeerCheck>(context_->peers, address,
                              [call](const v1::CheckPeerResponse& response) {
                                *call->response() = response;
                                call->Finish(absl::OkStatus());
                              })
      ->Start();
}

void UnaryMethods::ReleaseTicket(
    const UnaryRef<v1::ReleaseTicketRequest, v1::ReleaseTicketResponse>& call) {
  const v1::ReleaseTicketRequest& request = call->request();
  const absl::Status caller = context_->peers->CheckCaller(*call->principal());
  if (!caller.ok()) return call->Finish(caller);
  call->Finish(context_->sessions->tickets().Release(request.ticket(), ClaimOf(request)));
}

}  // namespace tensord::server
