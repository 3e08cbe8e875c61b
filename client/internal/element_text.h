// Elements as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

struct ElementTexts {
  std::vector<std::string> texts;
  size_t width = 1;  // of the longest; print pads the others on the left
};

// PyTorch's rules: all elements of a floating tensor are written in one way, chosen by their
// largest and smallest absolute values: as whole numbers with a point, with `precision` digits
// after it, or in scientific notation where they span more than 1000 to 1, reach past 1e8 or below
// 1e-4.
ElementTexts FormatElements(DType dtype, absl::Span<const uint8_t> data, int precision);

}  // namespace tensord::internal
