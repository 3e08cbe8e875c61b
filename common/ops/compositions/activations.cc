// Activations that are compositions of elementwise ops, and the gradients of activations. They are
// computed in float32 if the promoted dtype of the inputs has 16 bits, and rounded once. In the
// gradients, g is the gradient of the result, x the argument of the activation and y its result.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

AttrDef Real(absl::string_view name, double default_value, absl::string_view doc) {
  return OptionalAttr(name, AttrType::kFloat, default_value, doc);
}

// Returns function(x).
template <typename Function>
void Activate(Formula& f, Function function) {
  f.RequireFloating();
  const Value x = f.input(0);
  f.Return(function(x.To(WideDType(x.dtype()))).To(x.dtype()));
}

// Returns function(g, x).
template <typename Function>
void Differentiate(Formula& f, Function function) {
  f.RequireFloating();
  const Value g = f.input(0), x = f.input(1);
  const DType dtype = PromotedDType({g, x}), wide = WideDType(dtype);
  f.Return(function(g.To(wide), x.To(wide)).To(dtype));
}

// Returns log(1 + exp(x)), without overflow.
Value LogOnePlusExp(const Value& x) { return Logaddexp(x, 0); }

void SigmoidBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& y) { return g * (1 - y) * y; });
}

void TanhBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& y) { return g * (1 - y * y); });
}

void SiluBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& x) {
    const Value sigmoid = Sigmoid(x);
    return ((1 - sigmoid) * x + 1) * sigmoid * g;
  });
}

Value GeluGradient(const Value& g, const Value& x) {
  constexpr double kSqrtHalf = 0.70710678118654752440, kInverseSqrtTwoPi = 0.39894228040143267794;
  const Value distribution = (Erf(x * kSqrtHalf) + 1) * 0.5;
  const Value density = Exp(x * x * -0.5) * kInverseSqrtTwoPi;
  return (density * x + distribution) * g;
}

Value GeluTanhGradient(const Value& g, const Value& x) {
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;
  const Value square = x * x;
  const Value tanh = Tanh((square * kCubic + 1) * x * kSqrtTwoOverPi);
  const Value inner_slope = (square * (3 * kCubic) + 1) * kSqrtTwoOverPi;
  return ((1 - tanh * tanh) * inner_slope * x + tanh + 1) * 0.5 * g;
}

void GeluBackward(Formula& f) {
  const std::string& approximate = f.attrs().String("approximate");
  if (approximate != "none" && approximate != "tanh") {
    return f.Fail("approximate must be \"none\" or \"tanh\"");
  }
  Differentiate(f, approximate == "tanh" ? GeluTanhGradient : GeluGradient);
}

void SoftplusFormula(Formula& f) {
  const double beta = f.attrs().Float("beta"), threshold = f.attrs().Float("threshold");
  Activate(f, [&](const Value& x) {
    const Value scaled = x * beta;
    return Where(Gt(scaled, threshold), x, Log1p(Exp(scaled)) / beta);
  });
}

void SoftplusBackward(Formula& f) {
  const double beta = f.attrs().Float("beta"), threshold = f.attrs().Float("threshold");
  Differentiate(f, [&](const Value& g, const Value& x) {
    const Value scaled = x * beta;
    return Where(Gt(scaled, threshold), g, g * Sigmoid(scaled));
  });
}

void Threshold(Formula& f) {
  const Value x = f.input(0);
  f.Return(Where(Le(x.To(WideDType(x.dtype())), f.Number("threshold")), f.Number("value"), x));
}

void ThresholdBackward(Formula& f) {
  const Value g = f.input(0), x = f.input(1);
  const Value below = Le(x.To(WideDType(x.dtype())), f.Number("threshold"));
  f.Return(Where(below, 0, g).To(PromotedDType({g, x})));
}

void LeakyRelu(Formula& f) {
  const double slope = f.attrs().Float("negative_slope");
  Activate(f, [&](const Value& x) { return Where(Gt(x, 0), x, x * slope); });
}

void LeakyReluBackward(Formula& f) {
  const double slope = f.attrs().Float("negative_slope");
  Differentiate(f, [&](const Value& g, const Value& x) { return Where(Gt(x, 0), g, g * slope); });
}

void Elu(Formula& f) {
  const double alpha = f.attrs().Float("alpha"), scale = f.attrs().Float("scale");
  const double input_scale = f.attrs().Float("input_scale");
  Activate(f, [&](const Value& x) {
    return Where(Lt(x, 0), Expm1(x * input_scale) * (alpha * scale), x * scale);
  });
}

