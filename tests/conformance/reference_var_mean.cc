#include <algorithm>
#include <cmath>
#include <limits>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

struct VarAndMean {
  double var, mean;
};

VarAndMean VarAndMeanOf(const Values& x, const Group& group, double correction) {
  if (group.empty()) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  const auto n = static_cast<long double>(group.size());
  long double sum = 0;
  for (int64_t at : group) sum += x.real[at];
  const long double mean = sum / n;
  long double squares = 0;
  for (int64_t at : group) squares += (x.real[at] - mean) * (x.real[at] - mean);
  const long double divisor = std::max(n - correction, 0.0L);
  return {static_cast<double>(squares / divisor), static_cast<double>(mean)};
}

// The relative error of a variance grows with the ratio of the mean to the standard deviation.
double VarianceScale(VarAndMean of) {
  const double scale = of.var + std::fabs(of.mean) * std::sqrt(of.var);
  return std::isfinite(scale) ? scale : 0;
}

std::vector<Values> VarMean(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const std::vector<bool> reduced = ReducedAxes(attrs, x.spec.shape.rank());
  const Shape shape = ReducedShape(x.spec.shape, reduced, Get(attrs, "keepdims", false));
  Values var = Values::Of(x.spec.dtype, shape), mean = var;
  var.scale.resize(var.size());
  mean.scale.resize(mean.size());
  const std::vector<Group> groups = Groups(x.spec.shape, reduced);
  for (int64_t i = 0; i < var.size(); ++i) {
    const VarAndMean of = VarAndMeanOf(x, groups[i], Get<double>(attrs, "correction", 1.0));
    var.real[i] = of.var;
    var.scale[i] = VarianceScale(of);
    mean.real[i] = of.mean;
    for (int64_t at : groups[i]) {
      mean.scale[i] += std::fabs(x.real[at]) / static_cast<double>(groups[i].size());
    }
  }
  return {var, mean};
}

Values Var(const Attributes& attrs, Inputs inputs) { return VarMean(attrs, inputs)[0]; }

// The error of a square root is that of the variance, divided by twice the root.
Values Std(const Attributes& attrs, Inputs inputs) {
  Values out = Var(attrs, inputs);
  for (int64_t i = 0; i < out.size(); ++i) {
    const double root = std::sqrt(out.real[i]);
    out.scale[i] = out.real[i] > 0 ? FiniteOrZero(out.scale[i] / (2 * root)) : 0;
    out.real[i] = root;
  }
  return out;
}

}  // namespace

void AddVarMeanReferences(ReferenceTable& table) {
  table["var_mean"] = VarMean;
  table["var"] = Var;
  table["std"] = Std;
}

}  // namespace tensord::conformance
