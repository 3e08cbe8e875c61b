// The prepared ops of all sessions.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"
#include "tensord/server/engine/prepared_op.h"

namespace tensord::server {

// Caches prepared ops by op, input specs, attributes and device. If they exceed a limit, evicts
// the least recently used ones. Ops in the cache are charged to no caller. If an op was evicted, or
// was never cached, it is charged while it is in use, to the caller for which it was prepared.
// Thread-safe.
class PreparedOpCache {
 public:
  static constexpr int64_t kMaxBytes = 128 << 20;  // the default limit

  // Changes the limit. Call it before any other thread uses this object.
  void SetMaxBytes(int64_t max_bytes) { max_bytes_ = max_bytes; }

  // `chains` prepares the fused kernels of compositions. It must outlive the ops. Without this call,
  // compositions run op by op. Call it before any other thread uses this object.
  void SetChains(ChainKernels* chains) { chains_ = chains; }

  // Returns the prepared op. If it isn't in the cache, prepares it for `caller`. If `caller` is
  // null, the op is for the server, and is never charged. Doesn't cache constants, nor ops of more
  // than a sixteenth of the limit. If the op would exceed the caller's limit of host memory,
  // returns RESOURCE_EXHAUSTED.
  absl::StatusOr<PreparedOpRef> Find(absl::string_view op, absl::Span<const TensorSpec> inputs,
                                     const Attributes& attrs, DeviceSlot* slot,
                                     const BudgetRef& caller);

  // Returns the estimated memory of the ops in the cache.
  int64_t bytes() const;

 private:
  struct Entry {
    std::string key;
    PreparedOpRef op;
  };
  using Entries = std::list<Entry>;

  static int64_t BytesOf(const Entry& entry);
  // Removes entries until the rest is within the limit. The caller destroys them without the
  // lock.
  Entries EvictLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  int64_t max_bytes_ = kMaxBytes;
  ChainKernels* chains_ = nullptr;
  mutable Mutex mu_;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // the most recently used first
  // The keys are those of `entries_`.
  absl::flat_hash_map<absl::string_view, Entries::iterator> index_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
