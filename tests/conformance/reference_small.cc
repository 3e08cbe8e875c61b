// References of elementwise compositions, of sums with a factor, and of steps of optimizers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// A function of one element of each operand. `dtype` is the promoted dtype. For uint64, the
// elements are their bits.
using OfReals = std::function<Real(DType dtype, const Real* x)>;
using OfWholes = std::function<int64_t(DType dtype, const int64_t* x)>;

struct ElementFunctions {
  OfReals real;
  OfWholes whole = nullptr;  // null: integers and bool are converted to float32
  bool is_truth = false;     // the result is bool
  // The elements that error bounds refer to; null: the results.
  OfReals scale = nullptr;
  // Operands from this position on don't count in the promotion if their shape is [].
  size_t first_factor = 100;
};

ReferenceFunction OfElements(ElementFunctions of) {
  return [of](const Attributes&, Inputs inputs) {
    DType dtype = inputs[0].spec.dtype;
    Shape shape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool counts = i < of.first_factor || inputs[i].spec.shape.rank() > 0;
      if (counts) dtype = Promote(dtype, inputs[i].spec.dtype);
      shape = Broadcast(shape, inputs[i].spec.shape);
    }
    if (of.whole == nullptr && !IsFloating(dtype)) dtype = DType::kFloat32;
    std::vector<Values> operands;
    for (size_t i = 0; i < inputs.size(); ++i) {
      operands.push_back(i < of.first_factor ? Cast(inputs[i], dtype) : inputs[i]);
    }
    Values out = Values::Of(of.is_truth ? DType::kBool : dtype, shape);
    if (of.scale != nullptr && out.floating()) out.scale.resize(out.size());
    for (int64_t i = 0; i < out.size(); ++i) {
      const Index index = Unravel(i, shape);
      Real reals[4] = {};
      int64_t wholes[4] = {};
      for (size_t k = 0; k < operands.size(); ++k) {
        const int64_t at = RavelBroadcast(index, operands[k].spec.shape);
        if (operands[k].floating()) {
          reals[k] = operands[k].real[at];
        } else {
          wholes[k] = operands[k].whole[at];
        }
      }
      if (!IsFloating(dtype)) {
        const int64_t made = of.whole(dtype, wholes);
        out.whole[i] = of.is_truth || IsBool(dtype) ? made : WrapTo(dtype, made);
      } else if (of.is_truth) {
        out.whole[i] = of.real(dtype, reals) != 0;
      } else {
        out.real[i] = static_cast<double>(of.real(dtype, reals));
        if (of.scale != nullptr) out.scale[i] = FiniteOrZero(of.scale(dtype, reals));
      }
    }
    return out;
  };
}

ReferenceFunction Truth(std::function<bool(Real)> real, std::function<bool(DType, int64_t)> whole) {
  return OfElements({.real = [real](DType, const Real* x) -> Real { return real(x[0]) ? 1 : 0; },
                     .whole = [whole](DType dtype, const int64_t* x) -> int64_t {
                       return whole(dtype, x[0]) ? 1 : 0;
                     },
                     .is_truth = true});
}

bool NeverOf(DType, int64_t) { return false; }

// Operands may have different dtypes.
ReferenceFunction Logical(std::function<bool(bool, bool)> function) {
  return [function](const Attributes&, Inputs inputs) {
    const Values &a = inputs[0], &b = inputs[1];
    Values out = Values::Of(DType::kBool, Broadcast(a.spec.shape, b.spec.shape));
    const auto truth = [](const Values& x, const Index& index) {
      const int64_t at = RavelBroadcast(index, x.spec.shape);
      return x.floating() ? x.real[at] != 0 : x.whole[at] != 0;
    };
    for (int64_t i = 0; i < out.size(); ++i) {
      const Index index = Unravel(i, out.spec.shape);
      out.whole[i] = function(truth(a, index), truth(b, index));
    }
    return out;
  };
}

bool IsLess(DType dtype, int64_t a, int64_t b) { return WholeLess(dtype, a, b); }

// C++'s / and % round toward zero.
int64_t Quotient(DType dtype, const int64_t* x) {
  if (dtype != DType::kUInt64) return x[0] / x[1];
  return static_cast<int64_t>(static_cast<uint64_t>(x[0]) / static_cast<uint64_t>(x[1]));
}
int64_t Rest(DType dtype, const int64_t* x) {
  if (dtype != DType::kUInt64) return x[0] % x[1];
  return static_cast<int64_t>(static_cast<uint64_t>(x[0]) % static_cast<uint64_t>(x[1]));
}

Values NanToNum(const Attributes& attrs, Inputs inputs) {
  Values out = inputs[0];
  if (!out.floating()) return out;
  const double largest = LargestOf(out.spec.dtype);
  const auto given = [&](const char* name, double otherwise) {
    const double value = Get<double>(attrs, name, kNan);
    return std::isnan(value) ? otherwise : RoundTo(out.spec.dtype, value);
  };
  for (double& x : out.real) {
    if (std::isnan(x)) {
      x = given("nan", 0);
    } else if (std::isinf(x)) {
      x = x > 0 ? given("posinf", largest) : given("neginf", -largest);
    }
  }
  return out;
}