void EluBackward(Formula& f) {
  const double alpha = f.attrs().Float("alpha"), scale = f.attrs().Float("scale");
  const double input_scale = f.attrs().Float("input_scale");
  const bool by_result = f.attrs().Bool("by_result");
  Differentiate(f, [&](const Value& g, const Value& x) {
    const Value curve = by_result ? x + alpha * scale : Exp(x * input_scale) * (alpha * scale);
    return Where(Gt(x, 0), scale, curve * input_scale) * g;
  });
}

void Hardtanh(Formula& f) {
  f.Return(Minimum(Maximum(f.input(0), f.Number("min")), f.Number("max")));
}

void HardtanhBackward(Formula& f) {
  const Value g = f.input(0), x = f.input(1);
  const Value wide = x.To(WideDType(x.dtype()));
  const Value inside = BitwiseAnd(Gt(wide, f.Number("min")), Lt(wide, f.Number("max")));
  f.Return(Where(inside, g, 0).To(PromotedDType({g, x})));
}

void Hardsigmoid(Formula& f) {
  Activate(f, [](const Value& x) { return Minimum(Maximum(x + 3, 0), 6) / 6; });
}

void HardsigmoidBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& x) { return Where(Lt(Abs(x), 3), g / 6, 0); });
}

void Hardswish(Formula& f) {
  Activate(f, [](const Value& x) { return Minimum(Maximum(x + 3, 0), 6) * x / 6; });
}

void HardswishBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& x) {
    return Where(Le(x, -3), 0, Where(Lt(x, 3), g * (x / 3 + 0.5), g));
  });
}

void Mish(Formula& f) {
  Activate(f, [](const Value& x) { return Tanh(LogOnePlusExp(x)) * x; });
}

void MishBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& x) {
    const Value tanh = Tanh(LogOnePlusExp(x));
    return ((1 - tanh * tanh) * Sigmoid(x) * x + tanh) * g;
  });
}

void LogSigmoid(Formula& f) {
  Activate(f, [](const Value& x) { return -LogOnePlusExp(-x); });
}

void LogSigmoidBackward(Formula& f) {
  Differentiate(f, [](const Value& g, const Value& x) { return g * Sigmoid(-x); });
}

// Between -lambd and lambd the result is x * 0, so that NaN stays NaN.
void Softshrink(Formula& f) {
  const double lambd = f.attrs().Float("lambd");
  Activate(f, [&](const Value& x) {
    return Where(Gt(x, lambd), x - lambd, Where(Lt(x, -lambd), x + lambd, x * 0));
  });
}

void Hardshrink(Formula& f) {
  f.RequireFloating();
  const Value x = f.input(0);
  f.Return(Where(Le(Abs(x), f.attrs().Float("lambd")), 0, x));
}

void ShrinkBackward(Formula& f) {
  f.RequireFloating();
  const Value g = f.input(0), x = f.input(1);
  const Value inside = Le(Abs(x), f.attrs().Float("lambd"));
  f.Return(Where(inside, 0, g).To(PromotedDType({g, x})));
}

// Compares x with eps first, as PyTorch does: if eps > 1/2, each x below eps becomes eps.
void Logit(Formula& f) {
  const double eps = f.attrs().Float("eps");
  Activate(f, [&](const Value& x) {
    Value inside = x;
    if (eps >= 0) inside = Where(Lt(x, eps), eps, Where(Gt(x, 1 - eps), 1 - eps, x));
    return Log(inside / (1 - inside));
  });
}

void LogitBackward(Formula& f) {
  const double eps = f.attrs().Float("eps"), low = eps < 0 ? 0 : eps;
  Differentiate(f, [&](const Value& g, const Value& x) {
    // At -0, the slope is that at 0: the addition turns -0 into 0.
    const Value slope = g / ((x + 0.0) * (1 - x));
    const Value outside = BitwiseOr(Lt(x, low), Gt(x, 1 - low));
    return Where(outside, eps < 0 ? std::numeric_limits<double>::quiet_NaN() : 0.0, slope);
  });
}

void Prelu(Formula& f) {
  f.RequireFloating();
  const DType dtype = PromotedDType(f.inputs()), wide = WideDType(dtype);
  const Value x = f.input(0).To(wide), weight = f.input(1).To(wide);
  f.Return(Where(Gt(x, 0), x, x * weight).To(dtype));
}

void PreluBackward(Formula& f) {
  f.RequireFloating();
  const absl::StatusOr<Shape> result = BroadcastShapes(f.input(1).shape(), f.input(2).shape());
  if (!result.ok()) return f.Fail(result.status().message());
  if (f.input(0).shape() != *result) f.Fail("the gradient must have the shape of the result");
  const DType dtype = PromotedDType(f.inputs()), wide = WideDType(dtype);
  const Value g = f.input(0).To(wide), x = f.input(1).To(wide), weight = f.input(2).To(wide);
  const Value is_positive = Gt(x, 0);
  f.Return(Where(is_positive, g, g * weight).To(dtype));
  f.Return(Where(is_positive, 0, g * x).To(dtype));
}

