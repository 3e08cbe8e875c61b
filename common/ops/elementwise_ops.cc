// Ops that work element by element: unary, binary with broadcasting, where, cast.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status InferAnyUnary(InferenceContext& ctx) {
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferNumericUnary(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, ctx.input(0).dtype));
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

// Integers and bool are converted to float32, as in PyTorch.
absl::Status InferFloatUnary(InferenceContext& ctx) {
  const DType dtype = IsFloating(ctx.input(0).dtype) ? ctx.input(0).dtype : DType::kFloat32;
  ctx.ReadInputAs(0, dtype);
  ctx.AddOutput(dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferFloatingOnlyUnary(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(0).dtype));
  ctx.AddOutput(ctx.input(0).dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

// The dtypes other than the floating ones have only values that the op doesn't change.
absl::Status InferFloatOrAlias(InferenceContext& ctx) {
  if (!IsFloating(ctx.input(0).dtype)) ctx.SetAlias();
  return InferAnyUnary(ctx);
}

absl::Status InferConj(InferenceContext& ctx) {
  ctx.SetAlias();
  return InferAnyUnary(ctx);
}

absl::Status InferGelu(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireOneOf(ctx, "approximate", {"none", "tanh"}));
  return InferFloatingOnlyUnary(ctx);
}

absl::Status InferCast(InferenceContext& ctx) {
  const DType dtype = ctx.attrs().Type("dtype");
  if (dtype == ctx.input(0).dtype) {
    ctx.SetAlias();
  } else if (IsComplex(dtype) || IsComplex(ctx.input(0).dtype)) {
    return ctx.Error(absl::StrCat("there is no complex arithmetic, so ",
                                  DTypeName(ctx.input(0).dtype), " can't be cast to ",
                                  DTypeName(dtype)));
  }
  ctx.AddOutput(dtype, ctx.input(0).shape);
  return absl::OkStatus();
}

absl::Status InferBinary(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

// `require` checks the dtype of each operand.
template <absl::Status (*require)(const InferenceContext&, DType)>
absl::Status InferBinaryOf(InferenceContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(require(ctx, ctx.input(i).dtype));
  }
  return InferBinary(ctx);
}

// Integers and bool are converted to float32, as in PyTorch: a quotient isn't an integer.
absl::Status InferFloatBinary(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(DType dtype, PromoteInputs(ctx));
  if (!IsFloating(dtype)) dtype = DType::kFloat32;
  ctx.ReadInputAs(0, dtype);
  ctx.ReadInputAs(1, dtype);
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferComparison(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_RETURN_IF_ERROR(PromoteInputs(ctx).status());
  ctx.AddOutput(DType::kBool, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferWhere(InferenceContext& ctx) {
  if (!IsBool(ctx.input(0).dtype)) {
    return ctx.Error(absl::StrCat("the condition must be bool, not ", DTypeName(ctx.input(0).dtype),
                                  ": compare first, or cast to bool"));
  }
  TENSORD_ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(ctx));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx, 1));
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

using InferFunction = absl::Status (*)(InferenceContext&);

constexpr InferFunction InferUnary(ElementwiseTyping typing) {
  switch (typing) {
    case ElementwiseTyping::kAny:
      return InferAnyUnary;
    case ElementwiseTyping::kNumber:
      return InferNumericUnary;
    case ElementwiseTyping::kFloat:
      return InferFloatUnary;
    case ElementwiseTyping::kFloatOnly:
      return InferFloatingOnlyUnary;
    case ElementwiseTyping::kFloatOrAlias:
      return InferFloatOrAlias;
    case ElementwiseTyping::kBits:
    case ElementwiseTyping::kInteger:
      break;  // no op of one operand has this typing
  }
  return nullptr;
}

constexpr InferFunction InferArithmetic(ElementwiseTyping typing) {
  switch (typing) {
    case ElementwiseTyping::kAny:
      return InferBinary;
    case ElementwiseTyping::kNumber:
      return InferBinaryOf<RequireNumber>;
    case ElementwiseTyping::kFloat:
      return InferFloatBinary;
    case ElementwiseTyping::kFloatOnly:
      return InferBinaryOf<RequireFloating>;
    case ElementwiseTyping::kBits:
      return InferBinaryOf<RequireBits>;
    case ElementwiseTyping::kInteger:
      return InferBinaryOf<RequireInteger>;
    case ElementwiseTyping::kFloatOrAlias:
      break;  // no op of two operands has this typing
  }
  return nullptr;
}

OpSchema Unary(const char* name, const char* doc, InferFunction infer,
               ElementwiseFunction function) {
  return {.name = name,
          .signature = "(…) -> (…)",
          .doc = doc,
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = infer,
          .elementwise = function};
}

OpSchema Binary(const char* name, const char* doc, InferFunction infer, BinaryFunction function) {
  return {.name = name,
          .signature = "(…), (…) -> (…) broadcast",
          .doc = doc,
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer,
          .elementwise = ElementwiseFunction::Of(function)};
}

void AppendUnaryOps(std::vector<OpSchema>& ops) {
#define TENSORD_SCHEMA(name, Function, typing, cost, doc)                   \
  ops.push_back(Unary(#name, doc, InferUnary(ElementwiseTyping::k##typing), \
                      ElementwiseFunction::Of(UnaryFunction::k##Function)));
  TENSORD_UNARY_OPS(TENSORD_SCHEMA)
#undef TENSORD_SCHEMA
#define TENSORD_DOC(name, Function, typing, cost, doc) doc,
  constexpr const char* kGeluDocs[] = {TENSORD_GELU_FUNCTIONS(TENSORD_DOC)};
#undef TENSORD_DOC
  OpSchema gelu =
      Unary("gelu", kGeluDocs[0], InferGelu, ElementwiseFunction::Of(UnaryFunction::kGelu));
  gelu.attrs = {
      OptionalAttr("approximate", AttrType::kString, "none",
                   "\"none\": exact, by the error function; \"tanh\": its approximation")};
  ops.push_back(std::move(gelu));
  ops.push_back(Unary("conj", "The complex conjugate. Real tensors are returned as they are.",
                      InferConj, {ElementwiseFunction::Kind::kCast}));
  OpSchema cast = Unary("cast",
                        "Converts to another dtype. Conversion to an integer truncates toward zero "
                        "and clamps to the range; NaN gives 0. Conversion to bool is x != 0.",
                        InferCast, {ElementwiseFunction::Kind::kCast});
  cast.attrs = {RequiredAttr("dtype", AttrType::kDType, "the dtype of the result")};
  cast.takes_complex = true;
  ops.push_back(std::move(cast));
}

void AppendBinaryOps(std::vector<OpSchema>& ops) {
#define TENSORD_SCHEMA(name, Function, typing, cost, doc)                         \
  ops.push_back(Binary(#name, doc, InferArithmetic(ElementwiseTyping::k##typing), \
                       BinaryFunction::k##Function));
  TENSORD_ARITHMETIC_OPS(TENSORD_SCHEMA)
#undef TENSORD_SCHEMA
#define TENSORD_SCHEMA(name, Function, typing, cost, doc) \
  ops.push_back(Binary(#name, doc, InferComparison, BinaryFunction::k##Function));
  TENSORD_COMPARISON_OPS(TENSORD_SCHEMA)
#undef TENSORD_SCHEMA
}

}  // namespace

void AppendElementwiseOps(std::vector<OpSchema>& ops) {
  AppendUnaryOps(ops);
  AppendBinaryOps(ops);
  ops.push_back({.name = "where",
                 .signature = "(…) bool, (…), (…) -> (…) broadcast",
                 .doc = "x where the condition is true, y elsewhere.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = InferWhere,
                 .elementwise = ElementwiseFunction{ElementwiseFunction::Kind::kWhere},
                 .takes_complex = true,
                 .input_names = {"condition", "x", "y"}});
}

}  // namespace tensord
