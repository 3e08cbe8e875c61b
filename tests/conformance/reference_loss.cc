// Losses and their gradients.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

constexpr double kInfinity = INFINITY;

double FiniteOrZero(long double value) {
  return std::isfinite(static_cast<double>(value)) ? static_cast<double>(value) : 0;
}

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

DType StatisticsOf(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

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

}  // namespace

void AddLossReferences(ReferenceTable& table) {
  table["cross_entropy"] = CrossEntropy;
  table["cross_entropy_backward"] = CrossEntropyBackward;
  table["cross_entropy_loss"] = CrossEntropyLoss;
  table["cross_entropy_loss_backward"] = CrossEntropyLossBackward;
}

}  // namespace tensord::conformance
