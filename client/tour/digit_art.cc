#include "tensord/client/tour/digit_art.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/text.h"

namespace tensord::tour {
namespace {

constexpr int kGap = 2;

// Returns a pixel of the picture at twice its size, interpolated bilinearly.
float Smoothed(const GreyImage& image, int row, int column) {
  const float y = std::clamp((row - 0.5f) / 2, 0.0f, image.side - 1.0f);
  const float x = std::clamp((column - 0.5f) / 2, 0.0f, image.side - 1.0f);
  const int y0 = static_cast<int>(y);
  const int x0 = static_cast<int>(x);
  const int y1 = std::min(y0 + 1, image.side - 1);
  const int x1 = std::min(x0 + 1, image.side - 1);
  const float fy = y - y0;
  const float fx = x - x0;
  return (1 - fy) * ((1 - fx) * image.at(y0, x0) + fx * image.at(y0, x1)) +
         fy * ((1 - fx) * image.at(y1, x0) + fx * image.at(y1, x1));
}

// The 24 greys of the 256-colour palette begin at 232.
int Grey(float value) { return 232 + std::clamp(static_cast<int>(std::lround(value * 23)), 0, 23); }

// Returns two pixels, one above the other. The character shows the pixels in black and white, so
// text that is copied from a terminal without colours is still legible.
std::string ColorCell(float upper, float lower) {
  constexpr float kMiddle = 0.45f;
  const int up = Grey(upper);
  const int low = Grey(lower);
  const int both = Grey((upper + lower) / 2);
  const auto cell = [](int foreground, int background, absl::string_view character) {
    return absl::StrCat("\x1b[38;5;", foreground, ";48;5;", background, "m", character);
  };
  if (upper >= kMiddle && lower >= kMiddle) return cell(both, both, "█");
  if (upper >= kMiddle) return cell(up, low, "▀");
  if (lower >= kMiddle) return cell(low, up, "▄");
  return cell(both, both, " ");
}

std::string ColorLine(const GreyImage& image, int line) {
  std::string out;
  for (int column = 0; column < 2 * image.side; ++column) {
    absl::StrAppend(
        &out, ColorCell(Smoothed(image, 2 * line, column), Smoothed(image, 2 * line + 1, column)));
  }
  return absl::StrCat(out, "\x1b[0m");
}

std::string PlainLine(const GreyImage& image, int line) {
  constexpr absl::string_view kShades[] = {" ", "░", "▒", "▓", "█"};
  std::string out;
  for (int column = 0; column < image.side; ++column) {
    const int shade = std::clamp(static_cast<int>(std::lround(image.at(line, column) * 4)), 0, 4);
    absl::StrAppend(&out, kShades[shade], kShades[shade]);
  }
  return out;
}

std::string Centred(absl::string_view text, int width) {
  const int left = std::max(0, (width - cli::DisplayWidth(text)) / 2);
  return cli::PadRight(absl::StrCat(cli::Repeat(" ", left), text), width);
}

}  // namespace

std::vector<std::string> DrawImage(const GreyImage& image, const cli::Terminal& terminal) {
  std::vector<std::string> lines;
  for (int line = 0; line < image.side; ++line) {
    lines.push_back(terminal.color ? ColorLine(image, line) : PlainLine(image, line));
  }
  return lines;
}

int GalleryColumns(int side, const cli::Terminal& terminal, int indent) {
  return std::max(1, (terminal.width - indent + kGap) / (2 * side + kGap));
}

std::string DrawGallery(absl::Span<const GreyImage> images, absl::Span<const std::string> captions,
                        const cli::Terminal& terminal, int indent) {
  if (images.empty()) return "";
  const size_t columns = GalleryColumns(images[0].side, terminal, indent);
  const int width = ArtWidth(images[0]);
  std::string out;
  for (size_t first = 0; first < images.size(); first += columns) {
    const size_t last = std::min(images.size(), first + columns);
    std::vector<std::string> lines(images[0].side + 1, cli::Repeat(" ", indent));
    for (size_t i = first; i < last; ++i) {
      std::vector<std::string> cell = DrawImage(images[i], terminal);
      cell.push_back(Centred(captions[i], width));
      for (size_t y = 0; y < lines.size(); ++y) {
        absl::StrAppend(&lines[y], i == first ? "" : cli::Repeat(" ", kGap), cell[y]);
      }
    }
    if (first > 0) absl::StrAppend(&out, "\n");
    for (std::string& line : lines) {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      absl::StrAppend(&out, line, "\n");
    }
  }
  return out;
}

}  // namespace tensord::tour
