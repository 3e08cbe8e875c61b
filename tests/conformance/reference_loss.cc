// Losses and their gradients.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// The arguments of cross_entropy and of its gradient.
struct Distributions {
  std::vector<Group> lines;  // the positions in x of the elements of each distribution
  Shape shape;               // of a result for each distribution
  int64_t classes;
  int64_t ignored;
  long double smoothing;
  const Values* target;
  const Values* weight = nullptr;
  long double sum_of_weights = 0;

  Distributions(const Attributes& attrs, Inputs inputs, const Values& x, size_t target_input)
      : ignored(Get<int64_t>(attrs, "ignore_index", -100)),
        smoothing(Get<double>(attrs, "label_smoothing", 0.0)),
        target(&inputs[target_input]) {
    const int rank = x.spec.shape.rank();
    int64_t axis = Get<int64_t>(attrs, "axis", -1);
    if (axis < 0) axis += rank;
    std::vector<bool> along(rank, false);
    along[axis] = true;
    classes = x.spec.shape.dim(static_cast<int>(axis));
    shape = ReducedShape(x.spec.shape, along, false);
    if (x.size() > 0) lines = Groups(x.spec.shape, along);
    if (inputs.size() > target_input + 1) weight = &inputs[target_input + 1];
    for (int64_t c = 0; c < classes; ++c) sum_of_weights += Weight(c);
  }

  long double Weight(int64_t c) const { return weight == nullptr ? 1 : weight->real[c]; }
};

std::vector<Values> CrossEntropy(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Distributions d(attrs, inputs, x, 1);
  Values loss = Values::Of(StatisticsOf(x.spec.dtype), d.shape);
  loss.scale.resize(loss.size());
  Values lse = loss;
  for (size_t i = 0; i < d.lines.size(); ++i) {
    const Group& line = d.lines[i];
    double max = -kInfinity;
    for (const int64_t at : line)
      max = std::isnan(x.real[at]) ? x.real[at] : std::max(x.real[at], max);
    long double sum = 0, terms = 1;
    for (const int64_t at : line) {
      if (max != -kInfinity) sum += std::exp(static_cast<long double>(x.real[at]) - max);
    }
    const long double log_sum = std::log(sum);
    lse.real[i] = static_cast<double>(max + log_sum);
    lse.scale[i] = FiniteOrZero(std::fabs(max) + std::fabs(log_sum) + terms);
    const int64_t target = d.target->whole[i];
    if (target == d.ignored) continue;
    const auto nll = [&](int64_t c) { return (max - x.real[line[c]]) + log_sum; };
    long double smooth = 0, magnitude = 0;
    for (int64_t c = 0; c < d.classes && d.smoothing > 0; ++c) {
      smooth += d.Weight(c) * nll(c);
      magnitude += std::fabs(d.Weight(c)) * (std::fabs(nll(c)) + 1);
    }
    const auto n = static_cast<long double>(d.classes);
    const long double weight = (1 - d.smoothing) * d.Weight(target);
    loss.real[i] = static_cast<double>(weight * nll(target) + d.smoothing / n * smooth);
    loss.scale[i] = FiniteOrZero(std::fabs(weight) * (std::fabs(nll(target)) + 1) +
                                 d.smoothing / n * magnitude);
  }
  return {loss, lse};
}

Values CrossEntropyBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1], &lse = inputs[2];
  const Distributions d(attrs, inputs, x, 3);
  Values gx = Values::Of(x.spec.dtype, x.spec.shape);
  gx.scale.resize(gx.size());
  for (size_t i = 0; i < d.lines.size(); ++i) {
    const int64_t target = d.target->whole[i];
    if (target == d.ignored) continue;
    const long double share = d.smoothing / static_cast<long double>(d.classes);
    const long double at_target = (1 - d.smoothing) * d.Weight(target);
    const long double a = g.real[i] * (at_target + share * d.sum_of_weights);
    for (int64_t c = 0; c < d.classes; ++c) {
      const int64_t at = d.lines[i][c];
      const long double log_p = static_cast<long double>(x.real[at]) - lse.real[i];
      const long double term = a == 0 ? 0 : std::exp(log_p) * a;
      const long double smooth = g.real[i] * share * d.Weight(c);
      const long double one = c == target ? g.real[i] * at_target : 0;
      gx.real[at] = static_cast<double>(term - smooth - one);
      gx.scale[at] = FiniteOrZero(std::fabs(term) * (1 + (term == 0 ? 0 : std::fabs(log_p))) +
                                  std::fabs(smooth) + std::fabs(one));
    }
  }
  return gx;
}

// The sum of the weights of the targets that count.
long double TotalOf(const Distributions& d) {
  long double total = 0;
  for (const int64_t target : d.target->whole) {
    if (target != d.ignored) total += d.Weight(target);
  }
  return total;
}

Values Scalar(DType dtype, long double value, double scale) {
  Values out = Values::Of(dtype, {});
  out.real[0] = static_cast<double>(value);
  out.scale = {scale};
  return out;
}

