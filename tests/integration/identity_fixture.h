// A daemon that authenticates its callers, and a folder for the test's files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/common/util/token_file.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/test_certificates.h"

namespace tensord::integration {

// The tokens of the principals alice and bob. Any string may be a token.
inline constexpr char kAlice[] = "alice-token";
inline constexpr char kBob[] = "bob-token";

class IdentityFixture : public testing::Test {
 protected:
  // Returns a line of the token file.
  static std::string Line(const std::string& name, const std::string& token,
                          absl::Time expires = absl::InfiniteFuture(), int weight = 1) {
    return *TokenLine(name, HashToken(token), expires, weight) + "\n";
  }

  // Writes a token file in which the token of each of these names is "NAME-token". Returns the flag
  // that names the file.
  std::string TokenFileFlag(const std::vector<std::string>& names) {
    std::string lines;
    for (const std::string& name : names) lines += Line(name, name + "-token");
    return "--token-file=" + folder_.Write("tokens", lines);
  }

  void StartDaemon(std::vector<std::string> flags,
                   const std::string& devices = "cpu=1GiB,cpu=64MiB") {
    flags.push_back("--devices=" + devices);
    auto daemon = DaemonProcess::Start(flags);
    if (!daemon.ok()) GTEST_FAIL() << daemon.status();
    daemon_ = *std::move(daemon);
  }

  void TearDown() override {
    if (daemon_ == nullptr) return;
    daemon_->ExpectTerminatesCleanly();
  }

  // Returns the status of a ListDevices call with this token.
  absl::Status Ask(const std::string& token) {
    RpcClient client(daemon_->address(), {.token = token});
    return ListDevices(client).status();
  }

  // Waits until the daemon's output contains `words`. Returns false if that takes too long.
  bool Says(const std::string& words) {
    return Eventually([&] { return daemon_->Output().find(words) != std::string::npos; });
  }

  TestFolder folder_;
  std::unique_ptr<DaemonProcess> daemon_;
};

}  // namespace tensord::integration
