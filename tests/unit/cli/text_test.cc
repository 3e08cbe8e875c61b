#include "tensord/client/cli/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::cli {
namespace {

using ::testing::ElementsAre;

TEST(Text, WidthCountsCodePointsAndNoColours) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("100×100 → µs"), 12);
  EXPECT_EQ(DisplayWidth("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(DisplayWidth("\xff\xfe"), 2) << "a stray byte takes a column";
}

TEST(Text, PadsToColumnsNotBytes) {
  EXPECT_EQ(PadRight("µ", 3), "µ  ");
  EXPECT_EQ(PadLeft("µ", 3), "  µ");
  EXPECT_EQ(PadLeft("\x1b[1mx\x1b[0m", 2), " \x1b[1mx\x1b[0m");
  EXPECT_EQ(PadRight("longer", 3), "longer");
}

TEST(Text, TruncatesWithAnEllipsisAndResetsColours) {
  EXPECT_EQ(Truncate("abcdef", 6), "abcdef");
  EXPECT_EQ(Truncate("abcdef", 4), "abc…");
  EXPECT_EQ(Truncate("ääää", 2), "ä…");
  EXPECT_EQ(Truncate("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mab…\x1b[0m");
}

TEST(Text, WrapsAtSpacesAndKeepsNewlines) {
  EXPECT_THAT(Wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("a unbreakable b", 5), ElementsAre("a", "unbreakable", "b"));
  EXPECT_THAT(Wrap("one\n\ntwo", 20), ElementsAre("one", "", "two"));
  EXPECT_THAT(Wrap("×× ×× ××", 5), ElementsAre("×× ××", "××"));
}

TEST(Text, PrintableReplacesControlCharacters) {
  EXPECT_EQ(Printable("NVIDIA H100 80GB"), "NVIDIA H100 80GB");
  EXPECT_EQ(Printable("\x1b]0;owned\x07"), "?]0;owned?");
  EXPECT_EQ(Printable("a\nb\tc"), "a?b?c");
  EXPECT_EQ(Printable("caf\xc3\xa9"), "café");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "?31m")
      << "the one-character escape";
  EXPECT_EQ(Printable("\xc3"), "?");
  EXPECT_EQ(Printable("\xc0\xaf"), "??") << "overlong";
}

TEST(Text, BytesHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(64 << 20), "64.0 MiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(FormatBytes(int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(FormatBytes(int64_t{999} << 30), "999 GiB");
}

TEST(Text, DurationsHaveASuitableUnit) {
  EXPECT_EQ(FormatElapsed(absl::ZeroDuration()), "0.000 µs");
  EXPECT_EQ(FormatElapsed(absl::Microseconds(85)), "85.0 µs");
  EXPECT_EQ(FormatElapsed(absl::Microseconds(12340)), "12.3 ms");
  EXPECT_EQ(FormatElapsed(absl::Milliseconds(1500)), "1.50 s");
  EXPECT_EQ(FormatElapsed(absl::Seconds(125)), "2 min");
  EXPECT_EQ(FormatElapsed(absl::Minutes(125)), "2 h 5 min");
  EXPECT_EQ(FormatElapsed(absl::Hours(99)), "4 d 3 h");
}

TEST(Text, UptimeIsInWholeSeconds) {
  EXPECT_EQ(FormatUptime(absl::ZeroDuration()), "0 s");
  EXPECT_EQ(FormatUptime(absl::Seconds(45)), "45 s");
  EXPECT_EQ(FormatUptime(absl::Hours(2)), "2 h 0 min");
}

TEST(Text, FormatsNumbersAndRates) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1797), "1,797");
  EXPECT_EQ(FormatCount(-1234567), "-1,234,567");
  EXPECT_EQ(FormatThreeDigits(0.1234), "0.123");
  EXPECT_EQ(FormatThreeDigits(9.996), "10.0");
  EXPECT_EQ(FormatThreeDigits(999.6), "1,000");
  EXPECT_EQ(FormatBandwidth(int64_t{5} << 30, absl::Seconds(2)), "2.50 GiB/s");
  EXPECT_EQ(FormatBandwidth(1, absl::ZeroDuration()), "-");
}

TEST(Text, BarShowsTheSmallestUse) {
  EXPECT_EQ(UsageBar(0, 4), "░░░░");
  EXPECT_EQ(UsageBar(1e-9, 4), "▌░░░");
  EXPECT_EQ(UsageBar(0.5, 4), "██░░");
  EXPECT_EQ(UsageBar(1, 4), "████");
  EXPECT_EQ(UsageBar(7, 4), "████") << "never wider than `width`";
  EXPECT_EQ(UsageBar(0.5, 0), "");
}

TEST(Text, ConnectionFailureKeepsTheSystemsMessage) {
  EXPECT_EQ(ConnectionFailure("failed to connect to all addresses; last error: UNKNOWN: "
                              "ipv4:1.2.3.4:5: Failed to connect to remote host: No route\x1b"),
            "No route?");
  EXPECT_EQ(ConnectionFailure("Socket closed"), "Socket closed");
}

}  // namespace
}  // namespace tensord::cli
