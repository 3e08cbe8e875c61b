// Ops that work element by element: unary, binary with broadcasting, where, cast.
#include "absl/strings/str_cat.h"
#include "tensord/common/op_inference.h"
#include "tensord/common/op_registry.h"
#include "tensord/common/status_macros.h"

namespace tensord {
namespace {

// neg abs relu: any number, dtype kept.
absl::Status InferNumericUnary(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, ctx.input(0).dtype));
  ctx.SetOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

// exp log …: as in PyTorch, what isn't floating is read as float32.
absl::Status InferFloatUnary(InferenceContext& ctx) {
  const DType dtype = IsFloating(ctx.input(0).dtype) ? ctx.input(0).dtype : DType::kFloat32;
  ctx.ReadInputAs(0, dtype);
  ctx.SetOutput(dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferFloatingOnlyUnary(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  ctx.SetOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferGelu(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireOneOf(ctx, "approximate", {"none", "tanh"}));
  return InferFloatingOnlyUnary(ctx);
}

absl::Status InferCast(InferenceContext& ctx) {
  const DType dtype = ctx.attrs().Type("dtype");
  if (dtype == ctx.input(0).dtype) ctx.SetAlias();
  ctx.SetOutput(dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

// add mul maximum minimum: every dtype.
absl::Status InferBinary(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  ctx.SetOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

// sub pow: bool has neither.
absl::Status InferNumericBinary(InferenceContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, ctx.input(i).dtype));
  }
  return InferBinary(ctx);
}

absl::Status InferDiv(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(DType dtype, PromoteInputs(ctx));
  if (!IsFloating(dtype)) dtype = DType::kFloat32;  // as in PyTorch: a quotient isn't an integer
  ctx.ReadInputAs(0, dtype);
  ctx.ReadInputAs(1, dtype);
  ctx.SetOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferComparison(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_RETURN_IF_ERROR(PromoteInputs(ctx).status());
  ctx.SetOutput(DType::kBool, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferWhere(InferenceContext& ctx) {
  if (!IsBool(ctx.input(0).dtype)) {
    return ctx.Error(absl::StrCat("the condition must be bool, not ", DTypeName(ctx.input(0).dtype),
                                  ": compare first, or cast to bool"));
  }
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx, 1));
  ctx.SetOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

using InferFunction = absl::Status (*)(InferenceContext&);

OpSchema Unary(const char* name, const char* doc, InferFunction infer) {
  return {name, "(…) -> (…)", doc, 1, 1, {}, infer};
}

OpSchema Binary(const char* name, const char* doc, InferFunction infer) {
  return {name, "(…), (…) -> (…) broadcast", doc, 2, 2, {}, infer};
}

void AppendUnaryOps(std::vector<OpSchema>& ops) {
  ops.push_back(Unary("neg", "-x.", InferNumericUnary));
  ops.push_back(Unary("abs", "The absolute value.", InferNumericUnary));
  ops.push_back(Unary("relu", "max(x, 0); NaN stays NaN.", InferNumericUnary));
  ops.push_back(Unary("exp", "e to the x.", InferFloatUnary));
  ops.push_back(Unary("log", "The natural logarithm.", InferFloatUnary));
  ops.push_back(Unary("sqrt", "The square root.", InferFloatUnary));
  ops.push_back(Unary("rsqrt", "1 / sqrt(x).", InferFloatUnary));
  ops.push_back(Unary("tanh", "The hyperbolic tangent.", InferFloatUnary));
  ops.push_back(Unary("sigmoid", "1 / (1 + exp(-x)).", InferFloatUnary));
  ops.push_back(Unary("silu", "x times sigmoid(x).", InferFloatingOnlyUnary));
  OpSchema gelu = Unary("gelu", "x times the normal distribution function of x.", InferGelu);
  gelu.attrs = {
      OptionalAttr("approximate", AttrType::kString, "none",
                   "\"none\": exact, by the error function; \"tanh\": its approximation")};
  ops.push_back(std::move(gelu));
  OpSchema cast = Unary("cast",
                        "Another dtype. To integers truncates toward zero and stops at the ends of "
                        "the range, NaN gives 0; to bool is x != 0.",
                        InferCast);
  cast.attrs = {RequiredAttr("dtype", AttrType::kDType, "the dtype of the result")};
  ops.push_back(std::move(cast));
}

}  // namespace

void AppendElementwiseOps(std::vector<OpSchema>& ops) {
  AppendUnaryOps(ops);
  ops.push_back(Binary("add", "a + b; for bool, or. Integers wrap.", InferBinary));
  ops.push_back(Binary("sub", "a - b. Integers wrap.", InferNumericBinary));
  ops.push_back(Binary("mul", "a * b; for bool, and. Integers wrap.", InferBinary));
  ops.push_back(Binary("div", "a / b; of integers and bool in float32.", InferDiv));
  ops.push_back(Binary("pow", "a to the b. Integers wrap.", InferNumericBinary));
  ops.push_back(Binary("maximum", "The larger of a and b; NaN wins.", InferBinary));
  ops.push_back(Binary("minimum", "The smaller of a and b; NaN wins.", InferBinary));
  ops.push_back(Binary("eq", "a == b, as bool.", InferComparison));
  ops.push_back(Binary("ne", "a != b, as bool.", InferComparison));
  ops.push_back(Binary("lt", "a < b, as bool.", InferComparison));
  ops.push_back(Binary("le", "a <= b, as bool.", InferComparison));
  ops.push_back(Binary("gt", "a > b, as bool.", InferComparison));
  ops.push_back(Binary("ge", "a >= b, as bool.", InferComparison));
  ops.push_back({"where",
                 "(…) bool, (…), (…) -> (…) broadcast",
                 "x where the condition is true, y elsewhere.",
                 3,
                 3,
                 {},
                 InferWhere});
}

}  // namespace tensord
