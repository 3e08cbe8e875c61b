#include "tensord/client/tour/narrator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::tour {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Narrator, PrintsAStep) {
  std::ostringstream out;
  Narrator narrator(out, {.width = 40});
  narrator.Heading("Copy, then add");
  narrator.Print("A copy is a tensor of its own, and can be added.");
  narrator.Code("Tensor z = x + y;\nstd::cout << z;\n");
  narrator.Show("tensor([1.])\n");
  EXPECT_EQ(narrator.step(), 1);
  EXPECT_EQ(out.str(),
            "\n1  Copy, then add ──────────────────────\n"
            "\n  A copy is a tensor of its own, and can\n  be added.\n"
            "\n  │ Tensor z = x + y;\n  │ std::cout << z;\n"
            "\n    tensor([1.])\n");
}

TEST(Narrator, UsesPartOfVeryWideTerminals) {
  std::ostringstream out;
  Narrator narrator(out, {.width = 300});
  narrator.Heading("Wide");
  for (int i = 0; i < 50; ++i) narrator.Print("many words that go on and on and on and on and on");
  for (absl::string_view line : absl::StrSplit(out.str(), '\n')) {
    EXPECT_LE(cli::DisplayWidth(line), 100);
  }
}

TEST(Narrator, ColoursOnlyIfEnabled) {
  std::ostringstream plain;
  std::ostringstream colored;
  for (auto* out : {&plain, &colored}) {
    Narrator narrator(*out, {.width = 80, .is_terminal = true, .color = out == &colored});
    narrator.Title("A tour");
    narrator.Heading("One");
    narrator.ShowWrapped("INVALID_ARGUMENT", cli::Style::kRed);
    narrator.Conclude("well", true);
  }
  EXPECT_THAT(plain.str(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(colored.str(), HasSubstr("\x1b[31mINVALID_ARGUMENT\x1b[0m"));
}

}  // namespace
}  // namespace tensord::tour
