#include "tensord/client/cli/servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::cli {
namespace {

using ::testing::HasSubstr;

Flags Given(const std::string& name, const std::string& value) {
  Flags flags;
  flags.Set(name, value);
  return flags;
}

TEST(Servers, FlagsTakePrecedenceOverTheEnvironment) {
  const auto one = ChooseServers(Given("server", "a:1"), "b:1,c:1", "d:1");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->one, "a:1");
  EXPECT_EQ(one->several, "");
  const auto several = ChooseServers(Given("servers", "a:1,b:1"), "c:1,d:1", "e:1");
  ASSERT_TRUE(several.ok());
  EXPECT_EQ(several->one, "");
  EXPECT_EQ(several->several, "a:1,b:1");
}

TEST(Servers, TheEnvironmentMayNameBoth) {
  const auto choice = ChooseServers({}, "a:1,b:1", "c:1");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->several, "a:1,b:1");
  EXPECT_EQ(*OneServer(*choice), "c:1");
}

TEST(Servers, DefaultsToThisMachine) {
  const auto choice = ChooseServers({}, "", "");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->several, "");
  EXPECT_EQ(*OneServer(*choice), "127.0.0.1:50051");
}

TEST(Servers, ACommandForOneServerTakesAListOfOne) {
  EXPECT_EQ(*OneServer(*ChooseServers({}, " a:1 ", "")), "a:1");
  const auto several = OneServer(*ChooseServers({}, "a:1,b:1", ""));
  EXPECT_TRUE(IsUsageError(several.status()));
  EXPECT_THAT(several.status().message(), HasSubstr("--server"));
}

TEST(Servers, RejectsBothFlagsAndAnEmptyList) {
  Flags both = Given("server", "a:1");
  both.Set("servers", "b:1");
  EXPECT_TRUE(IsUsageError(ChooseServers(both, "", "").status()));
  EXPECT_TRUE(IsUsageError(ChooseServers(Given("servers", ""), "", "").status()));
}

}  // namespace
}  // namespace tensord::cli
