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
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/host_budget.h"

namespace tensord::server {

// Keeps prepared ops by op, input specs, attributes and device. If they take more than kMaxBytes,
// drops the least recently used ones. The ops in the cache are charged to no caller. If an op that
// is dropped, or is not kept, is still in use, it is charged to the caller that it was made for.
// Thread-safe.
class PreparedOpCache {
 public:
  static constexpr int64_t kMaxBytes = 128 << 20;

  // Returns the prepared op. Makes it for `caller` if there is none. Doesn't keep constants, nor ops
  // of more than a sixteenth of kMaxBytes. If `caller` has no host memory left for the op, returns
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<PreparedOpRef> Find(absl::string_view op, absl::Span<const TensorSpec> inputs,
                                     const Attributes& attrs, DeviceSlot* slot,
                                     const HostAccountRef& caller);

  // The estimated memory of the ops in the cache.
  int64_t bytes() const;

 private:
  struct Entry {
    std::string key;
    PreparedOpRef op;
  };
  using Entries = std::list<Entry>;

  static int64_t BytesOf(const Entry& entry);
  // Removes entries until the rest takes at most kMaxBytes. The caller destroys them without the
  // lock.
  Entries EvictLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // the most recently used first
  // The keys are those of `entries_`.
  absl::flat_hash_map<absl::string_view, Entries::iterator> index_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