Values DropoutBackward(const Attributes& attrs, Inputs inputs) {
  Values out = inputs[0];
  const double p = Get<double>(attrs, "p", 0);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.real[i] = inputs[1].whole[i] == 0 || p == 1 ? 0 : out.real[i] / (1 - p);
  }
  return out;
}

// One where the factor is missing.
template <typename T>
T FactorOf(const T* x, size_t position, bool is_given) {
  return is_given ? x[position] : 1;
}

// x + factor · term
ReferenceFunction ScaledSum(size_t num_tensors, std::function<Real(const Real*)> term,
                            std::function<uint64_t(const int64_t*)> whole_term) {
  return [=](const Attributes& attrs, Inputs inputs) {
    const bool has_factor = inputs.size() > num_tensors;
    ElementFunctions of;
    of.real = [=](DType, const Real* x) {
      return x[0] + FactorOf(x, num_tensors, has_factor) * term(x);
    };
    of.scale = [=](DType, const Real* x) {
      return std::fabs(x[0]) + std::fabs(FactorOf(x, num_tensors, has_factor) * term(x));
    };
    if (whole_term != nullptr) {
      of.whole = [=](DType, const int64_t* x) {
        const auto factor = static_cast<uint64_t>(FactorOf(x, num_tensors, has_factor));
        return static_cast<int64_t>(static_cast<uint64_t>(x[0]) + factor * whole_term(x));
      };
    }
    of.first_factor = num_tensors;
    return OfElements(of)(attrs, inputs);
  };
}

std::vector<Values> SgdStep(const Attributes& attrs, Inputs inputs) {
  const Values& p = inputs[0];
  const Real momentum = Get<double>(attrs, "momentum", 0);
  const Real decay = Get<double>(attrs, "weight_decay", 0);
  const Real sign = Get(attrs, "maximize", false) ? -1 : 1;
  const Real lr = inputs[2].real[0];
  Values next = ScaledValues(p.spec.dtype, p.spec.shape), buffer = next;
  for (int64_t i = 0; i < p.size(); ++i) {
    Real step = sign * inputs[1].real[i] + decay * p.real[i];
    const Real own = step, size = std::fabs(inputs[1].real[i]) + std::fabs(decay * p.real[i]);
    if (momentum != 0) {
      Real kept = 0;
      if (inputs.size() > 3) {
        kept = momentum * inputs[3].real[i];
        step = kept + (1 - Get<double>(attrs, "dampening", 0)) * own;
      }
      buffer.real[i] = static_cast<double>(step);
      buffer.scale[i] = static_cast<double>(std::fabs(kept) + size);
      step = RoundTo(p.spec.dtype, buffer.real[i]);
      if (Get(attrs, "nesterov", false)) step = own + momentum * step;
    }
    next.real[i] = static_cast<double>(p.real[i] - lr * step);
    next.scale[i] = static_cast<double>(std::fabs(p.real[i]) +
                                        std::fabs(lr) * (size + buffer.scale[i] + std::fabs(step)));
  }
  if (momentum == 0) return {next};
  return {next, buffer};
}

std::vector<Values> AdagradStep(const Attributes& attrs, Inputs inputs) {
  const Values& p = inputs[0];
  const Real sign = Get(attrs, "maximize", false) ? -1 : 1;
  const Real rate =
      inputs[4].real[0] / (1 + (inputs[3].real[0] - 1) * Get<double>(attrs, "lr_decay", 0));
  Values next = ScaledValues(p.spec.dtype, p.spec.shape), sums = next;
  for (int64_t i = 0; i < p.size(); ++i) {
    const Real decay = Get<double>(attrs, "weight_decay", 0) * p.real[i];
    const Real d = sign * inputs[1].real[i] + decay, sum = inputs[2].real[i] + d * d;
    const Real size = std::fabs(inputs[1].real[i]) + std::fabs(decay);  // of the terms of d
    const Real root = std::sqrt(sum) + Get<double>(attrs, "eps", 1e-10);
    sums.real[i] = static_cast<double>(sum);
    sums.scale[i] = static_cast<double>(inputs[2].real[i] + 2 * size * size);
    next.real[i] = static_cast<double>(p.real[i] - rate * d / root);
    next.scale[i] = static_cast<double>(std::fabs(p.real[i]) + 3 * std::fabs(rate) * size / root);
  }
  return {next, sums};
}

}  // namespace

