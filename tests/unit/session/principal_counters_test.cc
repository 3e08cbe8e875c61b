#include "tensord/server/session/principal_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/session/principal.h"
#include "tensord/tests/unit/session/test_clock.h"

namespace tensord::server {
namespace {

using std::chrono::minutes;
using testing::ElementsAre;
using testing::StartsWith;

class PrincipalCountersTest : public testing::Test {
 protected:
  std::vector<std::string> Labels() {
    std::vector<std::string> labels;
    for (const PrincipalCountersRef& counters : table_.All()) labels.push_back(counters->label());
    return labels;
  }

  PrincipalCountersTable table_{[] { return now; }};
};

TEST_F(PrincipalCountersTest, CountersSurviveTheirPrincipal) {
  table_.Get("alice")->CountSent(Transfer::kBulk, 5);
  EXPECT_EQ(table_.Get("alice")->sent_bytes(Transfer::kBulk), 5);
  EXPECT_EQ(table_.Get("alice")->sent_bytes(Transfer::kMessage), 0);
  EXPECT_EQ(table_.Get("bob")->sent_bytes(Transfer::kBulk), 0);
}

TEST_F(PrincipalCountersTest, DropsCountersThatNothingUses) {
  const PrincipalCountersRef held = table_.Get("alice");
  table_.Get("bob");
  EXPECT_THAT(Labels(), ElementsAre("alice", "bob"));
  now += minutes(9);
  EXPECT_THAT(Labels(), ElementsAre("alice", "bob"));
  now += minutes(2);
  EXPECT_THAT(Labels(), ElementsAre("alice"));
}

TEST_F(PrincipalCountersTest, EachUseRestartsRetention) {
  table_.Get("bob")->CountRefusal("OTHER");
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Labels(), ElementsAre("bob"));
    now += minutes(9);
    EXPECT_EQ(table_.Get("bob")->refusals(kLimitReasons.size() - 1), 1);
  }
}

TEST_F(PrincipalCountersTest, FurtherPrincipalsShareOneLabel) {
  std::vector<PrincipalCountersRef> held;
  for (size_t i = 0; i < PrincipalCountersTable::kMaxPrincipals; ++i) {
    held.push_back(table_.Get(absl::StrCat("caller", i)));
  }
  const PrincipalCountersRef one = table_.Get("one more"), two = table_.Get("and another");
  EXPECT_EQ(one, two);
  EXPECT_EQ(one->label(), "(other)");
  EXPECT_EQ(Labels().size(), PrincipalCountersTable::kMaxPrincipals + 1);
  EXPECT_EQ(Labels().back(), "(other)");
  // A place becomes free once its counters are dropped.
  held.erase(held.begin());
  now += minutes(1);
  Labels();
  EXPECT_EQ(table_.Get("one more"), one);
  now += minutes(11);
  EXPECT_EQ(table_.Get("one more")->label(), "one more");
}

TEST_F(PrincipalCountersTest, UnknownReasonsCountAsOther) {
  const PrincipalCountersRef counters = table_.Get("alice");
  counters->CountRefusal("DEVICE_OUT_OF_MEMORY");
  counters->CountRefusal("A_CLIENTS_WORDS");
  counters->CountRefusal("");
  for (size_t i = 0; i < kLimitReasons.size(); ++i) {
    const int64_t expected = kLimitReasons[i] == "DEVICE_OUT_OF_MEMORY" ? 1
                             : kLimitReasons[i] == "OTHER"              ? 2
                                                                        : 0;
    EXPECT_EQ(counters->refusals(i), expected) << kLimitReasons[i];
  }
}

TEST_F(PrincipalCountersTest, AttemptsThatAreRepeatedCountOnce) {
  const PrincipalCountersRef counters = table_.Get("alice");
  {
    const RefusalCountingPause attempt;
    {
      const RefusalCountingPause inner;
      counters->CountRefusal("OTHER");
    }
    counters->CountRefusal("OTHER");
  }
  counters->CountRefusal("OTHER");
  EXPECT_EQ(counters->refusals(kLimitReasons.size() - 1), 1);
}

TEST_F(PrincipalCountersTest, MemoryCountsUntilItsLastBufferIsFreed) {
  const PrincipalCountersRef counters = table_.Get("alice");
  MemoryAccounts& accounts = counters->on_device(1).accounts;
  const auto open = [&] {
    return MemoryAccount::Open({.device = "cpu:1", .accounts = {counters, &accounts}});
  };
  MemoryAccount::Ref first = open();
  const MemoryAccount::Ref second = open();
  MemoryAccount* const closed = first.get();
  ASSERT_TRUE(first->Charge(100).ok());
  ASSERT_TRUE(second->Charge(10).ok());
  EXPECT_EQ(accounts.used_bytes(), 110);
  first.reset();
  EXPECT_EQ(accounts.used_bytes(), 110);
  closed->ReturnBytes(100);
  EXPECT_EQ(accounts.used_bytes(), 10);
  EXPECT_EQ(counters->on_device(0).accounts.used_bytes(), 0);
  second->ReturnBytes(10);
}

TEST(PrincipalLabelTest, PrincipalsHaveDifferentLabels) {
  PrincipalTable table;
  const auto label = [&](Principal::Kind kind, absl::string_view name) {
    return table.Get(kind, name)->counters().label();
  };
  EXPECT_EQ(label(Principal::Kind::kToken, "anonymous"), "anonymous");
  EXPECT_EQ(label(Principal::Kind::kAnonymous, "anonymous"), "(anonymous)");
  // Names that aren't UTF-8 or are too long.
  const std::string changed = label(Principal::Kind::kCertificate, "cn:\xff\"x");
  EXPECT_THAT(changed, StartsWith("cn:?\"x#"));
  EXPECT_NE(changed, label(Principal::Kind::kCertificate, "cn:\xfe\"x"));
  const std::string uri = "uri:" + std::string(5000, 'x');
  EXPECT_LE(label(Principal::Kind::kCertificate, uri + "1").size(), 256u);
  EXPECT_NE(label(Principal::Kind::kCertificate, uri + "1"),
            label(Principal::Kind::kCertificate, uri + "2"));
}

}  // namespace
}  // namespace tensord::server
