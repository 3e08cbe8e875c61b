// Whether another server can be reached, and would let this one fetch.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// Asks what it is, twice, the second time by a connection that stands; then shows a ticket that
// isn't one, to see by whose fault it is refused. Driven by the thread of the peers' queue.
class PeerCheck final : public std::enable_shared_from_this<PeerCheck> {
 public:
  using Done = std::function<void(const v1::CheckPeerResponse&)>;

  // `address` is listed. `peers` outlives the check.
  PeerCheck(Peers* peers, std::string address, Done done)
      : peers_(peers), address_(std::move(address)), done_(std::move(done)) {}

  // Once: `done` is told, on the queue's thread, within the peers' timeout.
  void Start();

 private:
  friend class CallEvent<PeerCheck>;
  using Event = CallEvent<PeerCheck>;

  void Ask();
  void OnAnswer(bool ok);
  void Knock();
  void OnKnocked(bool ok);
  void OnShown(bool ok);
  void OnRead(bool ok);
  void OnRefused(bool ok);
  void AfterEvent() {}
  void Prepare();
  void End(const grpc::Status& status);

  Peers* const peers_;
  const std::string address_;
  const Done done_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TensorService::Stub> stub_;
  std::unique_ptr<v1::PeerService::Stub> peer_stub_;

  Event answer_{&PeerCheck::OnAnswer};
  Event knocked_{&PeerCheck::OnKnocked};
  Event shown_{&PeerCheck::OnShown};
  Event read_{&PeerCheck::OnRead};
  Event refused_{&PeerCheck::OnRefused};
  std::chrono::system_clock::time_point deadline_;
  std::chrono::steady_clock::time_point asked_;
  bool asked_twice_ = false;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ServerInfo>> asking_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::FetchRequest, v1::FetchResponse>> fetching_;
  v1::FetchResponse nothing_;
  grpc::Status status_;
  v1::CheckPeerResponse response_;
};

}  // namespace tensord::server
