// count_nonzero.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Axes = std::vector<int64_t>;

struct Case {
  Shape shape;
  Axes axes;  // empty: all
};
const Case kCases[] = {{{}, {}},         {{7}, {-1}},         {{3, 5}, {}},
                       {{3, 5}, {0}},    {{3, 5}, {1}},       {{1, 5}, {0}},
                       {{33, 65}, {0}},  {{67, 129}, {}},     {{3, 2500}, {1}},
                       {{2500, 3}, {0}}, {{4, 3, 5}, {0, 2}}, {{2, 3, 4, 5, 2}, {-1, 0, 2}},
                       {{0, 3}, {1}},    {{0, 3}, {0}},       {{0}, {}}};

}  // namespace

void AddCountRows(Rows& rows) {
  for (DType dtype : kRealDTypes) {
    for (const Case& c : kCases) {
      for (Fill fill : {Fill::kTies, Fill::kSpecial, Fill::kUnit}) {
        Attributes attrs;
        if (!c.axes.empty()) attrs.Set("axes", c.axes);
        if (fill == Fill::kUnit) attrs.Set("keepdims", true);
        rows.push_back({"count_nonzero", {{{dtype, c.shape}, fill}}, attrs});
      }
    }
  }
  rows.push_back({"count_nonzero",
                  {{{DType::kFloat32, {4}}, Fill::kValues, {std::nan(""), 0.0, -0.0, INFINITY}}}});
  rows.push_back({"count_nonzero", {{{DType::kFloat32, {1000, 1000}}, Fill::kTies}}});
  Row row{"count_nonzero", {{{DType::kInt32, {2, 3}}}}, {{"axes", Axes{-3}}}};
  row.refusal = absl::StatusCode::kInvalidArgument;
  rows.push_back(std::move(row));
}

}  // namespace tensord::conformance
