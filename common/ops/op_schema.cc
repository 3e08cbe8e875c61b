#include "tensord/common/ops/op_schema.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

std::string DescribeInputs(InferenceContext::Inputs inputs) {
  constexpr size_t kMaxShown = 4;
  if (inputs.size() == 1) return absl::StrCat("input is ", inputs[0]->ToString());
  std::string text = "inputs are ";
  const size_t shown = std::min(inputs.size(), kMaxShown);
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == inputs.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", inputs[i]->ToString());
  }
  if (shown < inputs.size()) absl::StrAppend(&text, " and ", inputs.size() - shown, " more");
  return text;
}

// "axes: ints = [], keepdims: bool = false".
std::string DescribeAttrs(const OpSchema& schema) {
  if (schema.attrs.empty()) return "no attributes";
  std::string text;
  for (const AttrDef& def : schema.attrs) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", def.name, ": ", AttrTypeName(def.type));
    if (def.default_value.has_value()) {
      absl::StrAppend(&text, " = ", ForMessage(*def.default_value));
    } else {
      absl::StrAppend(&text, " (required)");
    }
  }
  return text;
}

absl::Status AttrError(const OpSchema& schema, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(schema.name, ": ", what, "; it takes ", DescribeAttrs(schema)));
}

bool HoldsType(const AttrValue& value, const AttrDef& def) {
  const auto held = static_cast<AttrType>(value.index());
  if (def.type == AttrType::kScalar) return held <= AttrType::kFloat;
  if (const DType* dtype = std::get_if<DType>(&value)) {
    if (!IsValid(*dtype) && value != def.default_value) return false;
  }
  return held == def.type || (def.type == AttrType::kFloat && held == AttrType::kInt);
}

absl::Status CheckInputs(const OpSchema& schema, InferenceContext::Inputs inputs) {
  const int count = static_cast<int>(inputs.size());
  if (count < schema.min_inputs || count > schema.max_inputs) {
    const std::string wanted = schema.min_inputs == schema.max_inputs
                                   ? absl::StrCat(schema.min_inputs)
                                   : absl::StrCat(schema.min_inputs, " to ", schema.max_inputs);
    return absl::InvalidArgumentError(absl::StrCat(schema.name, ": takes ", wanted,
                                                   schema.max_inputs == 1 ? " input" : " inputs",
                                                   " and got ", count, ": ", schema.signature));
  }
  for (int i = 0; i < count; ++i) {
    const absl::Status status = inputs[i]->Validate();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(schema.name, ": input ", i, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckComplex(const InferenceContext& ctx) {
  const auto refuse = [&ctx](DType dtype) {
    return ctx.Error(absl::StrCat("doesn't take ", DTypeName(dtype),
                                  ": there is no complex arithmetic, only ops that make, move and "
                                  "select complex elements"));
  };
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (IsComplex(ctx.input(i).dtype)) return refuse(ctx.input(i).dtype);
  }
  const AttrValue* attr = ctx.attrs().Find("dtype");
  const DType* dtype = attr == nullptr ? nullptr : std::get_if<DType>(attr);
  return dtype != nullptr && IsComplex(*dtype) ? refuse(*dtype) : absl::OkStatus();
}

// Infers the op. If `plan` isn't null, also sets everything of it except the outputs and the
// attributes that infer() leaves as they are.
absl::Status Infer(const OpSchema& schema, InferenceContext::Inputs inputs, const Attributes& given,
                   const BoundAttributes& attrs, OutputSpecs* outputs, OpPlan* plan) {
  InferenceContext ctx(schema, inputs, given, attrs, outputs, plan);
  if (!schema.takes_complex) TENSORD_RETURN_IF_ERROR(CheckComplex(ctx));
  TENSORD_RETURN_IF_ERROR(schema.infer(ctx));
  for (const TensorSpec& output : *outputs) {
    const absl::Status valid = output.Validate();
    if (!valid.ok()) return ctx.Error(absl::StrCat("the result is too large: ", valid.message()));
  }
  return absl::OkStatus();
}

std::string NameOf(const OpSchema* schema, const PlacedInput& input) {
  return schema == nullptr ? absl::StrCat("input ", input.position)
                           : InputName(*schema, input.position);
}

std::string DescribeInput(const OpSchema* schema, const PlacedInput& input) {
  return absl::StrCat(NameOf(schema, input), " (tensor ", input.handle, ", ",
                      input.spec->ToString(), ") is on ", input.device.ToString());
}

}  // namespace

absl::StatusOr<BoundAttributes> BoundAttributes::Bind(const OpSchema& schema,
                                                      const Attributes& given) {
  BoundAttributes bound(schema);
  for (const auto& [name, value] : given) {
    const auto def = std::find_if(schema.attrs.begin(), schema.attrs.end(),
                                  [&name = name](const AttrDef& d) { return d.name == name; });
    if (def == schema.attrs.end()) {
      return AttrError(schema, absl::StrCat("there is no attribute ", QuotedForMessage(name)));
    }
    if (!HoldsType(value, *def)) {
      return AttrError(
          schema, absl::StrCat("attribute ", name, " must be of type ", AttrTypeName(def->type),
                               " and is ", AttrTypeName(value), " ", ForMessage(value)));
    }
    bound.values_[def - schema.attrs.begin()] = &value;
  }
  for (size_t i = 0; i < schema.attrs.size(); ++i) {
    const AttrDef& def = schema.attrs[i];
    if (bound.values_[i] != nullptr) continue;
    if (!def.default_value.has_value()) {
      return AttrError(schema, absl::StrCat("attribute ", def.name, " is missing"));
    }
    bound.values_[i] = &*def.default_value;
  }
  return bound;
}

const AttrValue* BoundAttributes::Find(absl::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (schema_->attrs[i].name == name) return values_[i];
  }
  return nullptr;
}

