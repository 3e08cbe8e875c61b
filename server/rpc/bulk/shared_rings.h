// The rings of shared memory that clients and other servers have, and their limits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/bulk/shared_broker.h"
#include "tensord/server/rpc/bulk/shared_region.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.pb.h"

namespace grpc {
class ServerContext;
}

namespace tensord::server {

// Few messages, and a ring that the caches hold.
inline constexpr int64_t kSharedSlotBytes = 4 << 20;
inline constexpr uint32_t kSharedSlots = 3;
// A ring that serves one fetch is small: its pages are new, and take longer to come than to fill.
inline constexpr int64_t kFetchSlotBytes = 512 << 10;
inline constexpr uint32_t kFetchSlots = 4;
// Less isn't worth one.
inline constexpr int64_t kMinSharedBytes = 4 << 20;

// Thread-safe.
class SharedRings {
 public:
  SharedRings() : broker_([this] { Sweep(); }) {}

  // Whether anything can be shared here.
  bool available() const { return !broker_.socket_name().empty(); }

  // A ring for a call, which counts until this object goes; it goes before the call does. Made anew
  // for each: what has once lain in it nobody else sees.
  class Ring {
   public:
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    uint8_t* slot(uint32_t index) const { return region_->data() + index * slot_bytes_; }
    int64_t slot_bytes() const { return slot_bytes_; }
    uint32_t slots() const { return slots_; }
    // What the other side needs to come by it.
    void Describe(v1::SharedRing* ring) const;
    const SessionRef& session() const { return session_; }
    // The memory that contains the slots, one after another.
    const std::shared_ptr<SharedRegion>& region() const { return region_; }

   private:
    friend class SharedRings;
    Ring(int64_t slot_bytes, uint32_t slots) : slot_bytes_(slot_bytes), slots_(slots) {}

    const int64_t slot_bytes_;
    const uint32_t slots_;
    SharedRings* rings_ = nullptr;
    std::string owner_;  // the session's id
    bool for_fetch_ = false;
    grpc::ServerContext* call_ = nullptr;  // null for a fetch, and while the ring is closed
    SessionRef session_;                   // the same
    std::shared_ptr<SharedRegion> region_;
    std::string secret_;
  };

  // RESOURCE_EXHAUSTED where there are too many, UNAVAILABLE once the server drains. The call is
  // cancelled when its session ends.
  absl::StatusOr<std::unique_ptr<Ring>> Open(SessionRef session, grpc::ServerContext* call);
  // The same for a fetch of a tensor of the session, whose clients' rings don't count. The
  // session's end doesn't end it.
  absl::StatusOr<std::unique_ptr<Ring>> OpenForFetch(const std::string& session_id);

  // Destroys a ring. If GPUs have read its memory, a thread of its own does so, because this may
  // block until the GPUs have finished their current work; the ring counts until then.
  void Close(std::unique_ptr<Ring> ring);

  // Lets no further ring be made.
  void Drain();

 private:
  absl::StatusOr<std::unique_ptr<Ring>> Open(std::unique_ptr<Ring> ring);
  absl::Status Enter(Ring* ring);
  void Leave(Ring* ring);
  void Sweep();

  Mutex mu_;
  absl::flat_hash_set<Ring*> rings_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  SharedBroker broker_;   // its thread uses the above
  WorkerPool closer_{1};  // last: its thread uses all others
};

}  // namespace tensord::server