std::vector<Values> CrossEntropyLoss(const Attributes& attrs, Inputs inputs) {
  std::vector<Values> results = CrossEntropy(attrs, inputs);
  const Distributions d(attrs, inputs, inputs[0], 1);
  const DType dtype = results[0].spec.dtype;
  const long double total = TotalOf(d);
  results.push_back(Scalar(dtype, total, FiniteOrZero(total)));
  const std::string reduction = Get<std::string>(attrs, "reduction", "mean");
  if (reduction == "none") return results;
  long double sum = 0, magnitude = 0;
  for (size_t i = 0; i < results[0].real.size(); ++i) {
    sum += results[0].real[i];
    magnitude += results[0].scale[i];
  }
  const long double share = reduction == "mean" ? total : 1;
  results[0] = Scalar(dtype, sum / share, FiniteOrZero(magnitude / share));
  return results;
}

Values CrossEntropyLossBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &lse = inputs[2], &total = inputs[4];
  const std::string reduction = Get<std::string>(attrs, "reduction", "mean");
  Values each = Values::Of(lse.spec.dtype, lse.spec.shape);
  for (int64_t i = 0; i < each.size(); ++i) {
    each.real[i] = g.real[reduction == "none" ? i : 0];
    if (reduction == "mean") each.real[i] = RoundTo(each.spec.dtype, each.real[i] / total.real[0]);
  }
  std::vector<Values> operands = {each, inputs[1], lse, inputs[3]};
  if (inputs.size() == 6) operands.push_back(inputs[5]);
  return CrossEntropyBackward(attrs, operands);
}

// ---- losses of elements. A smooth loss's gradient is its difference quotient here, so that no
// formula of a derivative is written twice.

// The loss of an element, or its derivative, from the attributes, x, the target and pos_weight.
using ElementFunction = std::function<Real(const Attributes&, Real, Real, Real)>;

