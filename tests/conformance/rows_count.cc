// count_nonzero.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/reduction_cases.h"

namespace tensord::conformance {

void AddCountRows(Rows& rows) {
  for (DType dtype : kRealDTypes) {
    for (const ReductionCase& c : AllReductionCases()) {
      for (Fill fill : {Fill::kTies, Fill::kSpecial, Fill::kUnit}) {
        rows.push_back({"count_nonzero",
                        {{{dtype, c.shape}, fill}},
                        With(c, /*keepdims=*/fill == Fill::kUnit)});
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
