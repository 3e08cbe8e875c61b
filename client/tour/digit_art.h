// Draws small grey pictures with characters.
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

// Returns the columns of a drawn image: 2·side. It has `side` lines.
inline int ArtWidth(const GreyImage& image) { return 2 * image.side; }

// Returns the lines of a picture. If the terminal has colours, a pixel is four half blocks in 24
// greys, which are interpolated. Otherwise a pixel is two of the characters " ░▒▓█".
std::vector<std::string> DrawImage(const GreyImage& image, const cli::Terminal& terminal);

// Returns pictures side by side, with a caption centred under each, in as many rows as the
// terminal's width requires. All pictures must have the same size.
std::string DrawGallery(absl::Span<const GreyImage> images, absl::Span<const std::string> captions,
                        const cli::Terminal& terminal, int indent);

// Returns how many pictures of this size DrawGallery puts in a row; at least 1.
int GalleryColumns(int side, const cli::Terminal& terminal, int indent);

}  // namespace tensord::tour
