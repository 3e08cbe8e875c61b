// Calls that drain together when the server shuts down.
#pragma once

#include <chrono>

#include "absl/container/flat_hash_set.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server {

class ServerCall;

// The open calls of some methods. A call joins by ServerCall::Join() and leaves when it is
// destroyed. Thread-safe; outlives its calls.
class CallGroup {
 public:
  CallGroup() = default;
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  // Refuses further calls. Posts OnDrain() of each call to the thread of the call's queue. Doesn't
  // wait for these functions.
  void Drain();

  // Posts OnDrainTimeout() of each call in the same way. Call it after Drain().
  void EndDrain();

  // Blocks until there is no call in the group, or until the deadline.
  void AwaitNone(std::chrono::steady_clock::time_point deadline);

 private:
  friend class ServerCall;

  // Returns false if the group drains.
  bool Add(ServerCall* call);
  void Remove(ServerCall* call);

  Mutex mu_;
  CondVar changed_;
  absl::flat_hash_set<ServerCall*> calls_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
