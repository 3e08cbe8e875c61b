// The rings of memory that the server shares with clients and other servers, and their limits.
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

// The ring of a client. Its slots are large, so that few messages are sent. There are few slots, so
// that the ring fits into the CPU's caches.
inline constexpr int64_t kSharedSlotBytes = 4 << 20;
inline constexpr uint32_t kSharedSlots = 3;
// The ring of a fetch. It is small, because it serves one fetch only, and allocating a page takes
// longer than filling it.
inline constexpr int64_t kFetchSlotBytes = 512 << 10;
inline constexpr uint32_t kFetchSlots = 4;
// The minimum size of a fetch that gets a ring.
inline constexpr int64_t kMinSharedBytes = 4 << 20;

// Thread-safe.
class SharedRings {
 public:
  // The memory of a client's ring.
  static constexpr int64_t kMaxRingBytes = kSharedSlotBytes * kSharedSlots;

  SharedRings() : SharedRings(/*max_rings=*/32) {}
  // Their memory doesn't count against any device's limit.
  explicit SharedRings(int max_rings) : max_rings_(max_rings), broker_([this] { Sweep(); }) {}

  // Returns whether this server can share memory.
  bool available() const { return !broker_.socket_name().empty(); }

  // The ring of one call. It counts against the limits until it is destroyed. Destroy it, or pass
  // it to Close(), before the call is destroyed. Each ring has new memory, so no client sees the
  // data of another.
  class Ring {
   public:
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    uint8_t* slot(uint32_t index) const { return region_->data() + index * slot_bytes_; }
    int64_t slot_bytes() const { return slot_bytes_; }
    uint32_t slots() const { return slots_; }
    // Fills in what the other side needs to map the ring.
    void Describe(v1::SharedRing* ring) const;
    const SessionRef& session() const { return session_; }
    // Returns the memory that contains the slots, one after another.
    const std::shared_ptr<SharedRegion>& region() const { return region_; }

   private:
    friend class SharedRings;
    Ring(int64_t slot_bytes, uint32_t slots) : slot_bytes_(slot_bytes), slots_(slots) {}

    const int64_t slot_bytes_;
    const uint32_t slots_;
    SharedRings* rings_ = nullptr;
    std::string owner_;       // the session's id
    PrincipalRef principal_;  // the session's
    bool for_fetch_ = false;
    grpc::ServerContext* call_ = nullptr;  // null for a fetch, and after Close()
    SessionRef session_;                   // null for a fetch, and after Close()
    std::shared_ptr<SharedRegion> region_;
    std::string secret_;
  };

  // Opens a ring for a call. If there are too many rings in all, of the principal or of the
  // session, or the host has too little memory, returns RESOURCE_EXHAUSTED. If the server drains,
  // returns UNAVAILABLE. If it can't share memory, returns FAILED_PRECONDITION. When the session
  // ends, the call is cancelled.
  absl::StatusOr<std::unique_ptr<Ring>> Open(SessionRef session, grpc::ServerContext* call);
  // Opens a ring as Open() does, for a fetch of a tensor of the session. Rings of fetches and of
  // clients count separately against the limit of a session. The end of the session doesn't cancel
  // the fetch.
  absl::StatusOr<std::unique_ptr<Ring>> OpenForFetch(const std::string& session_id,
                                                     PrincipalRef principal);

  // Destroys a ring. If a GPU has read the ring's memory, the destructor may block until the GPU
  // has finished its current work. So a separate thread then destroys the ring. Until then the ring
  // counts against the limits.
  void Close(std::unique_ptr<Ring> ring);

  // Refuses further rings.
  void Drain();

 private:
  absl::StatusOr<std::unique_ptr<Ring>> Open(std::unique_ptr<Ring> ring);
  absl::Status Add(Ring* ring);
  void Remove(Ring* ring);
  void Sweep();

  const int max_rings_;
  Mutex mu_;
  absl::flat_hash_set<Ring*> rings_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  SharedBroker broker_;   // its thread uses the members above
  WorkerPool closer_{1};  // last: its thread uses all other members
};

}  // namespace tensord::server
