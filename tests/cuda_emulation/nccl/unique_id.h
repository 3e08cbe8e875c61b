// The contents of the emulation's ncclUniqueId, and the address at which a hub listens.
#pragma once

#include <nccl.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <optional>

namespace tensord::nccl_emulation {

using Secret = std::array<unsigned char, 16>;

struct UniqueId {
  sockaddr_in address;  // of the hub
  Secret secret;        // random; proves to the hub that a rank has the id
};

ncclUniqueId Encode(const UniqueId& id);
// Returns nullopt if Encode() didn't make `id`.
std::optional<UniqueId> Decode(const ncclUniqueId& id);

// Thread-safe.
Secret RandomSecret();

// Returns the first IPv4 address of the interface that the environment variable NCCL_SOCKET_IFNAME
// names: "=lo" is the exact name, "lo" is a prefix. If the variable isn't set, returns 127.0.0.1.
// Returns nullopt if there is no such interface. The port is 0.
std::optional<sockaddr_in> InterfaceAddress();

}  // namespace tensord::nccl_emulation
