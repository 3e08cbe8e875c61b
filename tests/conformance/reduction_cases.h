// The shapes and axes of the rows of all reductions.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {

using Axes = std::vector<int64_t>;

struct ReductionCase {
  Shape shape;
  Axes axes;  // empty: all
};

inline const ReductionCase kReductionCases[] = {{{}, {}},
                                                {{1}, {}},
                                                {{1}, {0}},
                                                {{7}, {0}},
                                                {{7}, {-1}},
                                                {{3, 5}, {}},
                                                {{3, 5}, {0}},
                                                {{3, 5}, {1}},
                                                {{3, 5}, {-2, -1}},
                                                {{1, 5}, {0}},
                                                {{5, 1}, {1}},
                                                {{33, 65}, {0}},
                                                {{33, 65}, {1}},
                                                {{67, 129}, {}},
                                                {{3, 2500}, {1}},
                                                {{2500, 3}, {0}},
                                                {{300, 70}, {0}},
                                                {{4, 3, 5}, {1}},
                                                {{4, 3, 5}, {0, 2}},
                                                {{4, 3, 5}, {2, 0}},
                                                {{4, 3, 6, 5}, {0, 2, 3}},
                                                {{2, 3, 4, 5, 2}, {1, 3}},
                                                {{2, 3, 4, 5, 2}, {-1, 0, 2}},
                                                {{2, 3, 4, 5, 2}, {}},
                                                {{1, 1, 1}, {}},
                                                {{0, 3}, {1}},
                                                {{2, 0, 3}, {0}}};
// Shapes with a reduced axis of size 0.
inline const ReductionCase kEmptyReductionCases[] = {
    {{0}, {}}, {{0, 3}, {0}}, {{2, 0, 3}, {1}}, {{3, 0}, {-1}}};

// Returns the cases of both lists.
inline std::vector<ReductionCase> AllReductionCases() {
  std::vector<ReductionCase> cases(std::begin(kReductionCases), std::end(kReductionCases));
  cases.insert(cases.end(), std::begin(kEmptyReductionCases), std::end(kEmptyReductionCases));
  return cases;
}

// Returns the bound of a sum of n terms.
inline Bound SumBound(DType dtype, int64_t n) {
  if (!IsFloating(dtype)) return {};
  return {.ulps = 1, .epsilons = 1 + std::sqrt(static_cast<double>(n))};
}

// Returns the attributes "axes" and "keepdims".
inline Attributes With(const ReductionCase& c, bool keepdims) {
  Attributes attrs;
  if (!c.axes.empty()) attrs.Set("axes", c.axes);
  if (keepdims) attrs.Set("keepdims", true);
  return attrs;
}

}  // namespace tensord::conformance