// Returns the halves of x along the axis of the attribute. If x has none, the formula fails, and
// the result is empty.
std::vector<Value> Halves(Formula& f, const Value& x) {
  f.RequireFloating();
  const absl::StatusOr<int> axis = NormalizeAxis(f.attrs().Int("axis"), x.shape().rank());
  if (!axis.ok()) f.Fail(axis.status().message());
  if (!f.ok()) return {};
  const int64_t size = x.shape().dim(*axis);
  if (size % 2 != 0) {
    f.Fail("the size of x along the axis must be even");
    return {};
  }
  return {Slice(x, *axis, 0, size / 2), Slice(x, *axis, size / 2, size)};
}

void Glu(Formula& f) {
  const Value x = f.input(0);
  const std::vector<Value> halves = Halves(f, x);
  if (!f.ok()) return;
  const DType wide = WideDType(x.dtype());
  f.Return((halves[0].To(wide) * Sigmoid(halves[1].To(wide))).To(x.dtype()));
}

void GluBackward(Formula& f) {
  const Value g = f.input(0), x = f.input(1);
  const std::vector<Value> halves = Halves(f, x);
  if (!f.ok()) return;
  if (g.shape() != halves[0].shape()) {
    return f.Fail("the gradient must have the shape of the result");
  }
  const DType dtype = PromotedDType({g, x}), wide = WideDType(dtype);
  // The parts share no step, so that each is one kernel.
  const auto of_sigmoid = [&](auto factor) {
    return (g.To(wide) * factor(Sigmoid(halves[1].To(wide)))).To(dtype);
  };
  const Value of_a = of_sigmoid([](const Value& s) { return s; });
  const Value of_b = of_sigmoid([&](const Value& s) { return halves[0].To(wide) * s * (1 - s); });
  f.Return(Concat({of_a, of_b}, f.attrs().Int("axis")));
}

OpSchema Activation(const char* name, const char* doc, void (*formula)(Formula&),
                    std::vector<AttrDef> attrs = {}) {
  return ElementwiseComposition(name, doc, formula, {"x"}, std::move(attrs));
}

// `by` is the second input: "x" or "y".
OpSchema Gradient(const char* name, const char* doc, void (*formula)(Formula&),
                  std::vector<AttrDef> attrs = {}, const char* by = "x") {
  return ElementwiseComposition(name, doc, formula, {"gradient", by}, std::move(attrs));
}