void AddSmallReferences(ReferenceTable& table) {
  table["square"] = OfElements({.real = [](DType, const Real* x) -> Real {
                                  const auto value = static_cast<double>(x[0]);
                                  return value * value;
                                },
                                .whole =
                                    [](DType, const int64_t* x) {
                                      const auto bits = static_cast<uint64_t>(x[0]);
                                      return static_cast<int64_t>(bits * bits);
                                    }});
  table["reciprocal"] = OfElements(
      {.real = [](DType, const Real* x) -> Real { return 1 / static_cast<double>(x[0]); }});
  table["exp2"] = OfElements({.real = [](DType, const Real* x) { return std::exp2(x[0]); }});
  table["frac"] = OfElements({.real = [](DType, const Real* x) { return x[0] - std::trunc(x[0]); },
                              .whole = [](DType, const int64_t*) { return int64_t{0}; }});
  table["sgn"] = OfElements({.real = [](DType, const Real* x) -> Real {
                               return x[0] > 0 ? 1 : x[0] < 0 ? -1 : 0;
                             },
                             .whole = [](DType dtype, const int64_t* x) -> int64_t {
                               return IsLess(dtype, 0, x[0]) ? 1 : x[0] == 0 ? 0 : -1;
                             }});
  table["signbit"] = Truth([](Real x) { return std::signbit(x); },
                           [](DType dtype, int64_t x) { return IsLess(dtype, x, 0); });
  table["isnan"] = Truth([](Real x) { return std::isnan(x); }, NeverOf);
  table["isinf"] = Truth([](Real x) { return std::isinf(x); }, NeverOf);
  table["isposinf"] = Truth([](Real x) { return x == kInfinity; }, NeverOf);
  table["isneginf"] = Truth([](Real x) { return x == -kInfinity; }, NeverOf);
  table["isfinite"] =
      Truth([](Real x) { return std::isfinite(x); }, [](DType, int64_t) { return true; });
  table["logical_not"] =
      Truth([](Real x) { return x == 0; }, [](DType, int64_t x) { return x == 0; });
  table["bitwise_not"] = [](const Attributes&, Inputs inputs) {
    Values out = inputs[0];
    for (int64_t& x : out.whole) x = IsBool(out.spec.dtype) ? 1 - x : WrapTo(out.spec.dtype, ~x);
    return out;
  };
  table["nan_to_num"] = NanToNum;
  table["logical_and"] = Logical([](bool a, bool b) { return a && b; });
  table["logical_or"] = Logical([](bool a, bool b) { return a || b; });
  table["logical_xor"] = Logical([](bool a, bool b) { return a != b; });
  table["fmod"] = OfElements(
      {.real = [](DType, const Real* x) { return std::fmod(x[0], x[1]); }, .whole = Rest});
  // The op rounds the quotient to the dtype first.
  table["trunc_divide"] = OfElements({.real = [](DType dtype, const Real* x) -> Real {
                                        const double quotient =
                                            static_cast<double>(x[0]) / static_cast<double>(x[1]);
                                        return std::trunc(RoundTo(dtype, quotient));
                                      },
                                      .whole = Quotient});
  table["fmax"] =
      OfElements({.real = [](DType, const Real* x) { return std::fmax(x[0], x[1]); },
                  .whole = [](DType dtype,
                              const int64_t* x) { return x[IsLess(dtype, x[0], x[1]) ? 1 : 0]; }});
  table["fmin"] =
      OfElements({.real = [](DType, const Real* x) { return std::fmin(x[0], x[1]); },
                  .whole = [](DType dtype,
                              const int64_t* x) { return x[IsLess(dtype, x[0], x[1]) ? 0 : 1]; }});
  table["clamp"] = OfElements({.real = [](DType, const Real* x) -> Real {
                                 for (int i = 0; i < 3; ++i) {
                                   if (std::isnan(x[i])) return kNan;
                                 }
                                 return std::fmin(std::fmax(x[0], x[1]), x[2]);
                               },
                               .whole =
                                   [](DType dtype, const int64_t* x) {
                                     const int64_t raised = IsLess(dtype, x[0], x[1]) ? x[1] : x[0];
                                     return IsLess(dtype, x[2], raised) ? x[2] : raised;
                                   }});
  table["lerp"] = OfElements(
      {.real = [](DType, const Real* x) { return x[0] + x[2] * (x[1] - x[0]); },
       .scale =
           [](DType, const Real* x) {
             return std::fmax(std::fabs(x[0]), std::fabs(x[1])) + std::fabs(x[2] * (x[1] - x[0]));
           },
       .first_factor = 2});
  table["add_scaled"] = ScaledSum(
      2, [](const Real* x) { return x[1]; },
      [](const int64_t* x) { return static_cast<uint64_t>(x[1]); });
  table["addcmul"] = ScaledSum(
      3, [](const Real* x) { return x[1] * x[2]; },
      [](const int64_t* x) { return static_cast<uint64_t>(x[1]) * static_cast<uint64_t>(x[2]); });
  table["addcdiv"] = ScaledSum(
      3, [](const Real* x) { return x[1] / x[2]; }, nullptr);
  table["dropout_backward"] = DropoutBackward;
  table["sgd_step"] = SgdStep;
  table["adagrad_step"] = AdagradStep;
}

}  // namespace tensord::conformance
