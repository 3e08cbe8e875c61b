// The file of hashed tokens: valid lines, and errors that name the invalid line.
#include "tensord/common/util/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

using testing::HasSubstr;
using testing::Not;

// The SHA-256 hash of "abc", from the appendix of FIPS 180-2.
constexpr char kHashOfAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(TokenFileTest, FindsATokenByItsHash) {
  const auto file = TokenFile::Parse(absl::StrCat("alice sha256:", kHashOfAbc, "\n"));
  ASSERT_TRUE(file.ok()) << file.status();
  const TokenFile::Token* token = file->Find(HashToken("abc"));
  ASSERT_NE(token, nullptr);
  EXPECT_EQ(token->name, "alice");
  EXPECT_EQ(token->expires, absl::InfiniteFuture());
  EXPECT_EQ(file->Find(HashToken("abd")), nullptr);
  EXPECT_EQ(file->Find(HashToken("")), nullptr);
}

TEST(TokenFileTest, IgnoresCommentsAndSpace) {
  const auto file = TokenFile::Parse(absl::StrCat("# tokens\n\n  \t\n\talice   sha256:", kHashOfAbc,
                                                  "   # hers\r\n#bob sha256:1"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 1u);
  EXPECT_EQ(TokenFile::Parse("")->size(), 0u);
}

TEST(TokenFileTest, AcceptsBothFormsOfExpiry) {
  for (const char* end : {"2027-01-31T12:00:00Z", "2027-01-31T13:00:00+01:00", "1801396800"}) {
    const auto file = TokenFile::Parse(absl::StrCat("alice sha256:", kHashOfAbc, " expires=", end));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(absl::ToUnixSeconds(file->Find(HashToken("abc"))->expires), 1801396800) << end;
  }
}

TEST(TokenFileTest, NamesTheInvalidLineWithoutItsContent) {
  const std::string hash = absl::StrCat("sha256:", kHashOfAbc);
  const std::string bad[] = {"SECRET",
                             absl::StrCat("SE/CRET ", hash),
                             absl::StrCat(std::string(65, 'S'), " ", hash),
                             absl::StrCat("alice ", kHashOfAbc),
                             "alice sha256:SECRET",
                             absl::StrCat("alice ", hash, "00"),
                             absl::StrCat("alice sha256:", std::string(64, 'g')),
                             absl::StrCat("alice sha512:", kHashOfAbc),
                             absl::StrCat("alice ", hash, " SECRET"),
                             absl::StrCat("alice ", hash, " expires=SECRET"),
                             absl::StrCat("alice ", hash, " expires="),
                             absl::StrCat("alice ", hash, " expires=2027-01-31"),
                             absl::StrCat("alice ", hash, " expires=infinite-future"),
                             absl::StrCat("alice ", hash, " expires=-1"),
                             absl::StrCat("alice ", hash, " expires=1 SECRET"),
                             absl::StrCat("alice ", hash, " expires=1 expires=2"),
                             absl::StrCat("alice ", hash, " weight=SECRET"),
                             absl::StrCat("alice ", hash, " weight="),
                             absl::StrCat("alice ", hash, " weight=0"),
                             absl::StrCat("alice ", hash, " weight=-1"),
                             absl::StrCat("alice ", hash, " weight=+1"),
                             absl::StrCat("alice ", hash, " weight=1.5"),
                             absl::StrCat("alice ", hash, " weight=1001"),
                             absl::StrCat("alice ", hash, " weight=99999999999"),
                             absl::StrCat("alice ", hash, " weight=2 weight=2"),
                             absl::StrCat("alice ", hash, " weight=1 expires=1 SECRET"),
                             absl::StrCat("alice ", hash, " admin admin"),
                             absl::StrCat("alice ", hash, " Admin"),
                             absl::StrCat("alice ", hash, " admin=SECRET"),
                             absl::StrCat("admin ", hash, " SECRET"),
                             absl::StrCat("alice ", hash, "\nbob ", hash)};
  for (const std::string& text : bad) {
    const auto file = TokenFile::Parse("# one\n" + text + "\n");
    ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string message(file.status().message());
    EXPECT_THAT(message, HasSubstr(text.find('\n') == std::string::npos ? "line 2" : "line 3"));
    EXPECT_THAT(message, Not(HasSubstr("SECRET")));
    EXPECT_THAT(message, Not(HasSubstr(kHashOfAbc)));
  }
}

TEST(TokenFileTest, WeightBelongsToTheName) {
  const auto line = [](const char* name, const char* token, int weight) {
    return *TokenLine(name, HashToken(token), absl::InfiniteFuture(), weight) + "\n";
  };
  const auto file = TokenFile::Parse(absl::StrCat(line("alice", "a1", 1), line("alice", "a2", 4),
                                                  line("bob", "b", 1), line("carol", "c", 1000)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Find(HashToken("a1"))->weight, 4) << "set on alice's other line";
  EXPECT_EQ(file->Find(HashToken("a2"))->weight, 4);
  EXPECT_EQ(file->Find(HashToken("b"))->weight, 1);
  EXPECT_EQ(file->Find(HashToken("c"))->weight, 1000);
  const auto conflicting =
      TokenFile::Parse(absl::StrCat(line("alice", "a1", 3), line("alice", "a2", 4)));
  EXPECT_THAT(std::string(conflicting.status().message()), HasSubstr("line 2: "));
  EXPECT_THAT(std::string(conflicting.status().message()), HasSubstr("another weight"));
  for (const int bad : {-1, 0, 1001}) {
    EXPECT_FALSE(TokenLine("alice", HashToken("a"), absl::InfiniteFuture(), bad).ok()) << bad;
  }
}

TEST(TokenFileTest, LimitsBelongToTheName) {
  const auto line = [](const char* name, const char* token, const char* limits) {
    return *TokenLine(name, HashToken(token), absl::InfiniteFuture(), 1, false, limits) + "\n";
  };
  const auto file = TokenFile::Parse(absl::StrCat(line("alice", "a1", "max-bytes=1.5GiB"),
                                                  line("alice", "a2", "max-sessions=8 max-pulls=2"),
                                                  line("bob", "b", "")));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto limit = [&](const char* token, PrincipalLimit which) {
    return file->Find(HashToken(token))->limits[static_cast<size_t>(which)];
  };
  for (const char* token : {"a1", "a2"}) {
    EXPECT_EQ(limit(token, PrincipalLimit::kBytes), 3 << 29);
    EXPECT_EQ(limit(token, PrincipalLimit::kSessions), 8);
    EXPECT_EQ(limit(token, PrincipalLimit::kPulls), 2);
    EXPECT_EQ(limit(token, PrincipalLimit::kHandles), std::nullopt);
  }
  EXPECT_EQ(limit("b", PrincipalLimit::kBytes), std::nullopt);
  const auto conflicting = TokenFile::Parse(
      absl::StrCat(line("alice", "a1", "max-bytes=1"), line("alice", "a2", "max-bytes=2")));
  EXPECT_THAT(std::string(conflicting.status().message()), HasSubstr("line 2: "));
  EXPECT_THAT(std::string(conflicting.status().message()), HasSubstr("another max-bytes"));
  for (const char* bad : {"max-bytes=1 max-bytes=1", "max-sessions=1GiB", "max-sessions=1.5",
                          "max-sessions=-1", "max-sessions=", "max-tickets=0", "max-bytes",
                          "max-byte=1", "weight=2", "max-bytes=10000000TiB"}) {
    EXPECT_FALSE(TokenLine("a", HashToken("a"), absl::InfiniteFuture(), 1, false, bad).ok()) << bad;
    const std::string text = absl::StrCat("alice sha256:", kHashOfAbc, " weight=3 ", bad);
    EXPECT_EQ(TokenFile::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  const absl::Status misspelled =
      TokenLine("a", HashToken("a"), absl::InfiniteFuture(), 1, false, "max-pulls=1 max-byte=1")
          .status();
  EXPECT_THAT(std::string(misspelled.message()), HasSubstr("\"max-byte=1\" is not a limit"));
}

TEST(TokenFileTest, AdminBelongsToTheToken) {
  const auto line = [](const char* token, bool admin) {
    return *TokenLine("alice", HashToken(token), absl::InfiniteFuture(), 3, admin) + "\n";
  };
  const auto file = TokenFile::Parse(absl::StrCat(line("a1", false), line("a2", true)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->Find(HashToken("a1"))->admin);
  EXPECT_TRUE(file->Find(HashToken("a2"))->admin);
  EXPECT_EQ(file->Find(HashToken("a2"))->weight, 3);
  const auto first = TokenFile::Parse(absl::StrCat("alice sha256:", kHashOfAbc, " admin weight=2"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->Find(HashToken("abc"))->admin);
}

TEST(TokenFileTest, ReadsWhatItWrites) {
  const std::string token = NewToken();
  const absl::Time end = absl::FromUnixSeconds(1801396800);
  const auto line = TokenLine("alice@example.com", HashToken(token), end, 7);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, Not(HasSubstr(token)));
  const auto file = TokenFile::Parse(*line);
  ASSERT_TRUE(file.ok()) << file.status();
  const TokenFile::Token* found = file->Find(HashToken(token));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "alice@example.com");
  EXPECT_EQ(found->expires, end);
  EXPECT_EQ(found->weight, 7);
  EXPECT_FALSE(found->admin);
  EXPECT_FALSE(TokenLine("two words", HashToken(token), end).ok());
  EXPECT_FALSE(TokenLine("", HashToken(token), end).ok());
}

TEST(TokenFileTest, TokensAreNewEachTime) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) {
    const std::string token = NewToken();
    EXPECT_EQ(token.size(), 8u + 64u);
    EXPECT_TRUE(tokens.insert(token).second);
  }
}

}  // namespace
}  // namespace tensord
