// Helpers for tests of inference: Result("add", {F32({2, 3}), F32({3})}) == "float32[2, 3]".
#pragma once

#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"

namespace tensord {

using Ints = std::vector<int64_t>;

inline TensorSpec F32(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
inline TensorSpec I64(Shape shape) { return {DType::kInt64, std::move(shape)}; }
inline constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
inline TensorSpec Of(DType dtype, Shape shape = {2}) { return {dtype, std::move(shape)}; }

inline bool SamePlan(const OpPlan& a, const OpPlan& b) {
  for (const auto& [name, value] : a.attrs) {
    const AttrValue* other = b.attrs.Find(name);
    if (other == nullptr || !(*other == value)) return false;
  }
  return a.outputs == b.outputs && a.alias == b.alias && a.input_dtypes == b.input_dtypes;
}

// Returns the result's spec, followed by " alias" if the result is one. If inference fails, returns
// the error. Also plans again with the plan's attributes, as a server does with a client's plan, and
// infers the outputs alone, as a client does. If one of them differs, returns a text that says so.
inline std::string Result(absl::string_view op, const std::vector<TensorSpec>& inputs,
                          const Attributes& attrs = {}) {
  const absl::StatusOr<OpPlan> plan = PlanOp(op, inputs, attrs);
  std::vector<const TensorSpec*> pointers;
  for (const TensorSpec& input : inputs) pointers.push_back(&input);
  OutputSpecs outputs;
  const absl::Status inferred = InferOutputs(op, pointers, attrs, &outputs);
  if (inferred != plan.status()) return "inference of the outputs alone gives a different status";
  if (!plan.ok()) return plan.status().ToString();
  if (outputs != plan->outputs) return "inference of the outputs alone gives different outputs";
  const absl::StatusOr<OpPlan> again = PlanOp(op, inputs, plan->attrs);
  if (!again.ok() || !SamePlan(*plan, *again)) return "planning again gives a different plan";
  return plan->output().ToString() + (plan->alias ? " alias" : "");
}

// Returns the attributes in normal form. The inputs and attributes must be valid.
inline Attributes NormalForm(absl::string_view op, const std::vector<TensorSpec>& inputs,
                             const Attributes& attrs) {
  return PlanOp(op, inputs, attrs).value().attrs;
}

// Returns the dtype in which the op reads input 0.
inline DType ReadAs(absl::string_view op, const std::vector<TensorSpec>& inputs) {
  return PlanOp(op, inputs, {}).value().input_dtypes[0];
}

}  // namespace tensord
