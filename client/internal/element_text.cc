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

template <typename T>
ElementTexts FormatIntegers(absl::Span<const T> values) {
  ElementTexts result;
  for (T value : values) {
    result.texts.push_back(absl::StrCat(value));
    result.width = std::max(result.width, result.texts.back().size());
  }
  return result;
}

ElementTexts FormatBools(absl::Span<const uint8_t> bytes) {
  ElementTexts result;
  for (uint8_t byte : bytes) {
    result.texts.push_back(byte != 0 ? "True" : "False");
    result.width = std::max(result.width, result.texts.back().size());
  }
  return result;
}

// "1.+2.j" for the texts "1." and "2.".
ElementTexts JoinParts(const ElementTexts& real, const ElementTexts& imaginary) {
  ElementTexts result;
  result.aligned = false;
  result.width = real.width + imaginary.width + 1;  // PyTorch counts the "j", and not the sign
  for (size_t i = 0; i < real.texts.size(); ++i) {
    const std::string& text = real.texts[i];
    const std::string padding(real.width - std::min(real.width, text.size()), ' ');
    const char* sign = imaginary.texts[i][0] == '-' ? "" : "+";
    result.texts.push_back(absl::StrCat(padding, text, sign, imaginary.texts[i], "j"));
  }
  return result;
}

template <typename T>
std::vector<T> Converted(DType dtype, absl::Span<const uint8_t> data) {
  const auto num_elements = static_cast<int64_t>(data.size()) / SizeOf(dtype);
  std::vector<T> values(num_elements);
  ConvertElements(dtype, data.data(), num_elements, values.data());
  return values;
}

ElementTexts FormatComplex(DType dtype, absl::Span<const uint8_t> data, int precision) {
  const std::vector<double> parts = Converted<double>(RealDTypeOf(dtype), data);
  std::vector<double> real, imaginary;
  for (size_t i = 0; i < parts.size(); i += 2) {
    real.push_back(parts[i]);
    imaginary.push_back(parts[i + 1]);
  }
  return JoinParts(FormatReals(real, precision), FormatReals(imaginary, precision));
}

}  // namespace

ElementTexts FormatElements(DType dtype, absl::Span<const uint8_t> data, int precision) {
  if (IsFloating(dtype)) return FormatReals(Converted<double>(dtype, data), precision);
  if (IsComplex(dtype)) return FormatComplex(dtype, data, precision);
  if (IsBool(dtype)) return FormatBools(data);
  if (dtype == DType::kUInt64) return FormatIntegers<uint64_t>(Converted<uint64_t>(dtype, data));
  return FormatIntegers<int64_t>(Converted<int64_t>(dtype, data));
}

}  // namespace tensord::internal
