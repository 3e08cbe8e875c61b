// Sharing: one principal publishes a tensor under a name, and another opens it without a copy.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

class SharingTest : public IdentityFixture {
 protected:
  void SetUp() override {
    folder_.Write("tokens", absl::StrCat(Line("alice", "a"), Line("bob", "b"), Line("carol", "c")));
    StartDaemon({"--token-file=" + folder_.File("tokens"), "--max-published-per-principal=3"});
    alice_ = Connect("a");
    bob_ = Connect("b");
    carol_ = Connect("c");
  }
  void TearDown() override {
    for (Client* client : {&alice_, &bob_, &carol_}) client->Close();
    IdentityFixture::TearDown();
  }

  Client Connect(const std::string& token) {
    ConnectOptions options;
    options.token = token;
    auto client = Client::Connect(daemon_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : Client();
  }
  static Tensor Floats(const Client& client, std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    return FromVector<float>(*client.device("cpu:0"), {n}, std::move(values));
  }
  int64_t Used() { return alice_.memory(*alice_.device("cpu:0"))->used_bytes; }

  Client alice_, bob_, carol_;
};

TEST_F(SharingTest, ReaderOpensTheTensorWithoutACopy) {
  const Tensor weights = Ones(*alice_.device("cpu:0"), {1 << 18}) * 3;
  ASSERT_TRUE(alice_.Publish(weights, "model/weights", {"bob"}).ok());
  const int64_t used = Used();
  const auto opened = bob_.Open("model/weights", "alice");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->spec(), weights.spec());
  EXPECT_EQ(Used(), used);
  EXPECT_EQ(*Sum(*opened).Item<float>(), 3 << 18);
  EXPECT_EQ(*Sum(*Connect("a").Open("model/weights")).Item<float>(), 3 << 18) << "by the owner";
}

TEST_F(SharingTest, HidesNamesFromOtherPrincipals) {
  ASSERT_TRUE(alice_.Publish(Floats(alice_, {1, 2}), "x", {"bob"}).ok());
  const absl::Status foreign = carol_.Open("x", "alice").status();
  EXPECT_EQ(foreign.code(), Code::kNotFound);
  EXPECT_EQ(foreign, carol_.Open("y", "alice").status()) << "the same error";
  EXPECT_EQ(foreign, carol_.Open("x", "unknown").status());
  EXPECT_EQ(foreign, bob_.Open("x").status()) << "each owner has its own names";
  EXPECT_EQ(foreign, bob_.Unpublish("x"));
  EXPECT_EQ(ErrorReason(foreign), "PUBLICATION_NOT_FOUND");
  ASSERT_TRUE(bob_.Publish(Floats(bob_, {7}), "x", {"carol"}).ok());
  EXPECT_THAT(*carol_.Open("x", "bob")->Read<float>(), ElementsAre(7));
}

TEST_F(SharingTest, TensorLivesUntilItsLastHolderDropsIt) {
  Tensor x = Floats(alice_, {1, 2, 3});
  ASSERT_TRUE(alice_.Publish(x, "x", {"bob"}).ok());
  x = Tensor();
  ASSERT_TRUE(alice_.Synchronize().ok());
  auto opened = bob_.Open("x", "alice");
  ASSERT_TRUE(opened.ok()) << "the name holds it: " << opened.status();
  ASSERT_TRUE(alice_.Unpublish("x").ok());
  EXPECT_EQ(bob_.Open("x", "alice").status().code(), Code::kNotFound);
  alice_.Close();
  EXPECT_THAT(*(*opened + 1).Read<float>(), ElementsAre(2, 3, 4));
  *opened = Tensor();
  ASSERT_TRUE(bob_.Synchronize().ok());
  ExpectEventuallyUsed([this] { return bob_.memory(*bob_.device("cpu:0"))->used_bytes; }, 0);
}

TEST_F(SharingTest, NameEndsWithItsSession) {
  ASSERT_TRUE(alice_.Publish(Floats(alice_, {1}), "x", {"bob"}).ok());
  alice_.Close();
  EXPECT_EQ(bob_.Open("x", "alice").status().code(), Code::kNotFound);
  ExpectEventuallyUsed([this] { return bob_.memory(*bob_.device("cpu:0"))->used_bytes; }, 0);
}

TEST_F(SharingTest, LimitsNamesAndAllowsOtherReaders) {
  const Tensor x = Floats(alice_, {1}), y = Floats(alice_, {2});
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(alice_.Publish(x, name).ok());
  ExpectError(alice_.Publish(x, "d"), Code::kResourceExhausted,
              {"--max-published-per-principal=3"});
  ExpectError(alice_.Publish(y, "a"), Code::kAlreadyExists);
  EXPECT_EQ(bob_.Open("a", "alice").status().code(), Code::kNotFound);
  ASSERT_TRUE(alice_.Publish(x, "a", {"bob"}).ok());
  EXPECT_TRUE(bob_.Open("a", "alice").ok());
  ASSERT_TRUE(alice_.Publish(x, "a", {"carol"}).ok());
  EXPECT_EQ(bob_.Open("a", "alice").status().code(), Code::kNotFound)
      << "a repeated Publish replaces the principals";
  ASSERT_TRUE(alice_.Unpublish("b").ok());
  EXPECT_TRUE(alice_.Publish(y, "b").ok());
}

TEST_F(SharingTest, RejectsInvalidPublications) {
  const Tensor x = Floats(alice_, {1});
  for (const std::string& name : {std::string(), std::string(129, 'x'), std::string("a\nb")}) {
    ExpectError(alice_.Publish(x, name), Code::kInvalidArgument, {"128"});
  }
  ExpectError(alice_.Publish(x, "x", std::vector<std::string>(65, "bob")), Code::kInvalidArgument,
              {"64"});
  ExpectError(alice_.Publish(x, "x", {""}), Code::kInvalidArgument);
  ExpectError(alice_.Publish(Tensor(), "x"), Code::kFailedPrecondition);
  ExpectError(bob_.Publish(x, "x"), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tensord::integration
