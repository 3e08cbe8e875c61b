// Sockets that listen for connections.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tensord::server {

struct ListeningSocket {
  int fd = -1;
  std::string unix_path;  // empty for TCP
};

// Binds "HOST:PORT" (port 0: a free one), "[V6]:PORT" or "unix:PATH", and listens. A host name may
// stand for several addresses; they get the same port. Adds the sockets, which the caller must
// close, to `sockets`, even before an error. Sets `bound` to the address with the port that was
// chosen. If PATH is empty or too long, returns INVALID_ARGUMENT. If the address can't be bound,
// returns UNAVAILABLE with the reason.
absl::Status ListenAt(const std::string& address, std::vector<ListeningSocket>* sockets,
                      std::string* bound);

}  // namespace tensord::server