Real SignOf(Real x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

struct ElementLoss {
  const char* name;
  ElementFunction value;
  ElementFunction slope;  // null: the difference quotient of `value`
};

std::vector<ElementLoss> ElementLosses() {
  const auto beta = [](const Attributes& a) { return Real{Get<double>(a, "beta", 1.0)}; };
  const auto delta = [](const Attributes& a) { return Real{Get<double>(a, "delta", 1.0)}; };
  const auto logarithm = [](Real x) { return std::max(std::log(x), Real{-100}); };
  return {
      {"mse_loss", [](const auto&, Real x, Real t, Real) { return (x - t) * (x - t); }, nullptr},
      {"l1_loss", [](const auto&, Real x, Real t, Real) { return std::abs(x - t); },
       [](const auto&, Real x, Real t, Real) { return SignOf(x - t); }},
      {"smooth_l1_loss",
       [=](const auto& a, Real x, Real t, Real) {
         const Real d = std::abs(x - t), b = beta(a);
         return d < b ? d * d / (2 * b) : d - b / 2;
       },
       [=](const auto& a, Real x, Real t, Real) {
         return std::abs(x - t) < beta(a) ? (x - t) / beta(a) : SignOf(x - t);
       }},
      {"huber_loss",
       [=](const auto& a, Real x, Real t, Real) {
         const Real d = std::abs(x - t), b = delta(a);
         return d < b ? d * d / 2 : b * (d - b / 2);
       },
       [=](const auto& a, Real x, Real t, Real) {
         return std::abs(x - t) < delta(a) ? x - t : delta(a) * SignOf(x - t);
       }},
      {"binary_cross_entropy",
       [=](const auto&, Real x, Real t, Real) {
         return -t * logarithm(x) - (1 - t) * logarithm(1 - x);
       },
       [](const auto&, Real x, Real t, Real) {
         return (x - t) / std::max(x - x * x, Real{1e-12});
       }},
      {"binary_cross_entropy_with_logits",
       [](const auto&, Real x, Real t, Real positive) {
         const Real curve = std::max(-x, Real{0}) + std::log1p(std::exp(-std::abs(x)));
         return (1 - t) * x + (1 - t + positive * t) * curve;
       },
       nullptr},
      {"kl_div",
       [](const auto& a, Real x, Real t, Real) {
         if (Get<bool>(a, "log_target", false)) return std::exp(t) * (t - x);
         return t == 0 ? 0 : t * (std::log(t) - x);
       },
       nullptr},
  };
}

// The operands of a loss of elements, from input `first` on: x, the target, weight, pos_weight.
struct Elements {
  const Values &x, &target;
  const Values* weight = nullptr;
  const Values* positive = nullptr;

  Elements(Inputs inputs, size_t first) : x(inputs[first]), target(inputs[first + 1]) {
    if (inputs.size() > first + 2) weight = &inputs[first + 2];
    if (inputs.size() > first + 3) positive = &inputs[first + 3];
  }

  Real Factor(const Values* of, int64_t i) const {
    return of == nullptr ? 1 : of->real[RavelBroadcast(Unravel(i, x.spec.shape), of->spec.shape)];
  }
  Real Weight(int64_t i) const { return Factor(weight, i); }
  Real Apply(const ElementFunction& f, const Attributes& attrs, int64_t i) const {
    return f(attrs, x.real[i], target.real[i], Factor(positive, i));
  }
  Real Slope(const ElementLoss& loss, const Attributes& attrs, int64_t i) const {
    if (loss.slope != nullptr) return Apply(loss.slope, attrs, i);
    const auto value = [&](Real y) {
      return loss.value(attrs, y, target.real[i], Factor(positive, i));
    };
    return DifferenceQuotient(value, x.real[i]);
  }
  Real Magnitude(int64_t i) const {
    return (1 + std::abs(x.real[i])) * (1 + std::abs(target.real[i])) *
           (1 + std::abs(Factor(positive, i)));
  }
};

Values ReducedLoss(const ElementLoss& loss, const Attributes& attrs, Inputs inputs) {
  const Elements in(inputs, 0);
  const std::string reduction = Get<std::string>(attrs, "reduction", "mean");
  Values each = Values::Of(PromotedOf(inputs), in.x.spec.shape);
  Real sum = 0, magnitude = 0;
  for (int64_t i = 0; i < each.size(); ++i) {
    const Real value = in.Weight(i) * in.Apply(loss.value, attrs, i);
    const Real scale = std::abs(value) + std::abs(in.Weight(i)) * in.Magnitude(i);
    each.real[i] = static_cast<double>(value);
    each.scale.push_back(FiniteOrZero(scale));
    sum += value;
    magnitude += scale;
  }
  if (reduction == "none") return each;
  const Real share = reduction == "mean" ? each.size() : 1;
  return Scalar(each.spec.dtype, sum / share, FiniteOrZero(magnitude / share));
}

Values LossGradient(const ElementLoss& loss, const Attributes& attrs, Inputs inputs) {
  const Elements in(inputs, 1);
  const Values& g = inputs[0];
  Values gx = Values::Of(PromotedOf(inputs), in.x.spec.shape);
  const bool mean = Get<std::string>(attrs, "reduction", "mean") == "mean";
  for (int64_t i = 0; i < gx.size(); ++i) {
    const Real slope = in.Slope(loss, attrs, i);
    const Real factor = in.Weight(i) * in.Factor(&g, i) / (mean ? gx.size() : 1);
    gx.real[i] = static_cast<double>(slope * factor);
    gx.scale.push_back(FiniteOrZero(std::abs(factor) * (std::abs(slope) + in.Magnitude(i))));
  }
  return gx;
}

// ---- nll_loss

std::vector<Values> NllLoss(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Distributions d(attrs, inputs, x, 1);
  Values each = Values::Of(x.spec.dtype, d.shape);
  Real sum = 0, magnitude = 0;
  for (size_t i = 0; i < d.lines.size(); ++i) {
    const int64_t target = d.target->whole[i];
    const Real loss = target == d.ignored ? 0 : -d.Weight(target) * x.real[d.lines[i][target]];
    each.real[i] = static_cast<double>(loss);
    each.scale.push_back(FiniteOrZero(std::abs(loss)));
    sum += loss;
    magnitude += std::abs(loss);
  }
  const Real total = TotalOf(d);
  const std::string reduction = Get<std::string>(attrs, "reduction", "mean");
  const Real share = reduction == "mean" ? total : 1;
  if (reduction != "none")
    each = Scalar(x.spec.dtype, sum / share, FiniteOrZero(magnitude / share));
  return {each, Scalar(x.spec.dtype, total, FiniteOrZero(total))};
}

Values NllLossBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1];
  const Distributions d(attrs, inputs, x, 2);
  const std::string reduction = Get<std::string>(attrs, "reduction", "mean");
  const Real share = reduction == "mean" ? TotalOf(d) : 1;
  Values gx = Values::Of(x.spec.dtype, x.spec.shape);
  gx.scale.resize(gx.size());
  for (size_t i = 0; i < d.lines.size(); ++i) {
    const int64_t target = d.target->whole[i];
    if (target == d.ignored) continue;
    const Real slope = -d.Weight(target) * g.real[reduction == "none" ? i : 0] / share;
    gx.real[d.lines[i][target]] = static_cast<double>(slope);
    gx.scale[d.lines[i][target]] = FiniteOrZero(std::abs(slope));
  }
  return gx;
}

}  // namespace

void AddLossReferences(ReferenceTable& table) {
  for (const ElementLoss& loss : ElementLosses()) {
    table[loss.name] = [loss](const Attributes& attrs, Inputs inputs) {
      return ReducedLoss(loss, attrs, inputs);
    };
    table[std::string(loss.name) + "_backward"] = [loss](const Attributes& attrs, Inputs inputs) {
      return LossGradient(loss, attrs, inputs);
    };
  }
  table["nll_loss"] = NllLoss;
  table["nll_loss_backward"] = NllLossBackward;
  table["cross_entropy"] = CrossEntropy;
  table["cross_entropy_backward"] = CrossEntropyBackward;
  table["cross_entropy_loss"] = CrossEntropyLoss;
  table["cross_entropy_loss_backward"] = CrossEntropyLossBackward;
}

}  // namespace tensord::conformance
