// tensorctl tour against a daemon: every step must give the result that the step's text announces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::integration {
namespace {

struct CommandResult {
  int exit_code = -1;
  std::string output;  // standard output and standard error
};

CommandResult RunCommand(const std::string& command) {
  CommandResult result;
  FILE* pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  while (const size_t size = fread(buffer, 1, sizeof(buffer), pipe)) {
    result.output.append(buffer, size);
  }
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(TourTest, EveryStepSucceedsOnTwoDevicesOfAKindAndACpu) {
  const bool is_cpu = TestDeviceKind() == "cpu";
  const std::string devices = is_cpu ? "cpu,cpu" : "cuda:0,cuda:1,cpu";
  const auto daemon = DaemonProcess::Start({"--devices=" + devices});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const CommandResult tour =
      RunCommand(absl::StrCat("env -u TENSORD_SERVERS " TENSORCTL_PATH " --server ",
                              (*daemon)->address(), " tour --data " TENSORD_TEST_DATA));
  EXPECT_EQ(tour.exit_code, 0) << tour.output;
  EXPECT_THAT(tour.output, testing::HasSubstr("All 9 steps"));
  const auto exit_code = (*daemon)->Terminate();
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 0) << (*daemon)->Output();
}

}  // namespace
}  // namespace tensord::integration
