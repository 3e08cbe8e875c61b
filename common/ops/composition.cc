#include "tensord/common/ops/composition.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

struct ValueAccess {
  static Composition* BuiltOf(const Value& value) { return value.built_; }
  static uint32_t IndexOf(const Value& value) { return value.index_; }
  static std::variant<double, int64_t> NumberOf(const Value& value) { return value.number_; }
  static Value Make(Composition* built, uint32_t index) { return {built, index}; }
};

namespace {

using Values = absl::InlinedVector<Value, 2>;
using Specs = absl::InlinedVector<const TensorSpec*, 3>;

Specs SpecsOf(absl::Span<const Value> inputs) {
  Specs specs;
  for (const Value& input : inputs) specs.push_back(&input.spec());
  return specs;
}

// Returns a value in place of one that can't be built.
Value Placeholder(Composition* built) { return ValueAccess::Make(built, 0); }

// Keeps the first error, with the names of the compositions in which it occurred.
void SetError(Composition* built, const absl::Status& error) {
  if (!built->error.ok()) return;
  built->error = WithPrefix(error, absl::StrCat(absl::StrJoin(built->running, ": "), ": "));
}

std::vector<int64_t> ToVector(absl::Span<const int64_t> values) {
  return {values.begin(), values.end()};
}

using Number = std::variant<double, int64_t>;

double ToDouble(Number number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

// Returns the dtype of a number that meets values of `dtype`.
DType NumberDType(DType dtype, Number number) {
  if (IsFloating(dtype) || IsComplex(dtype)) return dtype;
  const double real = ToDouble(number);
  if (std::trunc(real) != real) return DType::kFloat32;
  return IsBool(dtype) && real != 0 && real != 1 ? DType::kInt64 : dtype;
}

absl::Status TooManySteps() {
  return absl::InternalError(
      absl::StrCat("a composition has more than ", Composition::kMaxSteps, " steps"));
}

// Returns a tensor whose elements all equal `number`. Adds a step, or reuses an equal one.
absl::StatusOr<Value> AddFull(Composition* built, Number number, const Shape& shape, DType dtype) {
  Attributes given = {{"shape", ToVector(shape.dims())}, {"dtype", dtype}};
  if (IsBool(dtype)) {
    given.Set("value", ToDouble(number) != 0);
  } else {
    std::visit([&](auto value) { given.Set("value", value); }, number);
  }
  TENSORD_ASSIGN_OR_RETURN(OpPlan plan, PlanOp("full", {}, given));
  for (const Composition::Step& step : built->steps) {
    if (step.schema == plan.schema && step.attrs == plan.attrs) {
      return ValueAccess::Make(built, step.result);
    }
  }
  if (built->steps.size() == Composition::kMaxSteps) return TooManySteps();
  const auto result = static_cast<uint32_t>(built->specs.size());
  built->specs.push_back({dtype, shape});
  built->steps.push_back({plan.schema, std::move(plan.attrs), {}, result});
  return ValueAccess::Make(built, result);
}

// Returns the inputs with values in place of numbers.
absl::StatusOr<absl::InlinedVector<Value, 3>> WithNumbers(Composition* built, absl::string_view op,
                                                          absl::Span<const Value> inputs) {
  DType dtype = DType::kUnspecified;
  for (size_t i = op == "where" ? 1 : 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_number() && !IsValid(dtype)) dtype = inputs[i].dtype();
  }
  if (!IsValid(dtype)) dtype = DType::kFloat32;
  absl::InlinedVector<Value, 3> values;
  for (const Value& input : inputs) {
    if (!input.is_number()) {
      values.push_back(input);
      continue;
    }
    const Number number = ValueAccess::NumberOf(input);
    TENSORD_ASSIGN_OR_RETURN(const Value value,
                             AddFull(built, number, {}, NumberDType(dtype, number)));
    values.push_back(value);
  }
  return values;
}

// Adds a step for an op that has kernels.
absl::StatusOr<Values> AddStep(Composition* built, const OpSchema& schema,
                               absl::Span<const Value> inputs, const Attributes& attrs) {
  if (built->steps.size() == Composition::kMaxSteps) return TooManySteps();
  OutputSpecs outputs;
  TENSORD_RETURN_IF_ERROR(InferOutputs(schema.name, SpecsOf(inputs), attrs, &outputs));
  Composition::Step step = {&schema, attrs, {}, static_cast<uint32_t>(built->specs.size())};
  for (const Value& input : inputs) step.operands.push_back(ValueAccess::IndexOf(input));
  Values results;
  for (const TensorSpec& output : outputs) {
    results.push_back(ValueAccess::Make(built, static_cast<uint32_t>(built->specs.size())));
    built->specs.push_back(output);
  }
  built->steps.push_back(std::move(step));
  return results;
}

// Returns the spec of an element of a sequence.
TensorSpec ElementOf(const TensorSpec& sequence) {
  return {sequence.dtype, Shape(sequence.shape.dims().subspan(1))};
}

TensorSpec SequenceOf(const TensorSpec& element, int64_t length) {
  Shape shape = {length};
  for (const int64_t dim : element.shape.dims()) shape.AppendDim(dim);
  return {element.dtype, std::move(shape)};
}

// Returns a value with the same elements, which no other value shares.
absl::StatusOr<Value> AddCopy(Composition* built, const Value& x) {
  TENSORD_ASSIGN_OR_RETURN(const Value yes, AddFull(built, int64_t{1}, {}, DType::kBool));
  TENSORD_ASSIGN_OR_RETURN(const Values copy, AddStep(built, *FindOp("where"), {yes, x, x}, {}));
  return copy[0];
}

// Copies an output that is an input or an earlier output. Exception: if the only output of an op is
// its input 0, the op is an alias.
absl::Status AddOutputs(Composition* built, absl::Span<const Value> outputs,
                        bool may_be_alias = false) {
  for (const Value& output : outputs) {
    if (output.is_number() || ValueAccess::BuiltOf(output) != built) {
      return absl::InternalError("an output isn't a value of the composition");
    }
    uint32_t index = ValueAccess::IndexOf(output);
    const bool is_taken =
        std::find(built->outputs.begin(), built->outputs.end(), index) != built->outputs.end();
    const bool is_alias =
        may_be_alias && index == 0 && built->num_inputs > 0 && outputs.size() == 1;
    if ((index < built->num_inputs && !is_alias) || is_taken) {
      TENSORD_ASSIGN_OR_RETURN(const Value copy, AddCopy(built, output));
      index = ValueAccess::IndexOf(copy);
    }
    built->outputs.push_back(index);
  }
  return absl::OkStatus();
}

// Adds the steps that the formula of a composition builds. An error is in built->error.
Values RunFormula(Composition* built, const OpSchema& schema, const BoundAttributes& attrs,
                  absl::Span<const Value> inputs) {
  if (built->running.size() == Composition::kMaxDepth) {
    SetError(built, absl::InternalError(absl::StrCat("compositions are nested more than ",
                                                     Composition::kMaxDepth, " deep")));
    return {};
  }
  Formula formula(attrs, inputs, built);
  built->running.push_back(schema.name);
  schema.formula(formula);
  for (const Value& output : formula.outputs()) {
    if (output.is_number()) SetError(built, absl::InternalError("an output is a number"));
  }
  if (formula.outputs().empty()) SetError(built, absl::InternalError("there is no output"));
  built->running.pop_back();
  return {formula.outputs().begin(), formula.outputs().end()};
}

absl::StatusOr<Values> TryApply(Composition* built, absl::string_view op,
                                absl::Span<const Value> inputs, const Attributes& attrs) {
  const OpSchema* const schema = FindOp(op);
  if (schema == nullptr) return UnknownOp(op);
  if (schema->formula == nullptr) return AddStep(built, *schema, inputs, attrs);
  // InferOutputs() would run the formula once more. It checks the inputs of callers; these are a
  // formula's.
  TENSORD_ASSIGN_OR_RETURN(const BoundAttributes bound, BoundAttributes::Bind(*schema, attrs));
  Values results = RunFormula(built, *schema, bound, inputs);
  TENSORD_RETURN_IF_ERROR(built->error);
  return results;
}

}  // namespace

