// Guessed tokens.
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

using CallEnd = RawHttp2::CallEnd;

class TokenGuessTest : public TokenAttackFixture {};

// The server closes a connection after 50 refused calls, so the attacker makes fewer calls on each
// connection and connects again. No guess gets a response, and a legitimate client is served
// meanwhile. The long form (TENSORD_TEST_LONG=1) guesses a million tokens. About one guess in nine
// resembles alice's token (another last character, one character more, or one fewer), or is very
// short.
TEST_F(TokenGuessTest, NoGuessIsAcceptedAndClientsAreServed) {
  const int guesses = std::getenv("TENSORD_TEST_LONG") != nullptr ? 1000000 : 20000;
  constexpr uint32_t kGuessesPerConnection = 45;
  const std::string alice = kAlice;
  const std::string similar[] = {alice + "x", alice.substr(0, alice.size() - 1),
                                 alice.substr(0, alice.size() - 1) + "m", "", "a"};
  std::mt19937_64 random(7);
  int answered = 0;
  for (int round = 0; answered < guesses; ++round) {
    ASSERT_LT(round, guesses) << "the server answers too few of the calls";
    RawHttp2 connection(daemon_->address());
    ASSERT_TRUE(connection.SendPreface());
    for (uint32_t i = 0; i < kGuessesPerConnection; ++i) {
      const std::string token = i % 10 == 0
                                    ? similar[random() % std::size(similar)]
                                    : absl::StrCat(absl::Hex(random()), absl::Hex(random()));
      if (!connection.BeginCall(1 + 2 * i, "ListDevices", {{"authorization", "Bearer " + token}})) {
        break;
      }
    }
    for (uint32_t i = 0; i < kGuessesPerConnection; ++i) {
      const CallEnd end = connection.AwaitEnd(1 + 2 * i);
      ASSERT_NE(end, CallEnd::kResponse);
      if (end == CallEnd::kNone) break;
      ++answered;
    }
    if (round % 100 == 0) ExpectServed();
  }
}

// All guesses are made on one connection. The server closes it after some of them.
TEST_F(TokenGuessTest, ManyGuessesEndTheConnection) {
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  bool open = true;
  for (uint32_t i = 0; open && i < 10000; ++i) {
    open = connection.BeginCall(1 + 2 * i, "ListDevices", {{"authorization", "Bearer x"}});
  }
  EXPECT_TRUE(!open || connection.AwaitClosed(std::chrono::seconds(30)));
}

}  // namespace
}  // namespace tensord::attack
