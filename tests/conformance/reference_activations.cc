// Activations and their gradients. A smooth function's gradient is its difference quotient here, so
// that no formula of a derivative is written twice.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using Function = std::function<Real(const Attributes&, Real)>;

Real Slope(const Function& f, const Attributes& attrs, Real x) {
  return DifferenceQuotient([&](Real y) { return f(attrs, y); }, x);
}

Real Double(const Attributes& attrs, absl::string_view name, double otherwise) {
  return Get<double>(attrs, name, otherwise);
}

Real LogOnePlusExp(Real x) { return std::max<Real>(x, 0) + std::log1p(std::exp(-std::abs(x))); }

Real GeluOf(const Attributes& attrs, Real x) {
  if (Get<std::string>(attrs, "approximate", "none") == "none") {
    return x * std::erfc(-x / std::sqrt(Real{2})) / 2;
  }
  const Real root = std::sqrt(2 / std::acos(Real{-1}));
  return x * (1 + std::tanh(root * (x + 0.044715L * x * x * x))) / 2;
}

Real Softplus(const Attributes& attrs, Real x) {
  const Real beta = Double(attrs, "beta", 1);
  return beta * x > Double(attrs, "threshold", 20) ? x : LogOnePlusExp(beta * x) / beta;
}

// Elu above 0 and below.
Real EluAbove(const Attributes& attrs, Real x) { return Double(attrs, "scale", 1) * x; }
Real EluBelow(const Attributes& attrs, Real x) {
  return Double(attrs, "scale", 1) * Double(attrs, "alpha", 1) *
         std::expm1(Double(attrs, "input_scale", 1) * x);
}

Real EluSlope(const Attributes& attrs, Real x) {
  if (!Get<bool>(attrs, "by_result", false)) return Slope(x > 0 ? EluAbove : EluBelow, attrs, x);
  // x is elu's result.
  const Real scale = Double(attrs, "scale", 1);
  return x > 0 ? scale : (x + scale * Double(attrs, "alpha", 1)) * Double(attrs, "input_scale", 1);
}

Real LogitOf(const Attributes& attrs, Real x) {
  const Real eps = Double(attrs, "eps", -1);
  if (eps >= 0) x = std::isnan(x) ? x : std::min(std::max(x, eps), 1 - eps);
  return std::log(x / (1 - x));
}

Real LogitSlope(const Attributes& attrs, Real x) {
  const Real eps = Double(attrs, "eps", -1), low = std::max<Real>(eps, 0);
  if (x < low || x > 1 - low) return eps < 0 ? static_cast<Real>(kNan) : 0;
  return 1 / ((x + 0) * (1 - x));
}

std::vector<Values> PreluBackward(const Attributes&, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1], &weight = inputs[2];
  Values gx = Values::Of(g.spec.dtype, g.spec.shape), gw = gx;
  for (int64_t i = 0; i < g.size(); ++i) {
    const Index index = Unravel(i, g.spec.shape);
    const Real w = weight.real[RavelBroadcast(index, weight.spec.shape)], of = g.real[i];
    const Real at = x.real[RavelBroadcast(index, x.spec.shape)];
    gx.real[i] = static_cast<double>(at > 0 ? of : of * w);
    gw.real[i] = static_cast<double>(at > 0 ? 0 : of * at);
  }
  return {gx, gw};
}

Values Prelu(const Attributes&, Inputs inputs) {
  const Values &x = inputs[0], &weight = inputs[1];
  Values out = Values::Of(x.spec.dtype, x.spec.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const Real w = weight.real[RavelBroadcast(Unravel(i, x.spec.shape), weight.spec.shape)];
    out.real[i] = static_cast<double>(x.real[i] > 0 ? x.real[i] : x.real[i] * w);
  }
  return out;
}

// For each element of the first half of x along the axis: its place in x, and that of its partner.
struct GluPlaces {
  GluPlaces(const Attributes& attrs, const Values& x) : half(x.spec.shape) {
    int64_t axis = Get<int64_t>(attrs, "axis", -1);
    if (axis < 0) axis += half.rank();
    half.set_dim(static_cast<int>(axis), half.dim(static_cast<int>(axis)) / 2);
    for (int64_t i = 0; i < half.num_elements(); ++i) {
      Index index = Unravel(i, half);
      const int64_t first = Ravel(index, x.spec.shape);
      index[axis] += half.dim(static_cast<int>(axis));
      pairs.emplace_back(first, Ravel(index, x.spec.shape));
    }
  }

  Shape half;
  std::vector<std::pair<int64_t, int64_t>> pairs;
};

Values Glu(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const GluPlaces places(attrs, x);
  Values out = Values::Of(x.spec.dtype, places.half);
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto [a, b] = places.pairs[i];
    out.real[i] = static_cast<double>(x.real[a] * SigmoidOf(x.real[b]));
  }
  return out;
}

Values GluBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1];
  const GluPlaces places(attrs, x);
  Values out = ScaledValues(Promote(g.spec.dtype, x.spec.dtype), x.spec.shape);
  for (int64_t i = 0; i < g.size(); ++i) {
    const auto [a, b] = places.pairs[i];
    const Real of = g.real[i], sigmoid = SigmoidOf(x.real[b]);
    out.real[a] = static_cast<double>(of * sigmoid);
    out.real[b] = static_cast<double>(of * x.real[a] * (sigmoid - sigmoid * sigmoid));
    out.scale[a] = std::abs(g.real[i]);
    out.scale[b] = std::abs(g.real[i]) * (1 + std::abs(x.real[a]));
  }
  return out;
}

