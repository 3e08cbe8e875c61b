#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using RealUnary = double (*)(double);
using RealBinary = double (*)(double, double);
using WholeBinary = int64_t (*)(int64_t, int64_t);
using Relation = bool (*)(double, double);
using WholeRelation = bool (*)(int64_t, int64_t);

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = WrappingMul(result, base);
    base = WrappingMul(base, base);
  }
  return result;
}

double LargerOrNan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(a, b);
}
double SmallerOrNan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::min(a, b);
}

double GeluByErf(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }
double GeluByTanh(double x) {
  const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

// Same dtype out; any numeric dtype.
ReferenceFunction Same(RealUnary real, int64_t (*whole)(int64_t)) {
  return [=](const Attributes&, Inputs inputs) {
    Values out = Values::Of(inputs[0].spec.dtype, inputs[0].spec.shape);
    for (int64_t i = 0; i < out.size(); ++i) {
      if (out.floating()) {
        out.real[i] = real(inputs[0].real[i]);
      } else {
        out.whole[i] = WrapTo(out.spec.dtype, whole(inputs[0].whole[i]));
      }
    }
    return out;
  };
}

// Floating out: integers and bool are read as float32. `by_argument`: errors are measured against
// the argument too, since the function cancels.
ReferenceFunction Floating(RealUnary function, bool by_argument = false) {
  return [=](const Attributes&, Inputs inputs) {
    const Values x = inputs[0].floating() ? inputs[0] : Cast(inputs[0], DType::kFloat32);
    Values out = Values::Of(x.spec.dtype, x.spec.shape);
    for (int64_t i = 0; i < out.size(); ++i) out.real[i] = function(x.real[i]);
    if (by_argument) out.scale = x.real;
    return out;
  };
}

// Calls element(i, ia, ib): the positions in the result and in both operands.
template <typename Element>
void ForEachPair(const Shape& shape, const Shape& a, const Shape& b, Element element) {
  const int64_t n = shape.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const Index index = Unravel(i, shape);
    element(i, RavelBroadcast(index, a), RavelBroadcast(index, b));
  }
}

ReferenceFunction Binary(RealBinary real, WholeBinary whole, WholeBinary of_bools) {
  return [=](const Attributes&, Inputs inputs) {
    const DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
    const Values a = Cast(inputs[0], dtype);
    const Values b = Cast(inputs[1], dtype);
    Values out = Values::Of(dtype, Broadcast(a.spec.shape, b.spec.shape));
    ForEachPair(out.spec.shape, a.spec.shape, b.spec.shape, [&](int64_t i, int64_t ia, int64_t ib) {
      if (IsFloating(dtype)) {
        out.real[i] = real(a.real[ia], b.real[ib]);
      } else if (IsBool(dtype)) {
        out.whole[i] = of_bools(a.whole[ia], b.whole[ib]);
      } else {
        out.whole[i] = WrapTo(dtype, whole(a.whole[ia], b.whole[ib]));
      }
    });
    return out;
  };
}

Values Divide(const Attributes&, Inputs inputs) {
  DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
  if (!IsFloating(dtype)) dtype = DType::kFloat32;
  const Values a = Cast(inputs[0], dtype);
  const Values b = Cast(inputs[1], dtype);
  Values out = Values::Of(dtype, Broadcast(a.spec.shape, b.spec.shape));
  ForEachPair(out.spec.shape, a.spec.shape, b.spec.shape,
              [&](int64_t i, int64_t ia, int64_t ib) { out.real[i] = a.real[ia] / b.real[ib]; });
  return out;
}

ReferenceFunction Compare(Relation real, WholeRelation whole) {
  return [=](const Attributes&, Inputs inputs) {
    const DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
    const Values a = Cast(inputs[0], dtype);
    const Values b = Cast(inputs[1], dtype);
    Values out = Values::Of(DType::kBool, Broadcast(a.spec.shape, b.spec.shape));
    ForEachPair(out.spec.shape, a.spec.shape, b.spec.shape, [&](int64_t i, int64_t ia, int64_t ib) {
      out.whole[i] =
          IsFloating(dtype) ? real(a.real[ia], b.real[ib]) : whole(a.whole[ia], b.whole[ib]);
    });
    return out;
  };
}

