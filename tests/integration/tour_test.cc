// tensorctl tour against a daemon: every step must give the result that the step's text announces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/run_command.h"

namespace tensord::integration {
namespace {

TEST(TourTest, EveryStepSucceedsOnTwoDevicesOfAKindAndACpu) {
  const bool is_cpu = TestDeviceKind() == "cpu";
  const std::string devices = is_cpu ? "cpu,cpu" : "cuda:0,cuda:1,cpu";
  const auto daemon = DaemonProcess::Start({"--devices=" + devices});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const CommandResult tour =
      RunCommand(absl::StrCat("env -u TENSORD_SERVERS " TENSORCTL_PATH " --server ",
                              (*daemon)->address(), " tour --data " TENSORD_TEST_DATA " 2>&1"));
  EXPECT_EQ(tour.exit_code, 0) << tour.out;
  EXPECT_THAT(tour.out, testing::HasSubstr("All 9 steps"));
  (*daemon)->ExpectTerminatesCleanly();
}

}  // namespace
}  // namespace tensord::integration
