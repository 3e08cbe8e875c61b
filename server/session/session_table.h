// All sessions of the server, and the end of those that nobody uses.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/publications.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tickets.h"

namespace tensord::server {

class SessionLog;

// 128 bits from the kernel's random source, in hex.
std::string RandomId();

// Thread-safe. A thread of its own closes sessions whose lease has run out.
class SessionTable {
 public:
  // `slots` outlive the table. A `clock` is for tests, which then call EndExpired() themselves:
  // there is no thread.
  SessionTable(const Limits& limits, std::vector<DeviceSlot*> slots, LeaseClock clock = nullptr);
  ~SessionTable();  // closes all sessions

  // Has it told of every session from now on. Before the first; outlives the table.
  void SetLog(SessionLog* log) { log_ = log; }

  // Everywhere: `principal` is who the call is made for, as the gate has said. A session of another
  // is NOT_FOUND in the same words as one that never was.

  // `lease_seconds` 0 is the default; more than the most allowed is cut to it, less than 0 is
  // INVALID_ARGUMENT. RESOURCE_EXHAUSTED past max_sessions and
  // max_sessions_per_principal.
  absl::StatusOr<SessionRef> Open(const PrincipalRef& principal, int64_t lease_seconds,
                                  absl::string_view client_name);

  // 128 random bits in hex, new with every table: what a session of another start shows by its id.
  const std::string& epoch() const { return epoch_; }

  // NOT_FOUND (SESSION_NOT_FOUND) where there is none of this id; DATA_LOSS (SERVER_RESTARTED)
  // where it is of another epoch.
  absl::StatusOr<SessionUse> Use(const PrincipalRef& principal, absl::string_view id);

  // Ends a session at once; the number of handles freed.
  absl::StatusOr<int64_t> Close(const PrincipalRef& principal, absl::string_view id);

  // The principal's, in order of number.
  std::vector<SessionRef> Of(const PrincipalRef& principal) const;

  // Everybody's, in order of number: for the server's own ends, never for an answer.
  std::vector<SessionRef> All() const;

  // Closes the sessions whose lease has run out, in order of number. Ends the expired tickets.
  void EndExpired();

  // What sessions lend to others; ends with them.
  Publications& publications() { return publications_; }
  // What other servers may fetch; ends with them.
  Tickets& tickets() { return tickets_; }

 private:
  using Sessions = absl::flat_hash_map<std::string, SessionRef>;

  absl::StatusOr<SessionRef> Add(const PrincipalRef& principal, int64_t lease_seconds,
                                 absl::string_view client_name);
  // The end where there is none of this id, or it is another's.
  Sessions::iterator FindLocked(const PrincipalRef& principal, absl::string_view id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Reap();
  // The number of handles freed. `how`: as in SessionLog.
  int64_t End(Session& session, absl::string_view how);
  void RemoveLocked(Sessions::iterator session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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
  uint64_t opened_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread reaper_;  // none with a test's clock
};

}  // namespace tensord::server