Values Where(const Attributes&, Inputs inputs) {
  const Values& condition = inputs[0];
  const DType dtype = Promote(inputs[1].spec.dtype, inputs[2].spec.dtype);
  const Values x = Cast(inputs[1], dtype);
  const Values y = Cast(inputs[2], dtype);
  Values out =
      Values::Of(dtype, Broadcast(condition.spec.shape, Broadcast(x.spec.shape, y.spec.shape)));
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index index = Unravel(i, out.spec.shape);
    const bool first = condition.whole[RavelBroadcast(index, condition.spec.shape)] != 0;
    const Values& chosen = first ? x : y;
    const int64_t from = RavelBroadcast(index, chosen.spec.shape);
    if (out.floating()) {
      out.real[i] = chosen.real[from];
    } else {
      out.whole[i] = chosen.whole[from];
    }
  }
  return out;
}

void AddUnary(ReferenceTable& table) {
  table["neg"] = Same([](double x) { return -x; }, [](int64_t x) { return WrappingSub(0, x); });
  table["abs"] = Same([](double x) { return std::fabs(x); },
                      [](int64_t x) { return x < 0 ? WrappingSub(0, x) : x; });
  table["relu"] = Same([](double x) { return x < 0 ? 0.0 : x; },
                       [](int64_t x) { return std::max<int64_t>(x, 0); });
  table["exp"] = Floating([](double x) { return std::exp(x); });
  table["log"] = Floating([](double x) { return std::log(x); });
  table["sqrt"] = Floating([](double x) { return std::sqrt(x); });
  table["rsqrt"] = Floating([](double x) { return 1 / std::sqrt(x); });
  table["tanh"] = Floating([](double x) { return std::tanh(x); });
  table["sigmoid"] = Floating([](double x) { return 1 / (1 + std::exp(-x)); });
  table["silu"] = Floating([](double x) { return x / (1 + std::exp(-x)); });
  table["gelu"] = [](const Attributes& attrs, Inputs inputs) {
    const bool by_tanh = Get<std::string>(attrs, "approximate", "none") == "tanh";
    return Floating(by_tanh ? GeluByTanh : GeluByErf, true)(attrs, inputs);
  };
  table["cast"] = [](const Attributes& attrs, Inputs inputs) {
    return Cast(inputs[0], attrs.Type("dtype"));
  };
}

}  // namespace

void AddElementwiseReferences(ReferenceTable& table) {
  AddUnary(table);
  const WholeBinary larger = [](int64_t a, int64_t b) { return std::max(a, b); };
  const WholeBinary smaller = [](int64_t a, int64_t b) { return std::min(a, b); };
  table["add"] = Binary([](double a, double b) { return a + b; }, WrappingAdd, larger);
  table["sub"] = Binary([](double a, double b) { return a - b; }, WrappingSub, nullptr);
  table["mul"] = Binary([](double a, double b) { return a * b; }, WrappingMul, smaller);
  table["pow"] = Binary([](double a, double b) { return std::pow(a, b); }, IntegerPower, nullptr);
  table["maximum"] = Binary(LargerOrNan, larger, larger);
  table["minimum"] = Binary(SmallerOrNan, smaller, smaller);
  table["div"] = Divide;
  table["eq"] = Compare([](double a, double b) { return a == b; },
                        [](int64_t a, int64_t b) { return a == b; });
  table["ne"] = Compare([](double a, double b) { return a != b; },
                        [](int64_t a, int64_t b) { return a != b; });
  table["lt"] =
      Compare([](double a, double b) { return a < b; }, [](int64_t a, int64_t b) { return a < b; });
  table["le"] = Compare([](double a, double b) { return a <= b; },
                        [](int64_t a, int64_t b) { return a <= b; });
  table["gt"] =
      Compare([](double a, double b) { return a > b; }, [](int64_t a, int64_t b) { return a > b; });
  table["ge"] = Compare([](double a, double b) { return a >= b; },
                        [](int64_t a, int64_t b) { return a >= b; });
  table["where"] = Where;
}

}  // namespace tensord::conformance
