// The rings of shared memory that clients have, and their limits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/shared_broker.h"
#include "tensord/server/rpc/shared_region.h"
#include "tensord/server/session/session.h"

namespace grpc {
class ServerContext;
}

namespace tensord::server {

// Few messages, and a ring that the caches hold.
inline constexpr int64_t kSharedSlotBytes = 4 << 20;
inline constexpr int kSharedSlots = 3;

// Thread-safe.
class SharedRings {
 public:
  SharedRings() : broker_([this] { Sweep(); }) {}

  // Whether anything can be shared here.
  bool available() const { return !broker_.socket_name().empty(); }

  // A ring for a call of a session, which counts until this object goes; it goes before the call
  // does.
  class Ring {
   public:
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    uint8_t* slot(int index) const { return region_->data() + index * kSharedSlotBytes; }
    const std::string& secret() const { return secret_; }
    const SessionRef& session() const { return session_; }

   private:
    friend class SharedRings;
    Ring() = default;

    SharedRings* rings_ = nullptr;
    grpc::ServerContext* call_ = nullptr;
    SessionRef session_;
    std::shared_ptr<SharedRegion> region_;
    std::string secret_;
  };

  // RESOURCE_EXHAUSTED where there are too many, UNAVAILABLE once the server drains. The call is
  // cancelled when its session ends, or when the server drains.
  absl::StatusOr<std::unique_ptr<Ring>> Open(SessionRef session, grpc::ServerContext* call);
  const std::string& socket_name() const { return broker_.socket_name(); }

  // Cancels every call, and lets no further one begin.
  void Drain();

 private:
  absl::Status Enter(Ring* ring);
  void Leave(Ring* ring);
  void Sweep();

  Mutex mu_;
  absl::flat_hash_map<Ring*, Session*> rings_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  SharedBroker broker_;  // last: its thread uses the others
};

}  // namespace tensord::server
