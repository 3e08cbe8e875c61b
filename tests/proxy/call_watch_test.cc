#include "tensord/tests/proxy/call_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/tests/http2_frame.h"

namespace tensord::proxy {
namespace {

constexpr char kMethod[] = "/a.Service/Do";

std::string Frame(FrameType type, char flags, char stream, const std::string& body) {
  std::string head(9, '\0');
  head[1] = static_cast<char>(body.size() >> 8);
  head[2] = static_cast<char>(body.size() & 0xff);
  head[3] = static_cast<char>(type);
  head[4] = flags;
  head[8] = stream;
  return head + body;
}

std::string Path(const std::string& method) {
  return absl::StrCat(std::string(1, static_cast<char>(method.size())), method);
}

std::string Message(size_t size) {
  std::string prefix(5, '\0');
  prefix[4] = static_cast<char>(size);
  return prefix + std::string(size, 'x');
}

// The bytes of a client: settings, the headers of another call, then the call: headers (9 + 20
// bytes), two messages (of 10 and 3 bytes) in two frames, and an empty frame that ends the call. A
// frame of the other call is between the two.
struct Talk {
  std::string before = absl::StrCat(kPreface, Frame(kSettings, 0, 0, "....."),
                                    Frame(kHeaders, 0, 1, Path("/a.Service/DoIt")));
  std::string headers = Frame(kHeaders, 0, 3, Path(kMethod) + "......");
  std::string first = Frame(kData, 0, 3, Message(10).substr(0, 7));
  std::string other = Frame(kData, kEndStream, 1, Message(30));
  std::string second = Frame(kData, 0, 3, Message(10).substr(7) + Message(3));
  std::string end = Frame(kData, kEndStream, 3, "");
  std::string all() const { return before + headers + first + other + second + end; }
};

// Returns where the position is found, if each read has `read_bytes` bytes; npos if it isn't found.
size_t Find(const CallPosition& position, const std::string& bytes, size_t read_bytes) {
  CallWatch watch;
  watch.LookFor(position);
  for (size_t at = 0; at < bytes.size(); at += read_bytes) {
    const auto found =
        watch.Pass(position.direction, absl::string_view(bytes).substr(at, read_bytes));
    if (found) return at + *found;
  }
  return std::string::npos;
}

TEST(CallWatchTest, FindsEachPositionOfACall) {
  const Talk talk;
  const size_t begin = talk.before.size();
  const size_t data = begin + talk.headers.size();
  const size_t second = data + talk.first.size() + talk.other.size();
  const auto find = [&](int64_t messages, int64_t bytes) {
    return Find({.method = kMethod, .messages = messages, .bytes = bytes}, talk.all(), 1 << 20);
  };
  EXPECT_EQ(find(0, 0), begin);
  EXPECT_EQ(find(0, 4), begin + 4);
  EXPECT_EQ(find(0, static_cast<int64_t>(talk.headers.size())), data);
  EXPECT_EQ(find(0, static_cast<int64_t>(talk.headers.size()) + 10), data + 10);
  EXPECT_EQ(find(0, static_cast<int64_t>(talk.headers.size() + talk.first.size()) + 2), second + 2)
      << "another call's bytes don't count";
  EXPECT_EQ(find(1, 0), second + 9 + 8) << "right after the first message";
  EXPECT_EQ(find(1, 3), second + 9 + 8 + 3);
  EXPECT_EQ(find(2, 0), second + talk.second.size());
  EXPECT_EQ(find(3, 0), std::string::npos);
  EXPECT_EQ(Find({.method = kMethod, .at_end = true}, talk.all(), 1 << 20),
            second + talk.second.size());
  EXPECT_EQ(Find({.method = "/a.Service/Don't"}, talk.all(), 1 << 20), std::string::npos);
}

// Finds the exact position in a frame's body, even if the body arrives in several reads.
TEST(CallWatchTest, FindsPositionInFragments) {
  const Talk talk;
  const size_t data = talk.before.size() + talk.headers.size();
  for (size_t read_bytes = 1; read_bytes < 40; ++read_bytes) {
    const size_t found = Find({.method = kMethod, .messages = 1}, talk.all(), read_bytes);
    EXPECT_EQ(found, data + talk.first.size() + talk.other.size() + 9 + 8) << read_bytes;
    EXPECT_LE(Find({.method = kMethod}, talk.all(), read_bytes), data) << read_bytes;
  }
}

TEST(CallWatchTest, FindsPositionsOfTheResponse) {
  const Talk talk;
  const std::string settings = Frame(kSettings, 0, 0, "");
  const std::string other = Frame(kHeaders, 0, 1, "another's");
  const std::string answer = Frame(kHeaders, 0, 3, "ok") + Frame(kData, 0, 3, Message(4));
  const std::string status = Frame(kHeaders, kEndStream, 3, "status");
  const std::string all = settings + other + answer + status;
  const auto find = [&](CallPosition position) {
    position.method = kMethod;
    position.direction = Direction::kToClient;
    CallWatch watch;
    watch.LookFor(position);
    EXPECT_FALSE(watch.Pass(Direction::kToServer, talk.all()));
    return watch.Pass(Direction::kToClient, all).value_or(std::string::npos);
  };
  const size_t begin = settings.size() + other.size();
  EXPECT_EQ(find({}), begin);
  EXPECT_EQ(find({.bytes = 15}), begin + 15);
  EXPECT_EQ(find({.messages = 1}), begin + answer.size());
  EXPECT_EQ(find({.at_end = true}), begin + answer.size());
}

TEST(CallWatchTest, IgnoresOtherProtocols) {
  CallWatch watch;
  watch.LookFor(CallPosition{.method = kMethod});
  EXPECT_FALSE(watch.Pass(Direction::kToServer, absl::StrCat("GET ", Path(kMethod))));
  EXPECT_FALSE(watch.Pass(Direction::kToServer, Talk().headers));
}

}  // namespace
}  // namespace tensord::proxy
