// The network that collective operations go over: an address of this machine, and which others are
// on the same network.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord::server {

// An IPv4 or IPv6 address and a port.
struct Endpoint {
  int family = AF_INET;                  // or AF_INET6
  std::array<uint8_t, 16> address = {};  // in network order; of IPv4 the first four
  uint16_t port = 0;

  static absl::StatusOr<Endpoint> From(const sockaddr* address);
  // Its size; `storage` is filled in.
  socklen_t ToSockaddr(sockaddr_storage* storage) const;
  // "10.0.0.5:4711", "[fd00::5]:4711".
  std::string ToString() const;
};

class CollectiveNetwork {
 public:
  // "10.0.0.5", "eth0", and either with "/16" where more than the interface's own network is
  // trusted. INVALID_ARGUMENT where this machine has no such address or interface, or where the
  // address stands for all.
  static absl::StatusOr<CollectiveNetwork> Find(absl::string_view wanted);

  // What members listen at; port 0.
  const Endpoint& address() const { return address_; }
  // The interface that has it: "eth0".
  const std::string& interface() const { return interface_; }
  // Whether members connect to it, and take its connections.
  bool Contains(const Endpoint& endpoint) const;
  // "10.0.0.5/16".
  std::string ToString() const;

 private:
  Endpoint address_;
  int prefix_bits_ = 0;
  std::string interface_;
};

}  // namespace tensord::server
