// Inference over any op with any inputs and attributes: it refuses or gives a valid result, and
// what it gives is a fixed point (planning again from the normal form changes nothing).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include "tensord/common/op_schema.h"

namespace {

using tensord::AttrType;
using tensord::AttrValue;

// Mostly small, now and then anything.
int64_t AnyInt(FuzzedDataProvider& in) {
  return in.ConsumeBool() ? in.ConsumeIntegralInRange<int64_t>(-4, 8)
                          : in.ConsumeIntegral<int64_t>();
}

std::vector<int64_t> AnyInts(FuzzedDataProvider& in) {
  std::vector<int64_t> values(in.ConsumeIntegralInRange<size_t>(0, 6));
  for (int64_t& value : values) value = AnyInt(in);
  return values;
}

tensord::DType AnyDType(FuzzedDataProvider& in) {
  return static_cast<tensord::DType>(in.ConsumeIntegralInRange<int>(0, 10));
}

AttrValue AnyValue(FuzzedDataProvider& in, AttrType wanted) {
  AttrType type = wanted;
  if (in.ConsumeIntegralInRange<int>(0, 15) == 0) {
    type = static_cast<AttrType>(in.ConsumeIntegralInRange<int>(0, 7));  // ill-typed, mostly
  }
  switch (type) {
    case AttrType::kBool:
      return in.ConsumeBool();
    case AttrType::kInt:
      return AnyInt(in);
    case AttrType::kFloat:
      return in.ConsumeFloatingPoint<double>();
    case AttrType::kScalar:
      if (in.ConsumeBool()) return AnyInt(in);
      return in.ConsumeFloatingPoint<double>();
    case AttrType::kString: {
      static constexpr const char* kWords[] = {"none", "tanh", "relu", "gelu", "silu", "sigmoid"};
      if (in.ConsumeBool()) return std::string(in.PickValueInArray(kWords));
      return in.ConsumeRandomLengthString(12);
    }
    case AttrType::kInts:
      return AnyInts(in);
    case AttrType::kDType:
      return AnyDType(in);
    case AttrType::kBytes:
      return tensord::Bytes{in.ConsumeRandomLengthString(64)};
  }
  return false;
}

tensord::Attributes AnyAttributes(FuzzedDataProvider& in, const tensord::OpSchema& schema) {
  tensord::Attributes attrs;
  for (const tensord::AttrDef& def : schema.attrs) {
    if (in.ConsumeIntegralInRange<int>(0, 3) != 0) attrs.Set(def.name, AnyValue(in, def.type));
  }
  if (in.ConsumeIntegralInRange<int>(0, 31) == 0) {
    attrs.Set(in.ConsumeRandomLengthString(8), AnyInt(in));
  }
  return attrs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  const auto ops = tensord::AllOps();
  const tensord::OpSchema& schema = *ops[in.ConsumeIntegralInRange<size_t>(0, ops.size() - 1)];

  std::vector<tensord::TensorSpec> inputs(
      in.ConsumeIntegralInRange<size_t>(0, std::min(schema.max_inputs + 1, 5)));
  for (tensord::TensorSpec& spec : inputs) {
    spec = {AnyDType(in), tensord::Shape(AnyInts(in))};
    // What the engine holds is valid: inference may rely on it.
    if (!tensord::IsValid(spec.dtype) || !spec.shape.Validate().ok()) return 0;
  }

  const auto plan = tensord::PlanOp(schema.name, inputs, AnyAttributes(in, schema));
  if (!plan.ok()) {
    if (plan.status().message().empty()) abort();
    return 0;
  }
  if (!tensord::IsValid(plan->output.dtype) || !plan->output.shape.Validate().ok()) abort();

  const auto again = tensord::PlanOp(schema.name, inputs, plan->attrs);
  if (!again.ok() || again->output.dtype != plan->output.dtype ||
      again->output.shape != plan->output.shape) {
    abort();
  }
  return 0;
}