struct ActivationFunctions {
  const char* name;
  Function value;
  // The derivative, as a function of the argument or of the result. If null, the difference
  // quotient of `value` is used.
  Function slope;
};

std::vector<ActivationFunctions> KnownActivations() {
  const auto limit = [](Real x, Real low, Real high) { return std::min(std::max(x, low), high); };
  const auto at = [](const char* name, double otherwise) {
    return [name, otherwise](const Attributes& attrs) { return Double(attrs, name, otherwise); };
  };
  const auto min = at("min", -1), max = at("max", 1), slope = at("negative_slope", 0.01);
  const auto threshold = at("threshold", 0), lambd = at("lambd", 0.5);
  return {
      {"sigmoid", nullptr, [](const auto&, Real y) { return y - y * y; }},
      {"tanh", nullptr, [](const auto&, Real y) { return 1 - y * y; }},
      {"silu", [](const auto&, Real x) { return x * SigmoidOf(x); }, nullptr},
      {"gelu", GeluOf, nullptr},
      {"softplus", Softplus, nullptr},
      {"mish", [](const auto&, Real x) { return x * std::tanh(LogOnePlusExp(x)); }, nullptr},
      {"log_sigmoid", [](const auto&, Real x) { return -LogOnePlusExp(-x); }, nullptr},
      {"elu", [](const auto& attrs, Real x) { return (x > 0 ? EluAbove : EluBelow)(attrs, x); },
       EluSlope},
      {"threshold",
       [=](const auto& attrs, Real x) {
         return x > threshold(attrs) ? x : Double(attrs, "value", 0);
       },
       [=](const auto& attrs, Real x) { return x > threshold(attrs) ? 1 : 0; }},
      {"leaky_relu", [=](const auto& attrs, Real x) { return x > 0 ? x : slope(attrs) * x; },
       [=](const auto& attrs, Real x) { return x > 0 ? 1 : slope(attrs); }},
      {"hardtanh", [=](const auto& attrs, Real x) { return limit(x, min(attrs), max(attrs)); },
       [=](const auto& attrs, Real x) { return x > min(attrs) && x < max(attrs) ? 1 : 0; }},
      {"hardsigmoid", [=](const auto&, Real x) { return limit(x + 3, 0, 6) / 6; },
       [](const auto&, Real x) { return std::abs(x) < 3 ? Real{1} / 6 : 0; }},
      {"hardswish", [=](const auto&, Real x) { return x * limit(x + 3, 0, 6) / 6; },
       [](const auto&, Real x) { return x <= -3  ? 0
                                        : x >= 3 ? 1
                                                 : x / 3 + Real{1} / 2; }},
      {"softshrink",
       [=](const auto& attrs, Real x) {
         return x > lambd(attrs) ? x - lambd(attrs) : x < -lambd(attrs) ? x + lambd(attrs) : 0;
       },
       nullptr},
      {"hardshrink", [=](const auto& attrs, Real x) { return std::abs(x) <= lambd(attrs) ? 0 : x; },
       nullptr},
      {"shrink", nullptr,
       [=](const auto& attrs, Real x) { return std::abs(x) <= lambd(attrs) ? 0 : 1; }},
      {"logit", nullptr, LogitSlope},
  };
}

}  // namespace

void AddActivationReferences(ReferenceTable& table) {
  table["logit"] = [](const Attributes& attrs, Inputs inputs) {
    Values out = ScaledValues(inputs[0].spec.dtype, inputs[0].spec.shape);
    for (int64_t i = 0; i < out.size(); ++i) {
      out.real[i] = static_cast<double>(LogitOf(attrs, inputs[0].real[i]));
      out.scale[i] = FiniteOrZero(1 + std::abs(out.real[i]));
    }
    return out;
  };
  table["prelu"] = ReferenceFunction(Prelu);
  table["prelu_backward"] = OpReference(PreluBackward);
  table["glu"] = ReferenceFunction(Glu);
  table["glu_backward"] = ReferenceFunction(GluBackward);
  for (const ActivationFunctions& op : KnownActivations()) {
    if (op.value != nullptr && std::string(op.name) != "gelu" && std::string(op.name) != "silu") {
      table[op.name] = [value = op.value](const Attributes& attrs, Inputs inputs) {
        Values out = Values::Of(inputs[0].spec.dtype, inputs[0].spec.shape);
        for (int64_t i = 0; i < out.size(); ++i) {
          out.real[i] = static_cast<double>(value(attrs, inputs[0].real[i]));
        }
        return out;
      };
    }
    const Function slope =
        op.slope != nullptr ? op.slope : [value = op.value](const auto& attrs, Real x) {
          return Slope(value, attrs, x);
        };
    table[std::string(op.name) + "_backward"] = [slope](const Attributes& attrs, Inputs inputs) {
      const Values &g = inputs[0], &x = inputs[1];
      Values out =
          Values::Of(Promote(g.spec.dtype, x.spec.dtype), Broadcast(g.spec.shape, x.spec.shape));
      for (int64_t i = 0; i < out.size(); ++i) {
        const Index index = Unravel(i, out.spec.shape);
        const Real gradient = g.real[RavelBroadcast(index, g.spec.shape)];
        const Real argument = x.real[RavelBroadcast(index, x.spec.shape)];
        out.real[i] = static_cast<double>(gradient * slope(attrs, argument));
        out.scale.push_back(static_cast<double>(std::abs(gradient) * (1 + std::abs(argument))));
      }
      return out;
    };
  }
}

}  // namespace tensord::conformance
