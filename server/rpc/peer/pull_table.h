// All tensors that are being fetched from other servers, and who asks how it goes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/peer/peer_pull.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Thread-safe.
class PullTable {
 public:
  using Outcome = PeerPull::Outcome;
  using Waiter = std::function<void(const Outcome&)>;

  // Both outlive this.
  PullTable(ServiceContext* context, Peers* peers) : context_(context), peers_(peers) {}
  ~PullTable() { Stop(std::chrono::steady_clock::now()); }

  // Fetches what the request says, from a server that is listed, into its session, whose stream has
  // brought what the request waits for; calls back when it is there or can't be had. Of a tensor
  // that is being fetched, or has been, only calls back. May call back before it returns.
  void Pull(const SessionRef& session, const v1::PullTensorRequest& request, Waiter waiter);

  // Whether any are under way.
  bool Any() const { return peers_->queue()->AnyCalls(); }
  // Ends them all, and takes no more; waits until the deadline for them to end.
  void Stop(std::chrono::steady_clock::time_point deadline);

 private:
  // A fetch, under way or done well.
  struct Record {
    std::weak_ptr<Tensor> tensor;
    std::weak_ptr<PeerPull> pull;
    bool done = false;
    Outcome outcome;              // then, without the tensor
    std::vector<Waiter> waiters;  // until then
  };
  using RecordRef = std::shared_ptr<Record>;

  // The tensor that the request names, promised here where it doesn't exist yet.
  absl::StatusOr<TensorRef> FindTensor(Session& session, const v1::WriteSpec& spec, bool* made);
  void Start(const SessionRef& session, const v1::PullTensorRequest& request,
             const TensorRef& tensor, bool made, const RecordRef& record);
  // The fetch has ended: its waiters are told.
  void Ended(const Tensor* tensor, const RecordRef& record, Outcome outcome);
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServiceContext* const context_;
  Peers* const peers_;

  mutable Mutex mu_;
  // By the tensor's address; those of tensors that have gone are swept out when the table has
  // doubled.
  absl::flat_hash_map<const Tensor*, RecordRef> records_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
