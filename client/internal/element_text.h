// Formats elements as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

struct ElementTexts {
  std::vector<std::string> texts;
  // The number of columns of an element. print.cc pads shorter texts on the left if `aligned`.
  size_t width = 1;
  bool aligned = true;
};

// Formats elements by PyTorch's rules. All elements of a floating tensor have the same notation,
// which the finite non-zero absolute values determine:
//   scientific   the ratio of the largest to the smallest exceeds 1000, or the largest exceeds 1e8,
//                or the smallest is below 1e-4 and not all are whole numbers
//   "3."         otherwise, if all are whole numbers
//   fixed        otherwise, with `precision` digits after the point
// The real parts of a complex tensor have one notation and width, its imaginary parts another
// notation. As in PyTorch, the imaginary parts aren't padded, so the texts aren't aligned.
ElementTexts FormatElements(DType dtype, absl::Span<const uint8_t> data, int precision);

}  // namespace tensord::internal
