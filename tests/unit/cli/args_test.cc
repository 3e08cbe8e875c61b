#include "tensord/client/cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/common/util/nearest_word.h"

namespace tensord::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Action = Invocation::Action;

const std::vector<CommandSpec>& Commands() {
  static const std::vector<CommandSpec> commands = {
      {.name = "devices", .flags = {{"json", "", ""}}},
      {.name = "tensors", .flags = {{"session", "NUMBER", ""}}},
      {.name = "health", .flags = {{"timeout", "SECONDS", ""}, {"device", "NAME", ""}}},
      {.name = "token", .flags = {{"add", "FILE", ""}}, .operand = "NAME"},
      {.name = "close", .flags = {{"principal", "NAME", ""}}, .operands = "NUMBER…"}};
  return commands;
}

absl::StatusOr<Invocation> Parse(const std::vector<std::string>& args) {
  static const std::vector<FlagSpec> general = {
      {"server", "ADDRESS", ""}, {"help", "", ""}, {"version", "", ""}};
  return ParseCommandLine(args, Commands(), general);
}

// Parses invalid arguments. Returns the message of the usage error.
std::string ErrorOf(const std::vector<std::string>& args) {
  const absl::StatusOr<Invocation> invocation = Parse(args);
  if (invocation.ok()) return "(no error)";
  EXPECT_TRUE(IsUsageError(invocation.status()));
  return std::string(invocation.status().message());
}

TEST(Args, FlagsStandBeforeAndAfterTheCommandInBothForms) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--server", "h:1", "health", "--timeout", "2"},
        std::vector<std::string>{"health", "--timeout=2", "--server=h:1"}}) {
    const auto invocation = Parse(args);
    ASSERT_TRUE(invocation.ok()) << invocation.status();
    EXPECT_EQ(invocation->action, Action::kRun);
    EXPECT_EQ(invocation->command, &Commands()[2]);
    EXPECT_EQ(invocation->flags.Get("server", ""), "h:1");
    EXPECT_EQ(*invocation->flags.GetNumber("timeout", 3, 0, 10), 2);
    EXPECT_FALSE(invocation->flags.Has("device"));
  }
}

TEST(Args, ACommandMayTakeAnyNumberOfOperands) {
  const auto none = Parse({"close", "--principal", "alice"});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->flags.operands().empty());
  const auto two = Parse({"close", "3", "--server", "h:1", "4"});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->flags.operands(), (std::vector<std::string>{"3", "4"}));
  EXPECT_EQ(two->flags.Get("server", ""), "h:1");
}

TEST(Args, AnOperandStandsBeforeAndAfterTheFlags) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"token", "alice", "--add", "f"},
        std::vector<std::string>{"token", "--add=f", "alice"}}) {
    const auto invocation = Parse(args);
    ASSERT_TRUE(invocation.ok()) << invocation.status();
    EXPECT_EQ(invocation->flags.Get("NAME", ""), "alice");
    EXPECT_EQ(invocation->flags.Get("add", ""), "f");
  }
  EXPECT_THAT(ErrorOf({"token"}), HasSubstr("token needs a NAME"));
  EXPECT_THAT(ErrorOf({"token", "alice", "bob"}), AllOf(HasSubstr("bob"), HasSubstr("one NAME")));
}

TEST(Args, NoArgumentsAndHelpGiveTheOverview) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{}, {"help"}, {"--help"}, {"-h"}, {"nonsense", "--help"}}) {
    const auto invocation = Parse(args);
    ASSERT_TRUE(invocation.ok()) << invocation.status();
    EXPECT_EQ(invocation->action, Action::kOverview);
  }
}

TEST(Args, HelpOfACommandTakesPrecedenceOverErrors) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"help", "health"},
                                               {"health", "--help"},
                                               {"--help", "health"},
                                               {"health", "--timeuot", "-h"}}) {
    const auto invocation = Parse(args);
    ASSERT_TRUE(invocation.ok()) << invocation.status();
    EXPECT_EQ(invocation->action, Action::kCommandHelp);
    EXPECT_EQ(invocation->command, &Commands()[2]);
  }
}

TEST(Args, Version) {
  const auto invocation = Parse({"--version"});
  ASSERT_TRUE(invocation.ok());
  EXPECT_EQ(invocation->action, Action::kVersion);
}

TEST(Args, MistakesSuggestTheNearestName) {
  EXPECT_THAT(ErrorOf({"device"}), AllOf(HasSubstr("\"device\""), HasSubstr("\"devices\"?")));
  EXPECT_THAT(ErrorOf({"helth"}), HasSubstr("\"health\"?"));
  EXPECT_THAT(ErrorOf({"frobnicate"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(ErrorOf({"help", "tensor"}), HasSubstr("\"tensors\"?"));
  EXPECT_THAT(ErrorOf({"health", "--timeuot=2"}), HasSubstr("\"--timeout\"?"));
  EXPECT_THAT(ErrorOf({"--sevrer", "x", "health"}), HasSubstr("\"--server\"?"));
  EXPECT_THAT(ErrorOf({"--json", "devices"}), HasSubstr("after the command"));
}

TEST(Args, RejectsInvalidValues) {
  EXPECT_THAT(ErrorOf({"health", "--timeout"}), HasSubstr("--timeout SECONDS"));
  EXPECT_THAT(ErrorOf({"devices", "--json=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(ErrorOf({"devices", "cpu:0"}), HasSubstr("\"cpu:0\""));
  EXPECT_THAT(ErrorOf({"devices", "-json"}), HasSubstr("--json"));
}

TEST(Args, NumbersAreChecked) {
  Flags flags;
  flags.Set("n", "12");
  flags.Set("word", "twelve");
  flags.Set("nan", "nan");
  EXPECT_EQ(*flags.GetInt("n", 0, 0, 100), 12);
  EXPECT_EQ(*flags.GetInt("absent", 7, 0, 100), 7);
  EXPECT_TRUE(IsUsageError(flags.GetInt("n", 0, 0, 11).status()));
  EXPECT_TRUE(IsUsageError(flags.GetNumber("word", 0, 0, 11).status()));
  EXPECT_TRUE(IsUsageError(flags.GetNumber("nan", 0, 0, 11).status()));
  EXPECT_THAT(flags.GetInt("n", 0, 0, 11).status().message(),
              AllOf(HasSubstr("--n"), HasSubstr("0 to 11"), HasSubstr("12")));
}

TEST(Args, NearestIgnoresDistantWords) {
  const std::vector<std::string> words = {"device", "rows", "run-model"};
  EXPECT_EQ(Nearest("devcie", words), "device");
  EXPECT_EQ(Nearest("row", words), "rows");
  EXPECT_EQ(Nearest("run", words), "run-model") << "a beginning";
  EXPECT_EQ(Nearest("rwos", words), "rows") << "two letters exchanged";
  EXPECT_EQ(Nearest("x", words), "");
  EXPECT_EQ(Nearest("", words), "");
}

}  // namespace
}  // namespace tensord::cli
