// A network of hosts for tests. Each host is a network namespace (network_namespaces(7)) that the
// test program creates, and that ends with the program. The program runs on one host and can start
// servers on four others. Each host has a cable to a switch.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <vector>

namespace tensord::fault {

inline constexpr int kNumServerHosts = 4;

// A program that links hosts.cc creates the hosts at its start, before it has other threads.
class Hosts final : public testing::Environment {
 public:
  static Hosts& Get();

  void SetUp() override { why_not_ = Make(); }

  // Returns the reason why the hosts couldn't be created; empty if they exist.
  const std::string& why_not() const { return why_not_; }

  // Returns the server's address: "10.77.0.2" and following.
  static std::string AddressOf(int server);

  // Runs `start` on the calling thread, in the network of a server's host. The processes that it
  // starts stay on that host.
  template <typename Start>
  auto On(int server, Start start) const {
    setns(servers_[server], CLONE_NEWNET);
    auto result = start();
    setns(client_, CLONE_NEWNET);
    return result;
  }

  // Plugs or unplugs the server's cable. Returns false on failure.
  bool SetPlugged(int server, bool plugged) const;
  // Restores or breaks the link between two servers. A broken link drops packets silently,
  // including those in flight. Returns false on failure.
  bool SetReachable(int server, int other, bool reachable) const;

 private:
  std::string Make();
  bool MakeServer(int server);
  std::string In(int server, const std::string& command) const;

  std::string why_not_ = "the hosts haven't been created yet";
  int client_ = -1;           // the namespace of this program's host
  std::vector<int> servers_;  // the namespaces of the servers' hosts
};

}  // namespace tensord::fault
