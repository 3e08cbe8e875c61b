// All tensors that this server pulls from other servers, and the calls that wait for them.
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

// The server sends this initial metadata of PullTensor when the tensor's handle is being pulled.
inline constexpr char kPullStartedKey[] = "tensord-pull-started";

// Thread-safe.
class PullTable {
 public:
  using Outcome = PeerPull::Outcome;
  using Waiter = std::function<void(const Outcome&)>;

  // Both outlive this object.
  PullTable(ServiceContext* context, Peers* peers) : context_(context), peers_(peers) {}

  // Pulls the requested tensor into `session`, and runs `waiter` with the outcome. If the tensor
  // is being pulled or has been pulled already, only runs `waiter`. `waiter` runs once, on any
  // thread, perhaps before this returns. The source must be listed, and the session's stream must
  // have received the commands that the request waits for.
  void Pull(const SessionRef& session, const v1::PullTensorRequest& request, Waiter waiter);

 private:
  // A pull that is under way or has succeeded.
  struct Record {
    std::weak_ptr<Tensor> tensor;
    bool done = false;
    Outcome outcome;              // once done, without the tensor
    std::vector<Waiter> waiters;  // until done
  };
  using RecordRef = std::shared_ptr<Record>;

  // Returns the tensor that the request names. If it doesn't exist, promises it and sets `made`.
  absl::StatusOr<TensorRef> FindTensor(Session& session, const v1::WriteSpec& spec, bool* made);
  void Start(const SessionRef& session, const v1::PullTensorRequest& request,
             const TensorRef& tensor, bool made, const RecordRef& record);
  // Records the end of a pull and runs its waiters.
  void OnPullEnded(const Tensor* tensor, const RecordRef& record, Outcome outcome);
  // If the table has doubled, removes the records of destroyed tensors.
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServiceContext* const context_;
  Peers* const peers_;

  mutable Mutex mu_;
  // By the tensor's address.
  absl::flat_hash_map<const Tensor*, RecordRef> records_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace tensord::server
