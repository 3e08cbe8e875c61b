// Small grey pictures in characters.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"

namespace tensord::tour {

// A square picture, row-major; 0 is black, 1 white.
struct GreyImage {
  int side = 0;
  std::vector<float> pixels;

  float at(int row, int column) const { return pixels[row * side + column]; }
};

// What a drawn image takes: 2·side columns and side lines, in colour or without.
inline int ArtWidth(const GreyImage& image) { return 2 * image.side; }

// The lines of a picture. In colour: half blocks in 24 greys, four to a pixel, smoothed in between.
// Without: " ░▒▓█", two characters to a pixel.
std::vector<std::string> DrawImage(const GreyImage& image, const cli::Terminal& terminal);

// Pictures side by side, a caption centred under each; all of one size. In rows of as many as the
// terminal's width allows.
std::string DrawGallery(absl::Span<const GreyImage> images, absl::Span<const std::string> captions,
                        const cli::Terminal& terminal, int indent);

// How many pictures of that size DrawGallery puts in a row; at least 1.
int GalleryColumns(int side, const cli::Terminal& terminal, int indent);

}  // namespace tensord::tour
