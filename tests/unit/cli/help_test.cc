#include "tensord/client/cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandSpec Probe() {
  return {.name = "probe",
          .summary = "looks whether it is there",
          .description =
              "Looks for a long time, with many words, at what may or may not be there, "
              "and then says so in one line.",
          .flags = {{"timeout", "SECONDS", "how long one question may take; 3 by default"}},
          .examples = {{"tensorctl probe --timeout 1", "Impatiently."}}};
}

const std::vector<FlagSpec> kGeneral = {{"server", "ADDRESS", "where the server is"}};

TEST(Help, OverviewNamesCommandsFlagsAndFirstSteps) {
  const std::string text = OverviewHelp({Probe()}, kGeneral, {});
  for (const char* part : {"probe", "looks whether it is there", "--server ADDRESS",
                           "tensorctl tour", "help COMMAND"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "no colours by default";
}

TEST(Help, CommandHelpHasAllParts) {
  const std::string text = CommandHelp(Probe(), kGeneral, {});
  for (const char* part : {"tensorctl probe [FLAGS]", "--timeout SECONDS", "3 by default",
                           "--server ADDRESS", "tensorctl probe --timeout 1", "Impatiently."}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Help, KeepsToTheTerminalsWidth) {
  for (int width : {50, 80, 120}) {
    const Terminal terminal = {.width = width, .is_terminal = true, .color = true};
    const std::string text =
        OverviewHelp({Probe()}, kGeneral, terminal) + CommandHelp(Probe(), kGeneral, terminal);
    EXPECT_THAT(text, HasSubstr("\x1b[1m"));
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

}  // namespace
}  // namespace tensord::cli
