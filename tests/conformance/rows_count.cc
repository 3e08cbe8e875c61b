// count_nonzero, all and any.
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
  for (const char* op : {"all", "any"}) {
    for (DType dtype : kRealDTypes) {
      for (const ReductionCase& c : AllReductionCases()) {
        for (Fill fill : {Fill::kTies, Fill::kPositive, Fill::kSpecial}) {
          rows.push_back({op, {{{dtype, c.shape}, fill}}, With(c, fill == Fill::kPositive)});
        }
      }
      rows.push_back({op, {{{dtype, {9}}, Fill::kValues, std::vector<double>(9, 0)}}});
    }
    RefuseSpecs(rows, op, {{DType::kInt32, {2, 3}}}, {{"axes", Axes{-3}}});
  }
}

}  // namespace tensord::conformance