Value Value::To(DType dtype) const {
  if (is_number() || this->dtype() == dtype) return *this;
  return Apply("cast", {*this}, {{"dtype", dtype}});
}

Value Formula::Number(absl::string_view attr) const {
  const AttrValue& value = *attrs_.Find(attr);
  if (const int64_t* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  return std::get<double>(value);
}

Value Formula::Full(const Value& number, const Shape& shape, DType dtype) {
  if (!ok()) return Placeholder(built_);
  absl::StatusOr<Value> made = AddFull(built_, ValueAccess::NumberOf(number), shape, dtype);
  if (made.ok()) return *made;
  SetError(built_, made.status());
  return Placeholder(built_);
}

Value Formula::Create(absl::string_view op, const Attributes& attrs) {
  if (!ok()) return Placeholder(built_);
  absl::StatusOr<Values> made = TryApply(built_, op, {}, attrs);
  if (made.ok()) return (*made)[0];
  SetError(built_, made.status());
  return Placeholder(built_);
}

std::vector<Value> Formula::Loop(const LoopOperands& operands,
                                 absl::FunctionRef<LoopResults(const LoopInputs&)> round) {
  if (!ok()) return {};
  auto loop = std::make_shared<CompositionLoop>();
  Composition& body = loop->body;
  body.running = built_->running;
  Composition::Step step = {nullptr, {}, {}, 0};
  std::vector<Value> inputs;
  const auto add = [&](const Value& operand, const TensorSpec& spec) {
    step.operands.push_back(ValueAccess::IndexOf(operand));
    inputs.push_back(ValueAccess::Make(&body, static_cast<uint32_t>(body.specs.size())));
    body.specs.push_back(spec);
  };
  for (const LoopState& state : operands.states) {
    add(state.first, state.first.spec());
    loop->stacked.push_back(state.stacked);
  }
  loop->length = operands.sequences.front().shape().dim(0);
  for (const Value& sequence : operands.sequences) {
    if (sequence.shape().dim(0) != loop->length || loop->length == 0) {
      Fail("sequences must have the same length, which must not be 0");
      return {};
    }
    add(sequence, ElementOf(sequence.spec()));
  }
  for (const Value& constant : operands.constants) add(constant, constant.spec());
  body.num_inputs = static_cast<uint32_t>(inputs.size());
  loop->reverse = operands.reverse;
  const size_t num_states = operands.states.size(), num_sequences = operands.sequences.size();
  loop->num_sequences = static_cast<uint32_t>(num_sequences);
  const auto all = absl::MakeConstSpan(inputs);
  LoopResults made = round({all.subspan(0, num_states), all.subspan(num_states, num_sequences),
                            all.subspan(num_states + num_sequences)});
  if (!body.error.ok()) {
    built_->error = body.error;
    return {};
  }
  std::vector<Value> outputs = std::move(made.states);
  outputs.insert(outputs.end(), made.rows.begin(), made.rows.end());
  if (const absl::Status added = AddOutputs(&body, outputs); !added.ok()) {
    SetError(built_, added);
    return {};
  }
  std::vector<Value> results;
  step.result = static_cast<uint32_t>(built_->specs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = body.specs[body.outputs[i]];
    if (i < num_states && spec != operands.states[i].first.spec()) {
      SetError(built_, absl::InternalError("a state of a loop changes its spec"));
      return {};
    }
    results.push_back(ValueAccess::Make(built_, static_cast<uint32_t>(built_->specs.size())));
    const bool is_last = i < num_states && !operands.states[i].stacked;
    built_->specs.push_back(is_last ? spec : SequenceOf(spec, loop->length));
  }
  if (built_->steps.size() == Composition::kMaxSteps) {
    SetError(built_, TooManySteps());
    return {};
  }
  step.loop = std::move(loop);
  built_->steps.push_back(std::move(step));
  return results;
}

void Formula::Fail(absl::string_view what) {
  std::string inputs;
  for (const Value& input : inputs_) {
    absl::StrAppend(&inputs, inputs.empty() ? "" : ", ", input.spec().ToString());
  }
  SetError(built_, absl::InvalidArgumentError(absl::StrCat(
                       what, inputs_.size() == 1 ? "; input is " : "; inputs are ", inputs)));
}

void Formula::RequireFloating() {
  for (const Value& input : inputs_) {
    if (IsFloating(input.dtype())) continue;
    return Fail(absl::StrCat("needs a floating dtype, not ", DTypeName(input.dtype()),
                             "; cast to float32 first"));
  }
}

absl::StatusOr<Composition> Compose(const OpSchema& schema, InferenceContext::Inputs inputs,
                                    const BoundAttributes& attrs) {
  Composition built;
  built.num_inputs = static_cast<uint32_t>(inputs.size());
  absl::InlinedVector<Value, 3> values;
  for (const TensorSpec* input : inputs) {
    values.push_back(ValueAccess::Make(&built, static_cast<uint32_t>(built.specs.size())));
    built.specs.push_back(*input);
  }
  const Values outputs = RunFormula(&built, schema, attrs, values);
  TENSORD_RETURN_IF_ERROR(built.error);
  TENSORD_RETURN_IF_ERROR(AddOutputs(&built, outputs, /*may_be_alias=*/true));
  return built;
}

namespace {

// If the only output is input 0, or is made of it by aliases alone, makes the result an alias.
void SetAliasIfAllAre(InferenceContext& ctx, const Composition& built) {
  if (built.outputs.size() != 1 || built.num_inputs == 0) return;
  uint32_t value = built.outputs[0];
  int64_t offset_bytes = 0;
  for (auto step = built.steps.rbegin(); step != built.steps.rend(); ++step) {
    if (step->result != value) continue;
    if (step->schema == nullptr) return;
    absl::InlinedVector<TensorSpec, 3> specs;
    for (const uint32_t operand : step->operands) specs.push_back(built.specs[operand]);
    const absl::StatusOr<OpPlan> plan = PlanOp(step->schema->name, specs, step->attrs);
    if (!plan.ok() || !plan->alias) return;
    offset_bytes += plan->alias_offset_bytes;
    value = step->operands[0];
  }
  if (value == 0) ctx.SetAlias(offset_bytes);
}

}  // namespace

absl::Status InferComposition(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const Composition built,
                           Compose(ctx.schema(), ctx.inputs(), ctx.attrs()));
  for (const uint32_t output : built.outputs) {
    ctx.AddOutput(built.specs[output].dtype, built.specs[output].shape);
  }
  if (ctx.wants_plan()) SetAliasIfAllAre(ctx, built);
  return absl::OkStatus();
}

