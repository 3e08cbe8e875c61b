#include "tensord/client/internal/element_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensord/client/internal/convert.h"

namespace tensord::internal {
namespace {

enum class Notation { kInteger, kFixed, kScientific };

struct Style {
  Notation notation = Notation::kInteger;
  size_t width = 1;
};

std::string FormatReal(double value, Notation notation, int precision) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  switch (notation) {
    case Notation::kInteger:
      return absl::StrFormat("%.0f.", value);
    case Notation::kFixed:
      return absl::StrFormat("%.*f", precision, value);
    case Notation::kScientific:
      break;
  }
  return absl::StrFormat("%.*e", precision, value);
}

Style ChooseStyle(absl::Span<const double> values, int precision) {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = 0;
  bool whole = true;
  const auto counts = [](double value) { return std::isfinite(value) && value != 0; };
  for (double value : values) {
    if (!counts(value)) continue;
    smallest = std::min(smallest, std::abs(value));
    largest = std::max(largest, std::abs(value));
    whole = whole && value == std::ceil(value);
  }
  Style style;
  if (largest == 0) return style;
  if (largest / smallest > 1000.0 || largest > 1.0e8 || (!whole && smallest < 1.0e-4)) {
    style.notation = Notation::kScientific;
  } else if (!whole) {
    style.notation = Notation::kFixed;
  }
  for (double value : values) {
    if (!counts(value)) continue;
    style.width = std::max(style.width, FormatReal(value, style.notation, precision).size());
  }
  return style;
}

ElementTexts FormatReals(absl::Span<const double> values, int precision) {
  const Style style = ChooseStyle(values, precision);
  ElementTexts result;
  result.width = style.width;
  for (double value : values) result.texts.push_back(FormatReal(value, style.notation, precision));
  return result;
}

ElementTexts FormatIntegers(absl::Span<const int64_t> values, bool as_bool) {
  ElementTexts result;
  for (int64_t value : values) {
    result.texts.push_back(as_bool ? (value != 0 ? "True" : "False") : absl::StrCat(value));
    result.width = std::max(result.width, result.texts.back().size());
  }
  return result;
}

}  // namespace

ElementTexts FormatElements(DType dtype, absl::Span<const uint8_t> data, int precision) {
  const auto num_elements = static_cast<int64_t>(data.size()) / SizeOf(dtype);
  if (IsFloating(dtype)) {
    std::vector<double> values(num_elements);
    ConvertElements(dtype, data.data(), num_elements, values.data());
    return FormatReals(values, precision);
  }
  std::vector<int64_t> values(num_elements);
  ConvertElements(dtype, data.data(), num_elements, values.data());
  return FormatIntegers(values, IsBool(dtype));
}

}  // namespace tensord::internal
