// A simulated connection.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tensord/tests/simulation/random_source.h"

namespace tensord::simulation {

// Messages arrive one at a time and in order, as in HTTP/2, until the connection breaks. Then some
// of the messages in flight still arrive, and the others are lost. Each end notices the break at
// some later time. Messages that it sends before that are lost.
struct Link {
  explicit Link(RandomSource* random) : room(1 + random->Below(4)), stalls(random->OneIn(2)) {}

  void Break(RandomSource* random) {
    if (broken) return;
    broken = true;
    outcome.reset();
    to_server.resize(random->Below(static_cast<int64_t>(to_server.size()) + 1));
    to_client.resize(random->Below(static_cast<int64_t>(to_client.size()) + 1));
  }
  void Send(std::deque<std::string>* way, std::string message) {
    if (!broken) way->push_back(std::move(message));
  }
  // Returns whether the write of a message in this direction completes.
  bool MayWrite(const std::deque<std::string>& way) const {
    return broken ? !stalls : way.size() < room;
  }

  const size_t room;  // the maximum number of messages in flight in each direction
  const bool stalls;  // after a break, writes never complete
  std::deque<std::string> to_server;
  std::deque<std::string> to_client;
  bool broken = false;
  std::optional<absl::Status> outcome;  // the server's final status; arrives after its messages
};

}  // namespace tensord::simulation
