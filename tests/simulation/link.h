// A connection as both of its ends see it.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tensord/tests/simulation/dice.h"

namespace tensord::simulation {

// Messages arrive in their order and one at a time, as HTTP/2 brings them, until the connection
// breaks. Then some of those under way still arrive and the others never; each end notices when its
// own time comes, and may go on sending till then, to nobody.
struct Link {
  explicit Link(Dice* dice) : room(1 + dice->Below(4)), stalls(dice->OneIn(2)) {}

  void Break(Dice* dice) {
    if (broken) return;
    broken = true;
    outcome.reset();
    to_server.resize(dice->Below(static_cast<int64_t>(to_server.size()) + 1));
    to_client.resize(dice->Below(static_cast<int64_t>(to_client.size()) + 1));
  }
  void Send(std::deque<std::string>* way, std::string message) {
    if (!broken) way->push_back(std::move(message));
  }
  // Whether the write of an end that sends this way is done.
  bool MayWrite(const std::deque<std::string>& way) const {
    return broken ? !stalls : way.size() < room;
  }

  const size_t room;  // messages that are under way each way
  const bool stalls;  // once broken, no write is done any more
  std::deque<std::string> to_server;
  std::deque<std::string> to_client;
  bool broken = false;
  std::optional<absl::Status> outcome;  // the server's, to arrive after its messages
};

}  // namespace tensord::simulation
