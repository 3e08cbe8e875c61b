#include "tensord/server/communicator/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

int AddressBits(int family) { return family == AF_INET ? 32 : 128; }

// Returns the number of leading ones of a netmask.
int PrefixBits(const Endpoint& mask) {
  int bits = 0;
  while (bits < AddressBits(mask.family) && (mask.address[bits / 8] >> (7 - bits % 8) & 1) != 0) {
    ++bits;
  }
  return bits;
}

// Returns the address as text, without the port.
std::string HostText(const Endpoint& endpoint) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(endpoint.family, endpoint.address.data(), text, sizeof(text));
  return text;
}

absl::Status NoSuchNetwork(absl::string_view wanted, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--collectives=", wanted, ": ", why,
                   "; give an address or interface of this machine, such as 10.0.0.5 or eth0. If "
                   "the trusted network differs from the interface's, append /BITS"));
}

}  // namespace

absl::StatusOr<Endpoint> Endpoint::From(const sockaddr* address) {
  Endpoint endpoint;
  endpoint.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    std::memcpy(endpoint.address.data(), &in->sin_addr, sizeof(in->sin_addr));
    endpoint.port = ntohs(in->sin_port);
  } else if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(endpoint.address.data(), &in6->sin6_addr, sizeof(in6->sin6_addr));
    endpoint.port = ntohs(in6->sin6_port);
  } else {
    return absl::InvalidArgumentError("neither an IPv4 nor an IPv6 address");
  }
  return endpoint;
}

socklen_t Endpoint::ToSockaddr(sockaddr_storage* storage) const {
  *storage = {};
  if (family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(storage);
    in->sin_family = AF_INET;
    std::memcpy(&in->sin_addr, address.data(), sizeof(in->sin_addr));
    in->sin_port = htons(port);
    return sizeof(*in);
  }
  auto* in6 = reinterpret_cast<sockaddr_in6*>(storage);
  in6->sin6_family = AF_INET6;
  std::memcpy(&in6->sin6_addr, address.data(), sizeof(in6->sin6_addr));
  in6->sin6_port = htons(port);
  return sizeof(*in6);
}

std::string Endpoint::ToString() const {
  const std::string host = HostText(*this);
  return family == AF_INET ? absl::StrCat(host, ":", port) : absl::StrCat("[", host, "]:", port);
}

absl::StatusOr<CollectiveNetwork> CollectiveNetwork::Find(absl::string_view wanted) {
  absl::string_view name = wanted;
  int bits = -1;
  if (const size_t slash = wanted.find('/'); slash != absl::string_view::npos) {
    name = wanted.substr(0, slash);
    if (!absl::SimpleAtoi(wanted.substr(slash + 1), &bits) || bits < 0) {
      return NoSuchNetwork(wanted, "the part after / must be a number of bits");
    }
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::InternalError("the interfaces can't be listed");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, &freeifaddrs);
  // If an interface has an IPv4 and an IPv6 address, its IPv4 address is taken.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
      if (entry->ifa_addr->sa_family != family) continue;
      CollectiveNetwork network;
      TENSORD_ASSIGN_OR_RETURN(network.address_, Endpoint::From(entry->ifa_addr));
      network.address_.port = 0;
      TENSORD_ASSIGN_OR_RETURN(const Endpoint mask, Endpoint::From(entry->ifa_netmask));
      network.prefix_bits_ = PrefixBits(mask);
      if (name != entry->ifa_name && name != HostText(network.address_)) {
        // Every address of the loopback network belongs to this machine.
        Endpoint literal{.family = family};
        const bool is_address =
            inet_pton(family, std::string(name).c_str(), literal.address.data()) == 1;
        const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        if (!is_address || !loopback || !network.Contains(literal)) continue;
        network.address_ = literal;
      }
      if (bits >= 0) network.prefix_bits_ = bits;
      network.interface_ = entry->ifa_name;
      if (network.prefix_bits_ > AddressBits(family)) {
        return NoSuchNetwork(wanted, "an address doesn't have so many bits");
      }
      return network;
    }
  }
  return NoSuchNetwork(wanted, "this machine has no such address or interface");
}

bool CollectiveNetwork::Contains(const Endpoint& endpoint) const {
  if (endpoint.family != address_.family) return false;
  for (int bit = 0; bit < prefix_bits_; bit += 8) {
    const int rest = std::min(prefix_bits_ - bit, 8);
    const int difference = address_.address[bit / 8] ^ endpoint.address[bit / 8];
    if (difference >> (8 - rest) != 0) return false;
  }
  return true;
}

std::string CollectiveNetwork::ToString() const {
  return absl::StrCat(HostText(address_), "/", prefix_bits_);
}

}  // namespace tensord::server
