// The network of collective operations: an address of this machine, and the range of addresses that
// belong to the same network.
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
  std::array<uint8_t, 16> address = {};  // in network order; IPv4 uses the first four bytes
  uint16_t port = 0;

  // If the address is neither IPv4 nor IPv6, returns INVALID_ARGUMENT.
  static absl::StatusOr<Endpoint> From(const sockaddr* address);
  // Fills `storage` and returns the size of the address.
  socklen_t ToSockaddr(sockaddr_storage* storage) const;
  // Returns text such as "10.0.0.5:4711" or "[fd00::5]:4711".
  std::string ToString() const;
};

class CollectiveNetwork {
 public:
  // `wanted` is an address or an interface: "10.0.0.5", "eth0". A suffix such as "/16" sets the
  // prefix of the trusted network. Without a suffix, the prefix is that of the interface. If this
  // machine has no such address or interface, or the address is a wildcard, returns
  // INVALID_ARGUMENT.
  static absl::StatusOr<CollectiveNetwork> Find(absl::string_view wanted);

  // Returns the address that members listen at; its port is 0.
  const Endpoint& address() const { return address_; }
  // Returns the interface of that address, such as "eth0".
  const std::string& interface() const { return interface_; }
  // Returns whether members may connect to this endpoint, and accept connections from it.
  bool Contains(const Endpoint& endpoint) const;
  // Returns text such as "10.0.0.5/16".
  std::string ToString() const;

 private:
  Endpoint address_;
  int prefix_bits_ = 0;
  std::string interface_;
};

}  // namespace tensord::server
