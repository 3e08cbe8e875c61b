#include "tensord/tests/fault/hosts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tensord::fault {
namespace {

const auto* const kHosts = testing::AddGlobalTestEnvironment(&Hosts::Get());

bool Shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

Hosts& Hosts::Get() {
  static auto* const hosts = new Hosts;
  return *hosts;
}

std::string Hosts::AddressOf(int server) { return absl::StrCat("10.77.0.", 2 + server); }

std::string Hosts::In(int server, const std::string& command) const {
  return absl::StrCat("nsenter --net=/proc/self/fd/", servers_[server], " ", command);
}

bool Hosts::SetPlugged(int server, bool plugged) const {
  return Shell(In(server, absl::StrCat("ip link set s", server, plugged ? " up" : " down")));
}

bool Hosts::SetReachable(int server, int other, bool reachable) const {
  const std::string verb = reachable ? "del" : "add";
  return Shell(In(server, absl::StrCat("ip route ", verb, " blackhole ", AddressOf(other), "/32")));
}

bool Hosts::MakeServer(int server) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  servers_.push_back(open("/proc/thread-self/ns/net", O_RDONLY));
  if (servers_.back() < 0 || setns(client_, CLONE_NEWNET) != 0) return false;
  const std::string near = absl::StrCat("c", server);
  const std::string far = absl::StrCat("s", server);
  return Shell(absl::StrCat("ip link add ", near, " type veth peer name ", far)) &&
         Shell(absl::StrCat("ip link set ", far, " netns /proc/self/fd/", servers_.back())) &&
         Shell(absl::StrCat("ip link set ", near, " master switch0 up")) &&
         Shell(In(server, "ip link set lo up")) &&
         Shell(In(server, absl::StrCat("ip link set ", far, " up"))) &&
         Shell(In(server, absl::StrCat("ip addr add ", AddressOf(server), "/24 dev ", far)));
}

std::string Hosts::Make() {
  const std::string uid = std::to_string(getuid());
  const std::string gid = std::to_string(getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
    WriteFile("/proc/self/setgroups", "deny");
    WriteFile("/proc/self/uid_map", "0 " + uid + " 1");
    WriteFile("/proc/self/gid_map", "0 " + gid + " 1");
  } else if (unshare(CLONE_NEWNET) != 0) {
    return "the system doesn't permit network namespaces";
  }
  client_ = open("/proc/thread-self/ns/net", O_RDONLY);
  const bool has_switch =
      client_ >= 0 && Shell("ip link set lo up") && Shell("ip link add switch0 type bridge") &&
      Shell("ip addr add 10.77.0.1/24 dev switch0") && Shell("ip link set switch0 up");
  if (!has_switch) return "ip(8) can't create a bridge";
  for (int server = 0; server < kNumServerHosts; ++server) {
    if (!MakeServer(server)) return "ip(8) can't create a host with a cable";
  }
  return "";
}

}  // namespace tensord::fault
