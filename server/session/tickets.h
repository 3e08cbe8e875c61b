// Tickets: each authorizes another server to fetch one tensor for a principal.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Returns "anonymous", "token" or "certificate", as sent between servers.
absl::string_view KindName(Principal::Kind kind);

// Thread-safe. A ticket is for one tensor, one destination and one principal. After the first pull
// has presented it, only that pull may present it again. A ticket holds its tensor until the
// tensor has been fetched, the pull has released the ticket, the ticket expires, or its session
// ends. Each table signs its tickets with a new key, so an altered ticket is invalid.
//
// If a pull ends without the tensor, for example because the client has dropped the copy, the
// destination releases the ticket (ReleaseTicket). It must do so explicitly: a cancelled call and a
// broken connection look the same at the source, and a pull may reconnect after a broken
// connection. If the destination can't reach the source, the ticket expires.
class Tickets {
 public:
  // The time within which a pull must begin, and within which it must reconnect after an
  // interruption.
  static constexpr std::chrono::seconds kLifetime{60};
  // The estimated host memory of a ticket: its entry, and a tensor that may have no handle.
  static constexpr int64_t kHostBytes = 512 + Tensor::kHostBytes;
  // The size of a pull's id.
  static constexpr size_t kPullIdBytes = 16;

  // What a pull claims about itself.
  struct Claim {
    absl::string_view destination_epoch;
    absl::string_view principal_kind;  // as KindName()
    absl::string_view principal_name;
    absl::string_view pull_id;
  };

  explicit Tickets(LeaseClock clock);

  // Returns a ticket for a tensor of the session. The tensor need not be done. If a limit of
  // tickets or of host memory is reached, returns RESOURCE_EXHAUSTED; if the session is closed,
  // FAILED_PRECONDITION.
  absl::StatusOr<std::string> Issue(const SessionRef& session, TensorRef tensor,
                                    absl::string_view destination_epoch);

  // One connection of a pull. The table must outlive it.
  class Use {
   public:
    ~Use() { tickets_->End(id_, finished_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    const TensorRef& tensor() const { return tensor_; }
    // Returns the id of the session that issued the ticket.
    const std::string& session_id() const { return session_id_; }
    // Returns the principal of that session.
    const PrincipalRef& principal() const { return principal_; }
    // Reports that the tensor has been fetched. When this object is destroyed, the ticket drops its
    // reference to the tensor.
    void Finished() { finished_ = true; }

   private:
    friend class Tickets;
    Use(Tickets* tickets, std::string id, std::string session_id, PrincipalRef principal,
        TensorRef tensor)
        : tickets_(tickets),
          id_(std::move(id)),
          session_id_(std::move(session_id)),
          principal_(std::move(principal)),
          tensor_(std::move(tensor)) {}

    Tickets* const tickets_;
    const std::string id_;
    const std::string session_id_;
    const PrincipalRef principal_;
    const TensorRef tensor_;
    bool finished_ = false;
  };

  // Begins a pull, or lets it reconnect. If the ticket isn't valid for this claim, returns
  // PERMISSION_DENIED, always with the same message.
  absl::StatusOr<std::unique_ptr<Use>> Begin(absl::string_view ticket, const Claim& claim);

  // Removes a ticket, because its pull has ended and won't continue. Its open connections keep the
  // tensor until they end. If the ticket isn't valid for this claim, returns the same error as
  // Begin().
  absl::Status Release(absl::string_view ticket, const Claim& claim);

  // Removes the tickets of `session`, which must be closed. Pulls that are under way continue.
  void EndOf(const Session& session);
  // Removes the tickets that have expired.
  void EndExpired();

 private:
  struct Ticket {
    PrincipalRef principal;
    const Session* session;  // never dereferenced
    std::string session_id;
    Handle handle;
    TensorRef tensor;               // null once it has been fetched
    std::weak_ptr<Tensor> fetched;  // the tensor, once it has been fetched
    std::string pull_id;            // of the pull that has presented the ticket; empty: none
    int uses = 0;                   // open connections of that pull
    std::chrono::steady_clock::time_point expires_at;  // if no connection is open
    Charge counted;
    Charge charge;
  };

  using TicketMap = absl::flat_hash_map<std::string, Ticket>;

  void End(const std::string& id, bool finished);
  // Returns the ticket that `text` and the claim stand for, or the error of Begin().
  absl::StatusOr<TicketMap::iterator> FindLocked(absl::string_view text, const Claim& claim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Sign(absl::string_view id, const Ticket& ticket, absl::string_view destination_epoch,
                   absl::string_view kind, absl::string_view name) const;

  const LeaseClock clock_;
  const std::string key_;
  mutable Mutex mu_;
  TicketMap tickets_ ABSL_GUARDED_BY(mu_);  // by id
};

}  // namespace tensord::server