Values ApplyAll(absl::string_view op, absl::Span<const Value> inputs, const Attributes& attrs) {
  Composition* const built = ValueAccess::BuiltOf(*std::find_if(
      inputs.begin(), inputs.end(), [](const Value& input) { return !input.is_number(); }));
  if (!built->error.ok()) return {Placeholder(built)};
  const auto apply = [&]() -> absl::StatusOr<Values> {
    for (const Value& input : inputs) {
      if (input.is_number() || ValueAccess::BuiltOf(input) == built) continue;
      return absl::InternalError(absl::StrCat(op, " reads values of two compositions"));
    }
    TENSORD_ASSIGN_OR_RETURN(const auto values, WithNumbers(built, op, inputs));
    return TryApply(built, op, values, attrs);
  };
  absl::StatusOr<Values> results = apply();
  if (results.ok()) return *std::move(results);
  SetError(built, results.status());
  return {Placeholder(built)};
}

Value Apply(absl::string_view op, std::initializer_list<Value> inputs, const Attributes& attrs) {
  return ApplyAll(op, inputs, attrs)[0];
}

Value Reshape(const Value& x, const Shape& shape) {
  return Apply("reshape", {x}, {{"shape", ToVector(shape.dims())}});
}

Value Slice(const Value& x, int64_t axis, int64_t start, int64_t stop) {
  return Apply("slice", {x},
               {{"axes", std::vector<int64_t>{axis}},
                {"starts", std::vector<int64_t>{start}},
                {"stops", std::vector<int64_t>{stop}}});
}

