#include <algorithm>
#include <cmath>
#include <limits>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {

std::vector<bool> ReducedAxes(const Attributes& attrs, int rank) {
  const auto axes = Get<std::vector<int64_t>>(attrs, "axes", {});
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    if (rank > 0) reduced[axis < 0 ? axis + rank : axis] = true;
  }
  return reduced;
}

Shape ReducedShape(const Shape& shape, const std::vector<bool>& reduced, bool keepdims) {
  Shape out;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!reduced[axis]) out.AppendDim(shape.dim(axis));
    if (reduced[axis] && keepdims) out.AppendDim(1);
  }
  return out;
}

std::vector<Group> Groups(const Shape& shape, const std::vector<bool>& reduced) {
  const Shape kept = ReducedShape(shape, reduced, true);
  std::vector<Group> groups(kept.num_elements());
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    Index index = Unravel(i, shape);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (reduced[axis]) index[axis] = 0;
    }
    groups[Ravel(index, kept)].push_back(i);
  }
  return groups;
}

namespace {

// Sets element `i` of `out` from the elements of `x` in the group.
using Reducer = std::function<void(const Values& x, const Group&, Values& out, int64_t i)>;

ReferenceFunction Reduction(std::function<DType(DType)> result, Reducer reduce) {
  return [=](const Attributes& attrs, Inputs inputs) {
    const Values& x = inputs[0];
    const std::vector<bool> reduced = ReducedAxes(attrs, x.spec.shape.rank());
    Values out = Values::Of(result(x.spec.dtype),
                            ReducedShape(x.spec.shape, reduced, Get(attrs, "keepdims", false)));
    if (out.floating()) out.scale.resize(out.size());
    const auto groups = Groups(x.spec.shape, reduced);
    for (int64_t i = 0; i < out.size(); ++i) reduce(x, groups[i], out, i);
    return out;
  };
}

void Sum(const Values& x, const Group& group, Values& out, int64_t i) {
  if (!x.floating()) {
    uint64_t sum = 0;
    for (int64_t at : group) sum += static_cast<uint64_t>(x.whole[at]);
    out.whole[i] = static_cast<int64_t>(sum);
    return;
  }
  long double sum = 0, magnitude = 0;
  for (int64_t at : group) {
    sum += x.real[at];
    magnitude += std::fabs(x.real[at]);
  }
  out.real[i] = static_cast<double>(sum);
  out.scale[i] = static_cast<double>(magnitude);
}

// Returns what PyTorch calls an accumulation: the input is cast to the attribute "dtype" first.
// Then `reduce` sets an int64 or a floating element. Integers wrap to the result's dtype.
ReferenceFunction Accumulation(Reducer reduce) {
  return [=](const Attributes& attrs, Inputs inputs) {
    const DType dtype = Get(attrs, "dtype", DType::kUnspecified);
    if (dtype == DType::kUnspecified) {
      return Reduction([](DType in) { return IsFloating(in) ? in : DType::kInt64; }, reduce)(
          attrs, inputs);
    }
    const Values cast = Cast(inputs[0], dtype);
    const DType computed = IsFloating(dtype) ? dtype : DType::kInt64;
    const Values wide = Reduction([=](DType) { return computed; }, reduce)(attrs, {cast});
    if (IsFloating(dtype)) return wide;
    return Cast(wide, dtype);
  };
}

void Prod(const Values& x, const Group& group, Values& out, int64_t i) {
  if (!x.floating()) {
    uint64_t product = 1;
    for (int64_t at : group) product *= static_cast<uint64_t>(x.whole[at]);
    out.whole[i] = static_cast<int64_t>(product);
    return;
  }
  long double product = 1;
  for (int64_t at : group) product *= x.real[at];
  out.real[i] = static_cast<double>(product);
  out.scale[i] = std::isfinite(out.real[i]) ? std::fabs(out.real[i]) : 0;
}

void CountNonzero(const Values& x, const Group& group, Values& out, int64_t i) {
  for (int64_t at : group) out.whole[i] += x.floating() ? x.real[at] != 0 : x.whole[at] != 0;
}

void Mean(const Values& x, const Group& group, Values& out, int64_t i) {
  long double sum = 0, magnitude = 0;
  for (int64_t at : group) {
    sum += x.real[at];
    magnitude += std::fabs(x.real[at]);
  }
  // If the sum overflows the dtype in which it is computed, the mean is infinite, too.
  const DType compute = out.spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const double total = RoundTo(compute, static_cast<double>(sum));
  out.real[i] = group.empty()          ? kNan
                : std::isfinite(total) ? static_cast<double>(sum / group.size())
                                       : total;
  out.scale[i] = group.empty() ? 0 : static_cast<double>(magnitude / group.size());
}

// Returns the position, in the group, of its first largest or smallest element. A NaN counts as
// larger and smaller than all numbers.
int64_t Best(const Values& x, const Group& group, bool largest) {
  size_t best = 0;
  for (size_t k = 1; k < group.size(); ++k) {
    const int64_t candidate = group[k];
    const int64_t held = group[best];
    if (!x.floating()) {
      const bool greater =
          x.spec.dtype == DType::kUInt64
              ? static_cast<uint64_t>(x.whole[candidate]) > static_cast<uint64_t>(x.whole[held])
              : x.whole[candidate] > x.whole[held];
      if (x.whole[candidate] != x.whole[held] && greater == largest) best = k;
      continue;
    }
    if (std::isnan(x.real[held])) break;
    if (std::isnan(x.real[candidate]) ||
        (largest ? x.real[candidate] > x.real[held] : x.real[candidate] < x.real[held])) {
      best = k;
    }
  }
  return static_cast<int64_t>(best);
}

Reducer Extreme(bool largest) {
  return [=](const Values& x, const Group& group, Values& out, int64_t i) {
    const int64_t at = group[Best(x, group, largest)];
    if (x.floating()) {
      out.real[i] = x.real[at];
    } else {
      out.whole[i] = x.whole[at];
    }
  };
}

Reducer ExtremePosition(bool largest) {
  return [=](const Values& x, const Group& group, Values& out, int64_t i) {
    out.whole[i] = Best(x, group, largest);
  };
}

// Returns the norm as torch.linalg.vector_norm defines it.
double VectorNorm(const Values& x, const Group& group, double ord) {
  long double sum = 0;
  double extreme = ord > 0 ? 0 : kInfinity;
  for (int64_t at : group) {
    const double magnitude = std::fabs(x.real[at]);
    if (std::isnan(magnitude) && ord != 0) return kNan;  // order 0 counts NaN as nonzero
    extreme = ord > 0 ? std::max(extreme, magnitude) : std::min(extreme, magnitude);
    if (ord == 0) {
      sum += magnitude != 0;
    } else if (!std::isinf(ord)) {
      sum += std::pow(static_cast<long double>(magnitude), static_cast<long double>(ord));
    }
  }
  if (group.empty()) return 0;
  if (std::isinf(ord)) return extreme;
  if (ord == 0) return static_cast<double>(sum);
  return static_cast<double>(std::pow(sum, 1 / static_cast<long double>(ord)));
}

Values Norm(const Attributes& attrs, Inputs inputs) {
  const double ord = Get<double>(attrs, "ord", 2.0);
  const auto same = [](DType dtype) { return dtype; };
  Values out = Reduction(same, [ord](const Values& x, const Group& group, Values& y, int64_t i) {
    y.real[i] = VectorNorm(x, group, ord);
  })(attrs, inputs);
  out.scale.clear();
  return out;
}

ReferenceFunction Softmax(bool logarithm) {
  return [=](const Attributes& attrs, Inputs inputs) {
    const Values& x = inputs[0];
    Values out = Values::Of(x.spec.dtype, x.spec.shape);
    out.scale.resize(out.size());
    const int rank = x.spec.shape.rank();
    const int64_t axis = Get<int64_t>(attrs, "axis", -1);
    std::vector<bool> reduced(rank, false);
    if (rank > 0) reduced[axis < 0 ? axis + rank : axis] = true;
    if (out.size() == 0) return out;
    for (const Group& group : Groups(x.spec.shape, reduced)) {
      double largest = -kInfinity;
      for (int64_t at : group)
        largest = std::isnan(x.real[at]) ? kNan : std::max(x.real[at], largest);
      long double sum = 0;
      for (int64_t at : group) sum += std::exp(static_cast<long double>(x.real[at] - largest));
      for (int64_t at : group) {
        const double above = x.real[at] - largest;
        out.real[at] = static_cast<double>(
            logarithm ? above - std::log(sum) : std::exp(static_cast<long double>(above)) / sum);
        // The error of exp(x - max) grows with that of x - max. Log-softmax has the errors of both
        // terms; the logarithm of a sum near 1 has an absolute error of about one epsilon.
        out.scale[at] = logarithm ? 1 + std::fabs(above) + static_cast<double>(std::log(sum))
                                  : out.real[at] * (1 + std::fabs(above));
        if (!std::isfinite(out.scale[at])) out.scale[at] = 0;
      }
    }
    return out;
  };
}

bool IsTrue(const Values& x, int64_t at) {
  return x.floating() ? x.real[at] != 0 : x.whole[at] != 0;
}
void All(const Values& x, const Group& group, Values& out, int64_t i) {
  out.whole[i] = std::all_of(group.begin(), group.end(), [&](int64_t at) { return IsTrue(x, at); });
}
void Any(const Values& x, const Group& group, Values& out, int64_t i) {
  out.whole[i] = std::any_of(group.begin(), group.end(), [&](int64_t at) { return IsTrue(x, at); });
}

void LogSumExp(const Values& x, const Group& group, Values& out, int64_t i) {
  const auto element = [&](int64_t at) {
    return x.floating() ? static_cast<Real>(x.real[at]) : static_cast<Real>(x.whole[at]);
  };
  Real max = -kInfinity, sum = 0;
  for (int64_t at : group) max = std::isnan(element(at)) ? element(at) : std::max(max, element(at));
  const Real origin = std::isfinite(max) ? max : 0;
  for (int64_t at : group) sum += std::exp(element(at) - origin);
  out.real[i] = static_cast<double>(std::log(sum) + origin);
  out.scale[i] = FiniteOrZero(1 + std::abs(origin) + std::abs(std::log(sum)));
}

}  // namespace

void AddReductionReferences(ReferenceTable& table) {
  const auto same = [](DType dtype) { return dtype; };
  const auto int64 = [](DType) { return DType::kInt64; };
  table["sum"] = Accumulation(Sum);
  table["prod"] = Accumulation(Prod);
  table["count_nonzero"] = Reduction(int64, CountNonzero);
  const auto truth = [](DType) { return DType::kBool; };
  table["all"] = Reduction(truth, All);
  table["any"] = Reduction(truth, Any);
  table["mean"] = Reduction(same, Mean);
  table["max"] = Reduction(same, Extreme(true));
  table["min"] = Reduction(same, Extreme(false));
  table["argmax"] = Reduction(int64, ExtremePosition(true));
  table["argmin"] = Reduction(int64, ExtremePosition(false));
  table["logsumexp"] =
      Reduction([](DType in) { return IsFloating(in) ? in : DType::kFloat32; }, LogSumExp);
  table["norm"] = Norm;
  table["softmax"] = Softmax(false);
  table["log_softmax"] = Softmax(true);
}

}  // namespace tensord::conformance
