// What an ncclUniqueId of the emulation holds, and which address a hub listens at.
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
  Secret secret;        // random; a rank that knows it has the id
};

ncclUniqueId Encode(const UniqueId& id);
// Returns nothing if Encode() didn't make `id`.
std::optional<UniqueId> Decode(const ncclUniqueId& id);

// Thread-safe.
Secret RandomSecret();

// Returns the first IPv4 address of the interface that the environment variable NCCL_SOCKET_IFNAME
// names: "=lo" is the exact name, "lo" is a prefix. If the variable isn't set, returns 127.0.0.1.
// Returns nothing if there is no such interface. The port is 0.
std::optional<sockaddr_in> InterfaceAddress();

}  // namespace tensord::nccl_emulation
