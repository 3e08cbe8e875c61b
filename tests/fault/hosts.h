// Hosts on a network, for tests: network namespaces (network_namespaces(7)) that are the test
// program's own and go with it. This program is on one host, four servers may be on others; each
// has a cable to a switch.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <vector>

namespace tensord::fault {

inline constexpr int kNumServerHosts = 4;

// Made before there are threads: link it in, and it is.
class Hosts final : public testing::Environment {
 public:
  static Hosts& Get();

  void SetUp() override { why_not_ = Make(); }

  // Empty where the hosts are there.
  const std::string& why_not() const { return why_not_; }

  // "10.77.0.2" and following.
  static std::string AddressOf(int server);

  // Runs `start` as if on a server's host: processes that it starts are there.
  template <typename Start>
  auto On(int server, Start start) const {
    setns(servers_[server], CLONE_NEWNET);
    auto result = start();
    setns(client_, CLONE_NEWNET);
    return result;
  }

  // A server's cable, at its end. False where that can't be done.
  bool SetPlugged(int server, bool plugged) const;
  // Whether two servers reach each other. What was on its way is lost, and nobody is told.
  bool SetReachable(int server, int other, bool reachable) const;

 private:
  std::string Make();
  bool MakeServer(int server);
  std::string In(int server, const std::string& command) const;

  std::string why_not_ = "not made yet";
  int client_ = -1;  // the namespaces
  std::vector<int> servers_;
};

}  // namespace tensord::fault
