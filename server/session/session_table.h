// The sessions of the server. The table closes sessions whose lease has run out.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/publications.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tickets.h"

namespace tensord::server {

class SessionLog;

// Returns 128 bits from the kernel's random source, in hex.
std::string RandomId();

// Thread-safe. Leases are measured by a clock: the system's, or the caller's.
class SessionTable {
 public:
  // `slots` must outlive the table. If `clock` is null, the table uses the system's monotonic
  // clock, and has a thread that calls EndExpired() twice a second. Otherwise the table has no
  // thread: only the caller knows how its clock advances, so the caller calls EndExpired().
  SessionTable(const Limits& limits, std::vector<DeviceSlot*> slots, LeaseClock clock = nullptr);
  ~SessionTable();  // closes all sessions

  // Logs sessions to `log`. Call it before the first session. `log` must outlive the table.
  void SetLog(SessionLog* log) { log_ = log; }

  // In all functions, `principal` is the one that the authenticator assigned to the call. For a
  // session of another principal, the functions return the same NOT_FOUND as for one that never
  // existed.

  // Opens a session. If `lease_seconds` is 0, the lease is the default; if it is more than the
  // maximum, the lease is the maximum. If it is negative, or `client_name` has more than 128 bytes,
  // returns INVALID_ARGUMENT. If `principal` is null, returns UNAUTHENTICATED. Past max_sessions,
  // max_sessions_per_principal or a limit of host memory, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<SessionRef> Open(const PrincipalRef& principal, int64_t lease_seconds,
                                  absl::string_view client_name);

  // Returns 128 random bits in hex, new for each table. A session's id begins with the epoch's
  // first digits. So the table recognizes the id of a session from before a restart.
  const std::string& epoch() const { return epoch_; }

  // Returns a use of the session. If no session has this id, returns NOT_FOUND (SESSION_NOT_FOUND);
  // if the id is of another epoch, DATA_LOSS (SERVER_RESTARTED); if it is empty, INVALID_ARGUMENT.
  absl::StatusOr<SessionUse> Use(const PrincipalRef& principal, absl::string_view id);

  // Ends a session at once. Returns the number of handles freed.
  absl::StatusOr<int64_t> Close(const PrincipalRef& principal, absl::string_view id);
  // Ends a session as Close() above does, but finds it by its number. If `is_admin`, the session
  // may belong to any principal.
  absl::StatusOr<int64_t> Close(const PrincipalRef& principal, uint64_t number, bool is_admin);

  // Returns the principal's sessions, in order of number.
  std::vector<SessionRef> Of(const PrincipalRef& principal) const;

  // Returns the sessions of all principals, in order of number. Only an administrator may see them.
  std::vector<SessionRef> All() const;

  struct Counts {
    int64_t opened = 0;
    int64_t closed = 0;
    int64_t expired = 0;
  };
  // Returns how many sessions were opened, were closed and have expired so far.
  Counts counts() const;

  // Closes the sessions whose lease has run out, or that were unused for more than
  // max_idle_seconds, in order of number. Ends the expired tickets.
  void EndExpired();

  // Returns the tensors under names. A session's publications end with the session.
  Publications& publications() { return publications_; }
  // Returns the tickets for tensors that other servers may fetch. A session's tickets end with the
  // session.
  Tickets& tickets() { return tickets_; }

 private:
  using Sessions = absl::flat_hash_map<std::string, SessionRef>;

  absl::StatusOr<SessionRef> Add(const PrincipalRef& principal, int64_t lease_seconds,
                                 absl::string_view client_name);
  // Returns end() if there is no session of this id, or it belongs to another principal.
  Sessions::iterator FindLocked(const PrincipalRef& principal, absl::string_view id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunReaper();
  // Returns the number of handles freed. SessionLog::Ended() explains `how`.
  int64_t End(Session& session, absl::string_view how);
  void RemoveLocked(Sessions::iterator session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes a session that is being closed, and returns it.
  SessionRef TakeOutLocked(Sessions::iterator session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status NoSuchSession(absl::string_view id) const;

  const std::string epoch_ = RandomId();
  const Limits limits_;
  const std::vector<DeviceSlot*> slots_;
  const LeaseClock clock_;
  Publications publications_;
  Tickets tickets_;
  SessionLog* log_ = nullptr;

  mutable Mutex mu_;
  CondVar wake_;
  Sessions sessions_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread reaper_;  // none with the caller's clock
};

}  // namespace tensord::server
