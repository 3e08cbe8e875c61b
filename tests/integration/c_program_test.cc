// The C interface, used by a program in C, and the symbols of its library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/run_command.h"

namespace tensord::integration {
namespace {

TEST(CProgramTest, AProgramInCComputesAndMeetsErrors) {
  const auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const CommandResult result = RunCommand(TENSORD_C_PROGRAM " " + (*daemon)->address() + " 2>&1");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  // The end of the program has ended its sessions.
  const CommandResult sessions =
      RunCommand(TENSORCTL_PATH " --server " + (*daemon)->address() + " sessions --json 2>&1");
  EXPECT_EQ(sessions.exit_code, 0) << sessions.out;
  EXPECT_THAT(sessions.out, testing::HasSubstr("\"sessions\": []"));
  (*daemon)->ExpectTerminatesCleanly();
}

TEST(CProgramTest, TheLibraryExportsOneFunction) {
  const CommandResult symbols =
      RunCommand("nm -D --defined-only --format=posix " TENSORD_C_LIBRARY " | cut -d' ' -f1");
  EXPECT_EQ(symbols.out, "tensord_api\n");
  EXPECT_THAT(RunCommand("ldd " TENSORD_C_LIBRARY).out,
              testing::Not(testing::HasSubstr("libpython")));
}

}  // namespace
}  // namespace tensord::integration