double BoundAttributes::Float(absl::string_view name) const {
  const AttrValue* const value = Find(name);
  if (value != nullptr && std::holds_alternative<int64_t>(*value)) {
    return static_cast<double>(std::get<int64_t>(*value));
  }
  return TypedValue<double>(name, value);
}

absl::Status InferenceContext::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(schema_.name, ": ", what,
                                                 inputs_.empty() ? "" : "; ",
                                                 inputs_.empty() ? "" : DescribeInputs(inputs_)));
}

std::string InferenceContext::NameOf(int i) const { return InputName(schema_, i); }

absl::StatusOr<OpPlan> PlanOp(absl::string_view op, absl::Span<const TensorSpec> inputs,
                              const Attributes& attrs) {
  const OpSchema* schema = FindOp(op);
  if (schema == nullptr) return UnknownOp(op);
  OpPlan plan;
  plan.schema = schema;
  absl::InlinedVector<const TensorSpec*, 3> pointers;
  for (const TensorSpec& input : inputs) {
    pointers.push_back(&input);
    plan.input_dtypes.push_back(input.dtype);
  }
  TENSORD_RETURN_IF_ERROR(CheckInputs(*schema, pointers));
  TENSORD_ASSIGN_OR_RETURN(const BoundAttributes bound, BoundAttributes::Bind(*schema, attrs));
  TENSORD_RETURN_IF_ERROR(Infer(*schema, pointers, attrs, bound, &plan.outputs, &plan));
  for (const AttrDef& def : schema->attrs) {
    if (plan.attrs.Find(def.name) != nullptr) continue;
    if (def.type == AttrType::kFloat) {
      plan.attrs.Set(def.name, bound.Float(def.name));
    } else {
      plan.attrs.Set(def.name, *bound.Find(def.name));
    }
  }
  return plan;
}

absl::Status InferOutputs(absl::string_view op, InferenceContext::Inputs inputs,
                          const Attributes& attrs, OutputSpecs* outputs) {
  const OpSchema* schema = FindOp(op);
  if (schema == nullptr) return UnknownOp(op);
  TENSORD_RETURN_IF_ERROR(CheckInputs(*schema, inputs));
  TENSORD_ASSIGN_OR_RETURN(const BoundAttributes bound, BoundAttributes::Bind(*schema, attrs));
  return Infer(*schema, inputs, attrs, bound, outputs, nullptr);
}

int CountOutputs(const OpSchema& schema) {
  const size_t arrow = schema.signature.rfind("->");
  int count = 1, depth = 0;
  for (size_t i = arrow; i < schema.signature.size(); ++i) {
    const char c = schema.signature[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) ++count;
  }
  return count;
}

std::string InputName(const OpSchema& schema, size_t position) {
  return position < schema.input_names.size() ? schema.input_names[position]
                                              : absl::StrCat("input ", position);
}

size_t PositionToKeep(const OpSchema& schema) {
  const auto weight = std::find(schema.input_names.begin(), schema.input_names.end(), "weight");
  return weight == schema.input_names.end() ? 0 : weight - schema.input_names.begin();
}

absl::Status CheckSameDevice(absl::string_view op, absl::Span<const PlacedInput> inputs) {
  const bool same = std::all_of(inputs.begin(), inputs.end(), [&](const PlacedInput& input) {
    return input.device == inputs[0].device;
  });
  if (same) return absl::OkStatus();
  const OpSchema* schema = FindOp(op);
  const PlacedInput* kept = &inputs[0];
  for (const PlacedInput& input : inputs) {
    if (schema != nullptr && input.position == PositionToKeep(*schema)) kept = &input;
  }
  const PlacedInput& moved =
      *std::find_if(inputs.begin(), inputs.end(),
                    [&](const PlacedInput& input) { return input.device != kept->device; });
  const bool in_order = moved.position < kept->position;
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": inputs are on different devices: ", DescribeInput(schema, in_order ? moved : *kept),
      " and ", DescribeInput(schema, in_order ? *kept : moved), "; copy one first, for example ",
      NameOf(schema, moved), " to ", kept->device.ToString(),
      " (Tensor::To in the client library, the call CopyToDevice)"));
}

}  // namespace tensord
