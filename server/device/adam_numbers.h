// A step of Adam. nvcc and host compilers include this file. TENSORD_ISA_NAMESPACE is explained in
// math_functions.h.
#pragma once

#include "tensord/server/device/math_functions.h"

namespace tensord::server {

// The attributes of adam_step.
struct AdamAttributes {
  double beta1, beta2, eps, weight_decay;
  bool decoupled, maximize;
};

// The numbers that all elements have in common.
struct AdamNumbers {
  double beta1, beta2, eps;
  double sign;          // -1: the gradient is negated
  double keep;          // p is multiplied by it before the step
  double decay;         // p · decay is added to the gradient
  double rate;          // lr / (1 - beta1^step)
  double inverse_root;  // 1 / √(1 - beta2^step)
};

// The state of one element. T is float or double.
template <typename T>
struct AdamElement {
  T p, m, v, vmax;
};

inline namespace TENSORD_ISA_NAMESPACE {

// Returns 1 - beta^step. The difference would lose digits if beta is close to 1.
TENSORD_HD inline double BiasCorrection(double beta, double step) {
  return -math::Expm1(step * math::Log(beta));
}

TENSORD_HD inline AdamNumbers ComputeAdamNumbers(const AdamAttributes& of, double step, double lr) {
  return {of.beta1,
          of.beta2,
          of.eps,
          of.maximize ? -1.0 : 1.0,
          of.decoupled ? 1 - lr * of.weight_decay : 1.0,
          of.decoupled ? 0.0 : of.weight_decay,
          lr / BiasCorrection(of.beta1, step),
          1 / math::Sqrt(BiasCorrection(of.beta2, step))};
}

// Returns the state after the step. `vmax` is used only with kAmsgrad.
template <bool kAmsgrad, typename T>
TENSORD_HD inline AdamElement<T> AdamStep(const AdamNumbers& by, AdamElement<T> x, T gradient) {
  const T g = gradient * static_cast<T>(by.sign) + x.p * static_cast<T>(by.decay);
  const T p = x.p * static_cast<T>(by.keep);
  x.m += (g - x.m) * static_cast<T>(1 - by.beta1);
  x.v = x.v * static_cast<T>(by.beta2) + g * g * static_cast<T>(1 - by.beta2);
  T largest = x.v;
  if constexpr (kAmsgrad) {
    largest = x.vmax > x.v || x.vmax != x.vmax ? x.vmax : x.v;  // NaN if one is NaN
    x.vmax = largest;
  }
  const T root = math::Sqrt(largest) * static_cast<T>(by.inverse_root);
  x.p = p - static_cast<T>(by.rate) * (x.m / (root + static_cast<T>(by.eps)));
  return x;
}

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
