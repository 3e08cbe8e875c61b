// Fuzzes inference with arbitrary ops, inputs and attributes. PlanOp() must return an error or a
// valid result. Planning again with the normalized attributes must give the same result.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tensord/tests/fuzz/any_op.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensord;
  fuzz::FuzzInput in(data, size);
  const OpSchema& schema = fuzz::AnySchema(in);
  std::vector<TensorSpec> inputs(
      in.Range(0, static_cast<int>(std::min<size_t>(schema.max_inputs + 1, 5))));
  for (TensorSpec& spec : inputs) {
    spec = {fuzz::AnyDType(in), Shape(fuzz::AnyInts(in))};
    // Inference may assume that its inputs are valid, because the engine holds only valid tensors.
    if (!IsValid(spec.dtype) || !spec.shape.Validate().ok()) return 0;
  }

  const auto plan = PlanOp(schema.name, inputs, fuzz::AnyAttributes(in, schema));
  if (!plan.ok()) {
    if (plan.status().message().empty()) std::abort();
    return 0;
  }
  if (plan->outputs.empty()) std::abort();
  for (const TensorSpec& output : plan->outputs) {
    if (!IsValid(output.dtype) || !output.shape.Validate().ok()) std::abort();
  }

  const auto again = PlanOp(schema.name, inputs, plan->attrs);
  if (!again.ok() || again->outputs != plan->outputs) std::abort();
  return 0;
}