Value Copy(const Value& x) {
  Composition* const built = ValueAccess::BuiltOf(x);
  if (!built->error.ok()) return Placeholder(built);
  const absl::StatusOr<Value> copy = AddCopy(built, x);
  if (copy.ok()) return *copy;
  SetError(built, copy.status());
  return Placeholder(built);
}

Value BroadcastTo(const Value& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return Apply("broadcast_to", {x}, {{"shape", ToVector(shape.dims())}});
}

Value Concat(std::initializer_list<Value> parts, int64_t axis) {
  return Apply("concat", parts, {{"axis", axis}});
}

Value AsStridedScatter(const Value& x, const Value& values, const Shape& shape,
                       absl::Span<const int64_t> strides, int64_t offset) {
  return Apply(
      "as_strided_scatter", {x, values},
      {{"shape", ToVector(shape.dims())}, {"strides", ToVector(strides)}, {"offset", offset}});
}

OpSchema ElementwiseComposition(const char* name, const char* doc, void (*formula)(Formula&),
                                std::vector<std::string> input_names, std::vector<AttrDef> attrs) {
  const int count = static_cast<int>(input_names.size());
  std::string signature = "(…)";
  for (int i = 1; i < count; ++i) signature += ", (…)";
  signature += count == 1 ? " -> (…)" : " -> (…) broadcast";
  return {.name = name,
          .signature = std::move(signature),
          .doc = doc,
          .min_inputs = count,
          .max_inputs = count,
          .attrs = std::move(attrs),
          .input_names = std::move(input_names),
          .formula = formula};
}

DType PromotedDType(absl::Span<const Value> values) {
  DType dtype = values.front().dtype();
  for (const Value& value : values) {
    const absl::StatusOr<DType> promoted = PromoteTypes(dtype, value.dtype());
    if (promoted.ok()) dtype = *promoted;
  }
  return dtype;
}

}  // namespace tensord
