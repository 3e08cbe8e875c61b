// The effects of a report of misuse on the program.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::cuda_emulation {
namespace {

TEST(ReportTest, GivesAProgramTheExitCodeOfMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Report("a misuse");
        std::exit(0);
      },
      testing::ExitedWithCode(kExitCodeOfMisuse), "cuda emulation: a misuse");
  EXPECT_EXIT(
      {
        Report("a misuse");
        ExpectReports();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "cuda emulation: a misuse");
}

// ctest runs this test as cuda_misuse_fails_the_test, and expects that it fails.
TEST(ReportTest, DISABLED_MisuseFailsTheTest) { Report("a misuse"); }

}  // namespace
}  // namespace tensord::cuda_emulation
