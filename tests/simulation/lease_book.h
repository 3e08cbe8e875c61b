// Who uses which session, kept a second time to check the leases by.
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
    if (found == entries_.end()) return;  // closed meanwhile
    --found->second.uses;
    found->second.last_used = Clock::Now();
  }
  void Closed(const server::Session* session) { entries_.erase(session); }

  // Whether its lease has run out.
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
