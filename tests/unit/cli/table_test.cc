#include "tensord/client/cli/table.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

TEST(Table, BoxWithLinesRulesAndAlignment) {
  Table table({{"name"}, {"size\nin all", Align::kRight}});
  table.AddRow({"a", "1"});
  table.AddRule();
  table.AddRow({"µ\nx", "22"});
  EXPECT_EQ(table.Render({}),
            "┌──────┬────────┐\n"
            "│ name │   size │\n"
            "│      │ in all │\n"
            "├──────┼────────┤\n"
            "│ a    │      1 │\n"
            "├──────┼────────┤\n"
            "│ µ    │     22 │\n"
            "│ x    │        │\n"
            "└──────┴────────┘\n");
}

TEST(Table, WithoutFrameColumnsAreTwoSpacesApart) {
  Table table({{"n", Align::kRight}, {"word"}}, Frame::kNone);
  table.AddRow({"10", "x"});
  table.AddRow({"9"});
  EXPECT_EQ(table.Render({}, /*indent=*/2), "   n  word\n  10  x\n   9\n");
}

TEST(Table, OmitsTheHeaderRowWithoutHeaders) {
  Table table({{""}, {""}}, Frame::kNone);
  table.AddRow({"key", "value"});
  EXPECT_EQ(table.Render({}), "key  value\n");
}

TEST(Table, CutsOnlyColumnsThatMayBeCut) {
  Table table({{"fixed"}, {"model", Align::kLeft, 8}});
  table.AddRow({"cpu:0", "A processor with a very long name indeed"});
  const Terminal narrow = {.width = 30};
  const std::string text = table.Render(narrow);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    EXPECT_EQ(DisplayWidth(line), 30) << line;
  }
  EXPECT_NE(text.find("cpu:0"), std::string::npos);
  EXPECT_NE(text.find("…"), std::string::npos);
  const std::string narrowest = table.Render({.width = 1});
  EXPECT_EQ(DisplayWidth(narrowest.substr(0, narrowest.find('\n'))), 1 + 7 + 1 + 10 + 1)
      << "columns don't become narrower than their minimum widths";
}

TEST(Table, ColouredCellsKeepTheirAlignment) {
  const Terminal color = {.width = 80, .is_terminal = true, .color = true};
  Table table({{""}, {""}}, Frame::kNone);
  table.AddRow({color.Paint(Style::kRed, "ab"), "x"});
  table.AddRow({"abc", "y"});
  EXPECT_EQ(table.Render(color), "\x1b[31mab\x1b[0m   x\nabc  y\n");
}

}  // namespace
}  // namespace tensord::cli
