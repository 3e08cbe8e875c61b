// How the tests of inference read: Result("add", {F32({2, 3}), F32({3})}) == "float32[2, 3]".
#pragma once

#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"

namespace tensord {

using Ints = std::vector<int64_t>;

inline TensorSpec F32(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
inline TensorSpec Of(DType dtype, Shape shape = {2}) { return {dtype, std::move(shape)}; }

inline bool SamePlan(const OpPlan& a, const OpPlan& b) {
  for (const auto& [name, value] : a.attrs) {
    const AttrValue* other = b.attrs.Find(name);
    if (other == nullptr || !(*other == value)) return false;
  }
  return a.output == b.output && a.alias == b.alias && a.input_dtypes == b.input_dtypes;
}

// The result's spec, " alias" after it where it is one; or the refusal's text. A plan's own
// attributes must come to the same plan: a server plans again what a client has planned.
inline std::string Result(absl::string_view op, const std::vector<TensorSpec>& inputs,
                          const Attributes& attrs = {}) {
  const absl::StatusOr<OpPlan> plan = PlanOp(op, inputs, attrs);
  if (!plan.ok()) return plan.status().ToString();
  const absl::StatusOr<OpPlan> again = PlanOp(op, inputs, plan->attrs);
  if (!again.ok() || !SamePlan(*plan, *again)) return "planned again it comes out differently";
  return plan->output.ToString() + (plan->alias ? " alias" : "");
}

// The attributes in normal form. Only for what inference lets through.
inline Attributes NormalForm(absl::string_view op, const std::vector<TensorSpec>& inputs,
                             const Attributes& attrs) {
  return PlanOp(op, inputs, attrs).value().attrs;
}

// The dtype in which input 0 is read.
inline DType ReadAs(absl::string_view op, const std::vector<TensorSpec>& inputs) {
  return PlanOp(op, inputs, {}).value().input_dtypes[0];
}

}  // namespace tensord
