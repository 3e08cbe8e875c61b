// Leave to fetch tensors, given to a principal for another server to show.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// "anonymous", "token" or "certificate": as servers tell each other.
absl::string_view KindName(Principal::Kind kind);

// Thread-safe. A ticket is for one tensor, one destination and one principal, and is used by the
// first fetch that shows it. It holds its tensor until that has been fetched, the ticket's time is
// over, or its session ends. Signed, with a key that is new with every table: whoever alters one
// has none.
class Tickets {
 public:
  // How long a fetch may take to begin, and to come again after it has been broken off.
  static constexpr std::chrono::seconds kLifetime{60};
  // Of a fetch's id.
  static constexpr size_t kFetchIdBytes = 16;

  // What a fetch says of itself.
  struct Claim {
    absl::string_view destination_epoch;
    absl::string_view principal_kind;  // KindName
    absl::string_view principal_name;
    absl::string_view fetch_id;
  };

  Tickets(int64_t max_per_principal, LeaseClock clock);

  // A ticket for a tensor of the session, done or not. RESOURCE_EXHAUSTED past the limit,
  // FAILED_PRECONDITION once the session is closed.
  absl::StatusOr<std::string> Give(const SessionRef& session, TensorRef tensor,
                                   absl::string_view destination_epoch);

  // A fetch under way. The table outlives it.
  class Use {
   public:
    ~Use() { tickets_->End(id_, finished_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    const TensorRef& tensor() const { return tensor_; }
    // Of the session that the tensor is of.
    const std::string& session_id() const { return session_id_; }
    // The tensor has been fetched: the ticket holds it no more.
    void Finished() { finished_ = true; }

   private:
    friend class Tickets;
    Use(Tickets* tickets, std::string id, std::string session_id, TensorRef tensor)
        : tickets_(tickets),
          id_(std::move(id)),
          session_id_(std::move(session_id)),
          tensor_(std::move(tensor)) {}

    Tickets* const tickets_;
    const std::string id_;
    const std::string session_id_;
    const TensorRef tensor_;
    bool finished_ = false;
  };

  // PERMISSION_DENIED, in the same words whatever is wrong with the ticket.
  absl::StatusOr<std::unique_ptr<Use>> Begin(absl::string_view ticket, const Claim& claim);

  // Ends those of `session`, which is closed; fetches under way go on.
  void EndOf(const Session& session);
  // Ends those whose time is over.
  void EndExpired();

 private:
  struct Ticket {
    PrincipalRef principal;
    const Session* session;  // only its address
    std::string session_id;
    Handle handle;
    TensorRef tensor;               // null once it has been fetched
    std::weak_ptr<Tensor> fetched;  // then this
    std::string fetch_id;           // of the fetch that has used it; empty: none
    int uses = 0;                   // connections by which that is under way
    std::chrono::steady_clock::time_point ends;
    UsageHold counted;
  };

  void End(const std::string& id, bool finished);
  std::string Sign(absl::string_view id, const Ticket& ticket, absl::string_view destination_epoch,
                   absl::string_view kind, absl::string_view name) const;

  const int64_t max_per_principal_;
  const LeaseClock clock_;
  const std::string key_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Ticket> tickets_ ABSL_GUARDED_BY(mu_);  // by id
};

}  // namespace tensord::server
