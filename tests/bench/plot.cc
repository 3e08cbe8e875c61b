// Draws curves as SVG.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr double kWidth = 640, kHeight = 400, kLeft = 80, kRight = 30, kTop = 40, kBottom = 60;
// Colors that color-blind readers can distinguish (Okabe and Ito).
constexpr std::array<const char*, 5> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#444444"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// The area of a chart. Both axes are logarithmic.
struct Frame {
  double x_low = 1e300, x_high = -1e300, y_low = 1e300, y_high = -1e300;  // log10

  void Include(const Series& series) {
    for (const auto& [x, y] : series.points) {
      x_low = std::min(x_low, std::log10(x));
      x_high = std::max(x_high, std::log10(x));
      y_low = std::min(y_low, std::floor(std::log10(y)));
      y_high = std::max(y_high, std::ceil(std::log10(y)));
    }
  }
  double X(double log) const {
    return kLeft + (log - x_low) / std::max(x_high - x_low, 1e-9) * (kWidth - kLeft - kRight);
  }
  double Y(double log) const {
    return kHeight - kBottom -
           (log - y_low) / std::max(y_high - y_low, 1e-9) * (kHeight - kTop - kBottom);
  }
};

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         Escaped(text));
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2);
}

std::string Axes(const Frame& frame, const Series& first) {
  std::string svg;
  for (double log = std::ceil(frame.x_low); log <= frame.x_high; ++log) {
    svg += Rule(frame.X(log), kTop, frame.X(log), kHeight - kBottom);
    svg += Text(frame.X(log), kHeight - kBottom + 18, "middle",
                absl::StrFormat("%g", std::pow(10, log)));
  }
  for (double log = frame.y_low; log <= frame.y_high; ++log) {
    svg += Rule(kLeft, frame.Y(log), kWidth - kRight, frame.Y(log));
    svg += Text(kLeft - 6, frame.Y(log) + 4, "end", absl::StrFormat("%g", std::pow(10, log)));
  }
  svg += Text(kWidth / 2, 20, "middle", first.chart + " (" + first.y_label + ")");
  svg += Text(kWidth / 2, kHeight - 22, "middle", first.x_label);
  return svg;
}

std::string Curve(const Frame& frame, const Series& series, size_t index) {
  const char* color = kColors[index % kColors.size()];
  std::string points;
  for (const auto& [x, y] : series.points) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ", frame.X(std::log10(x)), frame.Y(std::log10(y)));
  }
  const double key_y = kTop + 16 + 16 * static_cast<double>(index);
  return absl::StrFormat(
             "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n"
             "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
             "stroke-width=\"3\"/>\n",
             points, color, kLeft + 8, key_y - 4, kLeft + 28, key_y - 4, color) +
         Text(kLeft + 34, key_y, "start", series.name);
}

}  // namespace

std::string Svg(const std::vector<Series>& series) {
  std::vector<std::string> charts;
  for (const Series& one : series) {
    if (std::find(charts.begin(), charts.end(), one.chart) == charts.end()) {
      charts.push_back(one.chart);
    }
  }
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight * static_cast<double>(charts.size()));
  for (size_t i = 0; i < charts.size(); ++i) {
    std::vector<const Series*> curves;
    Frame frame;
    for (const Series& one : series) {
      if (one.chart != charts[i]) continue;
      curves.push_back(&one);
      frame.Include(one);
    }
    absl::StrAppendFormat(&svg, "<g transform=\"translate(0,%g)\">\n",
                          kHeight * static_cast<double>(i));
    svg += Axes(frame, *curves.front());
    for (size_t k = 0; k < curves.size(); ++k) svg += Curve(frame, *curves[k], k);
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace tensord::bench
