#include "tensord/client/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using ::testing::HasSubstr;

TEST(Progress, LineHasShareAmountSpeedAndRemainingTime) {
  const int64_t gib = int64_t{1} << 30;
  EXPECT_EQ(ProgressLine("Sending", gib, 4 * gib, absl::Seconds(2), 80),
            "Sending  ████░░░░░░░░░░░░   25 %  1.00 GiB of 4.00 GiB  0.500 GiB/s  6.00 s left");
}

TEST(Progress, KeepsToTheWidth) {
  for (int width : {10, 40, 60, 80, 200}) {
    for (int64_t done : {int64_t{0}, int64_t{123456789}, int64_t{1} << 34}) {
      EXPECT_LE(DisplayWidth(ProgressLine("Reading product", done, int64_t{1} << 34,
                                          absl::Seconds(3), width)),
                width);
    }
  }
}

TEST(Progress, AnEmptyTransferIsDone) {
  EXPECT_THAT(ProgressLine("Sending", 0, 0, absl::ZeroDuration(), 80), HasSubstr("100 %"));
}

TEST(Progress, DrawsNothingWithoutATerminal) {
  std::ostringstream out;
  const Terminal pipe;
  {
    Progress progress("Sending", out, pipe);
    progress.options().progress(1, 2);
  }
  EXPECT_EQ(out.str(), "");
}

TEST(Progress, DrawsNothingOfAShortTransfer) {
  std::ostringstream out;
  const Terminal terminal = {.width = 80, .is_terminal = true, .color = true};
  {
    Progress progress("Sending", out, terminal);
    progress.Update(2, 2);
  }
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace tensord::cli