void AppendActivations(std::vector<OpSchema>& ops) {
  const AttrDef approximate =
      OptionalAttr("approximate", AttrType::kString, "none", "the same as for gelu");
  const AttrDef negative_slope = Real("negative_slope", 0.01, "the slope for x < 0");
  const std::vector<AttrDef> softplus = {Real("beta", 1, "the sharpness"),
                                         Real("threshold", 20, "above it, the result is x")};
  const std::vector<AttrDef> elu = {
      Real("alpha", 1, "for x -> -inf, the result approaches -scale alpha"),
      Real("scale", 1, "a factor of the result"), Real("input_scale", 1, "a factor of negative x")};
  std::vector<AttrDef> elu_backward = elu;
  elu_backward.push_back(OptionalAttr("by_result", AttrType::kBool, false,
                                      "x is the result of elu, not its argument"));
  const std::vector<AttrDef> limits = {
      OptionalAttr("min", AttrType::kScalar, -1.0, "the smallest result"),
      OptionalAttr("max", AttrType::kScalar, 1.0, "the largest result")};
  const AttrDef threshold =
      RequiredAttr("threshold", AttrType::kScalar, "elements <= threshold get the value");
  ops.push_back(Activation("softplus", "where(beta x > threshold, x, log1p(exp(beta x)) / beta).",
                           SoftplusFormula, softplus));
  ops.push_back(Activation(
      "threshold", "where(x <= threshold, value, x).", Threshold,
      {threshold, RequiredAttr("value", AttrType::kScalar, "the result for these elements")}));
  ops.push_back(
      Activation("leaky_relu", "where(x > 0, x, negative_slope x).", LeakyRelu, {negative_slope}));
  ops.push_back(
      Activation("elu", "where(x < 0, scale alpha expm1(input_scale x), scale x).", Elu, elu));
  ops.push_back(Activation("hardtanh", "minimum(maximum(x, min), max).", Hardtanh, limits));
  ops.push_back(Activation("hardsigmoid", "minimum(maximum(x + 3, 0), 6) / 6.", Hardsigmoid));
  ops.push_back(Activation("hardswish", "x hardsigmoid(x).", Hardswish));
  ops.push_back(Activation("mish", "x tanh(logaddexp(x, 0)).", Mish));
  ops.push_back(Activation("log_sigmoid", "-logaddexp(-x, 0).", LogSigmoid));
  ops.push_back(
      Gradient("sigmoid_backward", "g y (1 - y), with y = sigmoid(x).", SigmoidBackward, {}, "y"));
  ops.push_back(Gradient("tanh_backward", "g (1 - y²), with y = tanh(x).", TanhBackward, {}, "y"));
  ops.push_back(
      Gradient("silu_backward", "g s (1 + x (1 - s)), with s = sigmoid(x).", SiluBackward));
  ops.push_back(Gradient("gelu_backward",
                         "g (F + x f), with the normal distribution function F and its density f; "
                         "with the approximation, the derivative of that formula.",
                         GeluBackward, {approximate}));
  ops.push_back(Gradient("softplus_backward", "where(beta x > threshold, g, g sigmoid(beta x)).",
                         SoftplusBackward, softplus));
  ops.push_back(Gradient("threshold_backward", "where(x <= threshold, 0, g).", ThresholdBackward,
                         {OptionalAttr("threshold", AttrType::kScalar, 0.0,
                                       "where x <= threshold, the result is 0")}));
  ops.push_back(Gradient("leaky_relu_backward", "where(x > 0, g, negative_slope g).",
                         LeakyReluBackward, {negative_slope}));
  ops.push_back(Gradient("elu_backward",
                         "g where(x > 0, scale, scale alpha input_scale exp(input_scale x)).",
                         EluBackward, elu_backward));
  ops.push_back(
      Gradient("hardtanh_backward", "where(min < x < max, g, 0).", HardtanhBackward, limits));
  ops.push_back(
      Gradient("hardsigmoid_backward", "where(abs(x) < 3, g / 6, 0).", HardsigmoidBackward));
  ops.push_back(Gradient("hardswish_backward",
                         "where(x <= -3, 0, where(x < 3, g (x / 3 + 1/2), g)).",
                         HardswishBackward));
  ops.push_back(Gradient("mish_backward",
                         "g (u + x sigmoid(x) (1 - u²)), with u = tanh(logaddexp(x, 0)).",
                         MishBackward));
  ops.push_back(Gradient("log_sigmoid_backward", "g sigmoid(-x).", LogSigmoidBackward));
  const AttrDef lambd = Real("lambd", 0.5, "the limit of abs(x), at least 0");
  ops.push_back(Activation(
      "softshrink", "where(x > lambd, x - lambd, where(x < -lambd, x + lambd, 0)); NaN stays NaN.",
      Softshrink, {lambd}));
  ops.push_back(Activation("hardshrink",
                           "where(abs(x) <= lambd, 0, x), with lambd rounded to the dtype of x.",
                           Hardshrink, {lambd}));
  ops.push_back(Gradient(
      "shrink_backward",
      "where(abs(x) <= lambd, 0, g), with lambd rounded to the dtype of x: the gradient of "
      "softshrink and hardshrink.",
      ShrinkBackward, {lambd}));
  const AttrDef eps = Real("eps", -1, "if at least 0, x is limited to [eps, 1 - eps]");
  ops.push_back(Activation("logit", "log(x / (1 - x)).", Logit, {eps}));
  ops.push_back(
      Gradient("logit_backward",
               "g / (x (1 - x)). Outside [eps, 1 - eps] it is 0; if eps < 0, NaN outside [0, 1].",
               LogitBackward, {eps}));
  ops.push_back(
      ElementwiseComposition("prelu", "where(x > 0, x, weight x).", Prelu, {"x", "weight"}));
  OpSchema prelu_backward = ElementwiseComposition(
      "prelu_backward",
      "where(x > 0, g, g weight), and where(x > 0, 0, g x), the gradient of the weight at each "
      "element.",
      PreluBackward, {"gradient", "x", "weight"});
  prelu_backward.signature = "(…), (…), (…) -> (…), (…) broadcast";
  ops.push_back(prelu_backward);
  const AttrDef axis = OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis that is halved");
  OpSchema glu = Activation("glu", "a sigmoid(b), with the halves a and b of x.", Glu, {axis});
  glu.signature = "(…, 2n, …) -> (…, n, …)";
  ops.push_back(glu);
  OpSchema glu_backward =
      Gradient("glu_backward", "g sigmoid(b), and g a sigmoid(b) (1 - sigmoid(b)), joined.",
               GluBackward, {axis});
  glu_backward.signature = "(…, n, …), (…, 2n, …) -> (…, 2n, …)";
  ops.push_back(glu_backward);
}

}  // namespace
}  // namespace formula

void AppendActivationCompositions(std::vector<OpSchema>& ops) { formula::AppendActivations(ops); }

}  // namespace tensord
