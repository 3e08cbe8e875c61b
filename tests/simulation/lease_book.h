// Records the uses of sessions, to check the server's leases.
#pragma once

#include <map>

#include "tensord/server/session/session.h"
#include "tensord/tests/simulation/clock.h"

namespace tensord::simulation {

class LeaseBook {
 public:
  void Opened(const server::Session* session) { entries_[session] = {0, Clock::Now()}; }
  void Begin(const server::Session* session) { ++entries_[session].uses; }
  void End(const server::Session* session) {
    const auto found = entries_.find(session);
    if (found == entries_.end()) return;  // the session has been closed
    --found->second.uses;
    found->second.last_used = Clock::Now();
  }
  void Closed(const server::Session* session) { entries_.erase(session); }

  // Returns whether the session's lease has expired.
  bool Due(const server::Session& session) const {
    const auto found = entries_.find(&session);
    return found != entries_.end() && found->second.uses == 0 &&
           Clock::Now() - found->second.last_used > session.lease();
  }

 private:
  struct Entry {
    int uses = 0;
    Clock::Time last_used;
  };
  std::map<const server::Session*, Entry> entries_;
};

}  // namespace tensord::simulation
