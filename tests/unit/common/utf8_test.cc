#include "tensord/common/util/utf8.h"

#include <gtest/gtest.h>

namespace tensord {
namespace {

TEST(Utf8Test, KeepsValidText) {
  EXPECT_EQ(ToUtf8("", 9), "");
  EXPECT_EQ(ToUtf8("plain", 9), "plain");
  EXPECT_EQ(ToUtf8("aé€😀", 100), "aé€😀");
  EXPECT_EQ(ToUtf8(absl::string_view("a\0b", 3), 9), std::string("a\0b", 3));
}

TEST(Utf8Test, CutsAtTheEndOfACharacter) {
  EXPECT_EQ(ToUtf8("plain", 3), "pla");
  EXPECT_EQ(ToUtf8("aé", 2), "a");
  EXPECT_EQ(ToUtf8("aé", 3), "aé");
  EXPECT_EQ(ToUtf8("€€", 5), "€");
  EXPECT_EQ(ToUtf8("😀", 3), "");
}

TEST(Utf8Test, ReplacesInvalidBytes) {
  EXPECT_EQ(ToUtf8("a\xFFz", 9), "a?z");
  EXPECT_EQ(ToUtf8("a\x80z", 9), "a?z");             // no first byte
  EXPECT_EQ(ToUtf8("\xC3", 9), "?");                 // cut off
  EXPECT_EQ(ToUtf8("\xE2\x82z", 9), "??z");          // cut off
  EXPECT_EQ(ToUtf8("\xC0\xAF", 9), "??");            // overlong "/"
  EXPECT_EQ(ToUtf8("\xE0\x80\xAF", 9), "???");       // overlong "/"
  EXPECT_EQ(ToUtf8("\xED\xA0\x80", 9), "???");       // a surrogate
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80", 9), "????");  // past U+10FFFF
}

}  // namespace
}  // namespace tensord
