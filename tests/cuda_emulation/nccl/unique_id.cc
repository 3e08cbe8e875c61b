#include "tensord/tests/cuda_emulation/nccl/unique_id.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/match.h"

namespace tensord::nccl_emulation {
namespace {

constexpr char kTag[16] = "emulated NCCL 1";

// The first bytes of an ncclUniqueId. The other bytes are zero.
struct Layout {
  char tag[sizeof(kTag)];
  UniqueId id;
};
static_assert(sizeof(Layout) <= sizeof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<Layout>);

bool IsNamed(absl::string_view wanted, absl::string_view interface) {
  if (absl::StartsWith(wanted, "=")) return interface == wanted.substr(1);
  return absl::StartsWith(interface, wanted);
}

}  // namespace

ncclUniqueId Encode(const UniqueId& id) {
  Layout layout = {{}, id};
  std::memcpy(layout.tag, kTag, sizeof(kTag));
  ncclUniqueId encoded = {};
  std::memcpy(&encoded, &layout, sizeof(layout));
  return encoded;
}

std::optional<UniqueId> Decode(const ncclUniqueId& id) {
  Layout layout;
  std::memcpy(&layout, &id, sizeof(layout));
  if (std::memcmp(layout.tag, kTag, sizeof(kTag)) != 0) return std::nullopt;
  return layout.id;
}

Secret RandomSecret() {
  std::random_device device;
  Secret secret;
  for (unsigned char& byte : secret) byte = static_cast<unsigned char>(device());
  return secret;
}

std::optional<sockaddr_in> InterfaceAddress() {
  const char* wanted = std::getenv("NCCL_SOCKET_IFNAME");
  if (wanted == nullptr || *wanted == '\0') {
    sockaddr_in loopback = {};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return loopback;
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (!IsNamed(wanted, entry->ifa_name)) continue;
    sockaddr_in address;
    std::memcpy(&address, entry->ifa_addr, sizeof(address));
    address.sin_port = 0;
    return address;
  }
  return std::nullopt;
}

}  // namespace tensord::nccl_emulation
