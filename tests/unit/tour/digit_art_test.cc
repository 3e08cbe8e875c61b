#include "tensord/client/tour/digit_art.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::tour {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const GreyImage kImage = {.side = 2, .pixels = {0, 0.25, 0.5, 1}};
const cli::Terminal kColor = {.width = 80, .is_terminal = true, .color = true};

TEST(DigitArt, PlainShades) { EXPECT_THAT(DrawImage(kImage, {}), ElementsAre("  ░░", "▒▒██")); }

TEST(DigitArt, ClampsValuesOutOfRange) {
  EXPECT_THAT(DrawImage({.side = 1, .pixels = {9}}, {}), ElementsAre("██"));
  EXPECT_THAT(DrawImage({.side = 1, .pixels = {-9}}, {}), ElementsAre("  "));
}

TEST(DigitArt, ColouredImageHasTheSameWidth) {
  const std::vector<std::string> lines = DrawImage(kImage, kColor);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_EQ(cli::DisplayWidth(line), ArtWidth(kImage));
  EXPECT_THAT(lines[0], StartsWith("\x1b[38;5;233;48;5;233m ")) << "nearly black";
  EXPECT_THAT(lines[1], HasSubstr("m█")) << "legible without its colours";
  EXPECT_EQ(lines[1].substr(lines[1].size() - 4), "\x1b[0m");
}

TEST(DigitArt, GalleryCaptionsAndBreaksRows) {
  const std::vector<GreyImage> images(3, {.side = 2, .pixels = {1, 1, 1, 1}});
  const cli::Terminal narrow = {.width = 12};
  EXPECT_EQ(GalleryColumns(2, narrow, 1), 2);
  EXPECT_EQ(DrawGallery(images, {"a", "bb", "c"}, narrow, 1),
            " ████  ████\n"
            " ████  ████\n"
            "  a     bb\n"
            "\n"
            " ████\n"
            " ████\n"
            "  c\n");
  EXPECT_EQ(DrawGallery({}, {}, narrow, 1), "");
}

TEST(DigitArt, RowHasAtLeastOnePicture) {
  EXPECT_EQ(GalleryColumns(8, {.width = 10}, 4), 1);
  EXPECT_EQ(GalleryColumns(8, {.width = 76}, 0), 4);
}

}  // namespace
}  // namespace tensord::tour
