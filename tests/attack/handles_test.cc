// Tests guessed handles and sessions, and client text that reaches the log.
#include <cstdlib>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::attack {
namespace {

using integration::DaemonFixture;
using integration::RpcSession;

class HandlesTest : public DaemonFixture {};

class SessionLogTest : public DaemonFixture {
 protected:
  SessionLogTest() : DaemonFixture({"--log-sessions"}) {}
};

// The error for a handle of another session must equal the error for a handle that doesn't exist,
// except for the number. The long form (TENSORD_TEST_LONG=1) guesses a million handles.
TEST_F(HandlesTest, GuessedAndForeignHandlesGetTheSameError) {
  const int guesses = std::getenv("TENSORD_TEST_LONG") != nullptr ? 1000000 : 20000;
  constexpr int kForeign = 100;
  std::mt19937_64 random(3);
  std::vector<uint64_t> handles;
  for (int i = 0; i < kForeign; ++i) {
    handles.push_back(random());
    ASSERT_TRUE(session_->CreateFloats(handles.back(), {1}).ok());
  }
  RpcSession thief(*client_);
  auto stream = client_->SessionStream();
  std::string answer;
  for (int done = 0; done < guesses; done += 1000) {
    v1::SessionStreamRequest message;
    if (done == 0) message.mutable_attach()->set_session(thief.id());
    std::vector<uint64_t> asked;
    for (int i = 0; i < 1000; ++i) {
      asked.push_back(i % 10 == 0 ? handles[random() % kForeign] : random());
      v1::GetElements& get = *message.add_commands()->mutable_get_elements();
      get.set_handle(asked.back());
      get.set_request_id(asked.size());
    }
    ASSERT_TRUE(stream->Send(message));
    for (size_t received = 0; received < asked.size();) {
      const auto response = stream->Next();
      ASSERT_TRUE(response.has_value());
      for (const v1::Elements& elements : response->elements()) {
        ++received;
        ASSERT_EQ(elements.code(), static_cast<int>(absl::StatusCode::kNotFound));
        const std::string words = absl::StrReplaceAll(
            elements.message(), {{absl::StrCat(asked[elements.request_id() - 1]), "N"}});
        if (answer.empty()) answer = words;
        ASSERT_EQ(words, answer);
      }
    }
  }
  EXPECT_EQ(*session_->ReadFloats(handles[0]), std::vector<float>{1});
}

TEST_F(SessionLogTest, ClientNamesDoNotBreakTheLog) {
  v1::OpenSessionRequest request;
  request.set_client_name("nice\ntensord: listening on evil\x1b[2J\r");
  client_->Call<v1::Session>("OpenSession", request).IgnoreError();
  v1::CreateTensorRequest create;
  create.set_session("x\ntensord: listening on evil");
  client_->Call<v1::Tensor>("CreateTensor", create).IgnoreError();
  EXPECT_TRUE(integration::Eventually(
      [&] { return absl::StrContains(daemon_->Output(), "nice\\ntensord: listening on evil"); }));
  EXPECT_THAT(daemon_->Output(), testing::Not(testing::HasSubstr("\ntensord: listening on evil")));
}

// Protobuf logs a line for each string that isn't UTF-8. A client must not be able to fill the log.
TEST_F(HandlesTest, InvalidUtf8IsNotLogged) {
  const std::string before = daemon_->Output();
  const std::string name = "\x12\x01\xff", session = "\x0a\x01\xff";
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(client_->CallRaw("OpenSession", name).ok());
    EXPECT_FALSE(client_->CallRaw("CreateTensor", session).ok());
    EXPECT_FALSE(client_->CallRaw("Write", "\x0a\x03" + session).ok());
    EXPECT_FALSE(client_->CallRaw("SessionStream", "\x0a\x03" + session).ok());
  }
  EXPECT_EQ(daemon_->Output(), before);
}

}  // namespace
}  // namespace tensord::attack
