// Steps of optimizers.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

double NumberOf(const Values& values) {
  return values.floating() ? values.real[0] : static_cast<double>(values.whole[0]);
}

std::vector<Values> AdamStep(const Attributes& attrs, Inputs inputs) {
  const bool amsgrad = Get(attrs, "amsgrad", false), decoupled = Get(attrs, "decoupled", false);
  const bool maximize = Get(attrs, "maximize", false);
  const long double beta1 = Get<double>(attrs, "beta1", 0.9);
  const long double beta2 = Get<double>(attrs, "beta2", 0.999);
  const long double eps = Get<double>(attrs, "eps", 1e-8);
  const long double weight_decay = Get<double>(attrs, "weight_decay", 0.0);
  const size_t tensors = amsgrad ? 5 : 4;
  const long double step = NumberOf(inputs[tensors]), lr = NumberOf(inputs[tensors + 1]);
  Values p = inputs[0], m = inputs[2], v = inputs[3], vmax = inputs[amsgrad ? 4 : 3];
  for (Values* values : {&p, &m, &v, &vmax}) values->scale.resize(values->size());
  for (int64_t i = 0; i < p.size(); ++i) {
    const long double sign = maximize ? -1 : 1;
    const long double before = p.real[i];
    const long double g = sign * inputs[1].real[i] + (decoupled ? 0 : weight_decay * before);
    const long double kept = decoupled ? before * (1 - lr * weight_decay) : before;
    const long double new_m = m.real[i] + (g - m.real[i]) * (1 - beta1);
    const long double new_v = v.real[i] * beta2 + g * g * (1 - beta2);
    long double largest = new_v;
    if (amsgrad && !std::isnan(new_v) && !(vmax.real[i] <= new_v)) largest = vmax.real[i];
    const long double root = std::sqrt(largest) / std::sqrt(1 - std::pow(beta2, step));
    const long double change = lr / (1 - std::pow(beta1, step)) * new_m / (root + eps);
    const long double m_terms =
        std::fabs(m.real[i]) + 2 * std::fabs(inputs[1].real[i]) + std::fabs(weight_decay * before);
    const auto finite = [](long double x) { return std::isfinite(x) ? static_cast<double>(x) : 0; };
    m.scale[i] = finite(m_terms);
    // The error of g counts twice in its square.
    const long double square = (std::fabs(inputs[1].real[i]) + std::fabs(weight_decay * before));
    v.scale[i] = vmax.scale[i] = finite(std::fabs(v.real[i]) + square * square);
    p.scale[i] =
        finite(std::fabs(before) + lr / (1 - std::pow(beta1, step)) * m_terms / (root + eps) *
                                       (1 + (largest > 0 ? v.scale[i] / largest : 0)));
    p.real[i] = static_cast<double>(kept - change);
    m.real[i] = static_cast<double>(new_m);
    v.real[i] = static_cast<double>(new_v);
    vmax.real[i] = static_cast<double>(largest);
  }
  if (amsgrad) return {p, m, v, vmax};
  return {p, m, v};
}

std::vector<Values> AmpUnscale(const Attributes& /*attrs*/, Inputs inputs) {
  Values unscaled = inputs[0], found = inputs[1];
  for (double& element : unscaled.real) {
    if (!std::isfinite(element)) found.real[0] = std::max(found.real[0], 1.0);
    element *= inputs[2].real[0];
  }
  return {unscaled, found};
}

std::vector<Values> AmpUpdateScale(const Attributes& attrs, Inputs inputs) {
  Values scale = inputs[0], tracker = inputs[1];
  const double grown = RoundTo(scale.spec.dtype, scale.real[0] * Get<double>(attrs, "growth", 0.0));
  int64_t& steps = tracker.whole[0];
  ++steps;
  if (inputs[2].real[0] != 0) {
    scale.real[0] *= Get<double>(attrs, "backoff", 0.0);
    steps = 0;
  } else if (steps == Get<int64_t>(attrs, "interval", 0)) {
    if (std::isfinite(grown)) scale.real[0] = grown;
    steps = 0;
  }
  return {scale, tracker};
}

}  // namespace

void AddOptimizerReferences(ReferenceTable& table) {
  table["adam_step"] = AdamStep;
  table["amp_unscale"] = AmpUnscale;
  table["amp_update_scale"] = AmpUpdateScale;
}

}  // namespace tensord::conformance
