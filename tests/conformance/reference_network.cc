// The reference of the gradient of softmax, and of normalization.
#include <algorithm>
#include <cmath>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// Returns the positions of the elements of each line along the attribute "axis".
std::vector<Group> LinesOf(const Attributes& attrs, const Shape& shape) {
  if (shape.num_elements() == 0) return {};
  const int rank = shape.rank();
  const int64_t axis = Get<int64_t>(attrs, "axis", -1);
  std::vector<bool> along(rank, false);
  if (rank > 0) along[axis < 0 ? axis + rank : axis] = true;
  return Groups(shape, along);
}

Values SoftmaxBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &y = inputs[1];
  const bool log = Get(attrs, "log", false);
  Values gx = Values::Of(Promote(g.spec.dtype, y.spec.dtype), g.spec.shape);
  gx.scale.resize(gx.size());
  for (const Group& line : LinesOf(attrs, g.spec.shape)) {
    long double sum = 0, magnitude = 0;
    for (const int64_t at : line) {
      const long double term = log ? g.real[at] : static_cast<long double>(g.real[at]) * y.real[at];
      sum += term;
      magnitude += std::fabs(term);
    }
    for (const int64_t at : line) {
      const long double factor = log ? std::exp(static_cast<long double>(y.real[at])) : y.real[at];
      gx.real[at] =
          static_cast<double>(log ? g.real[at] - factor * sum : factor * (g.real[at] - sum));
      // The error of exp(y) grows with y.
      const long double scale =
          log ? std::fabs(g.real[at]) + factor * magnitude * (1 + std::fabs(y.real[at]))
              : std::fabs(factor) * (std::fabs(g.real[at]) + magnitude);
      gx.scale[at] = std::isfinite(scale) ? static_cast<double>(scale) : 0;
    }
  }
  return gx;
}

// The shapes of layer_norm.
struct Normalized {
  Shape parameters, statistics;
  int64_t rows = 1, n = 1;

  Normalized(const Attributes& attrs, const Shape& x) {
    const auto first = x.rank() - Get<int64_t>(attrs, "normalized_rank", 1);
    for (int d = 0; d < x.rank(); ++d) {
      (d < first ? rows : n) *= x.dim(d);
      if (d >= first) parameters.AppendDim(x.dim(d));
      statistics.AppendDim(d < first ? x.dim(d) : 1);
    }
  }
};

std::vector<Values> LayerNorm(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const bool center = Get(attrs, "center", true);
  const double eps = Get<double>(attrs, "eps", 1e-5);
  const Normalized sizes(attrs, x.spec.shape);
  Values y = ScaledValues(x.spec.dtype, x.spec.shape);
  Values mean = ScaledValues(StatisticsOf(x.spec.dtype), sizes.statistics), rstd = mean;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const auto n = static_cast<long double>(sizes.n);
    long double sum = 0, magnitude = 0, squares = 0;
    for (int64_t i = 0; i < sizes.n; ++i) {
      sum += x.real[row * sizes.n + i];
      magnitude += std::fabs(x.real[row * sizes.n + i]);
    }
    const long double m = center ? sum / n : 0;
    for (int64_t i = 0; i < sizes.n; ++i) {
      squares += (x.real[row * sizes.n + i] - m) * (x.real[row * sizes.n + i] - m);
    }
    const long double r = 1 / std::sqrt(squares / n + eps);
    mean.real[row] = static_cast<double>(sum / n);
    mean.scale[row] = FiniteOrZero(magnitude / n);
    rstd.real[row] = static_cast<double>(r);
    rstd.scale[row] = FiniteOrZero(r);
    for (int64_t i = 0; i < sizes.n; ++i) {
      const int64_t at = row * sizes.n + i;
      const long double weight = inputs.size() > 1 ? inputs[1].real[i] : 1;
      const long double bias = inputs.size() > 2 ? inputs[2].real[i] : 0;
      y.real[at] = static_cast<double>((x.real[at] - m) * r * weight + bias);
      y.scale[at] = FiniteOrZero((std::fabs(x.real[at] - m) + (center ? magnitude / n : 0)) * r *
                                     std::fabs(weight) +
                                 std::fabs(bias));
    }
  }
  if (!center) return {y, rstd};
  return {y, mean, rstd};
}

std::vector<Values> LayerNormBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1], &rstd = inputs[2];
  const bool center = Get(attrs, "center", true);
  const size_t weight_input = center ? 4 : 3;
  const Values* weight = inputs.size() > weight_input ? &inputs[weight_input] : nullptr;
  const Normalized sizes(attrs, x.spec.shape);
  const DType parameter = weight == nullptr ? x.spec.dtype : weight->spec.dtype;
  Values gx = ScaledValues(x.spec.dtype, x.spec.shape);
  Values gw = ScaledValues(parameter, sizes.parameters), gb = gw;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const double mean = center ? inputs[3].real[row] : 0;
    const auto n = static_cast<long double>(sizes.n);
    long double sum = 0, slope = 0, magnitude = 0, slope_magnitude = 0;
    const auto normalized = [&](int64_t at) {
      return (static_cast<long double>(x.real[at]) - mean) * rstd.real[row];
    };
    const auto scaled = [&](int64_t at, int64_t i) {
      return static_cast<long double>(g.real[at]) * (weight == nullptr ? 1 : weight->real[i]);
    };
    for (int64_t i = 0, at = row * sizes.n; i < sizes.n; ++i, ++at) {
      sum += scaled(at, i);
      slope += scaled(at, i) * normalized(at);
      magnitude += std::fabs(scaled(at, i));
      slope_magnitude += std::fabs(scaled(at, i) * normalized(at));
      gw.real[i] += static_cast<double>(g.real[at] * normalized(at));
      gw.scale[i] += FiniteOrZero(std::fabs(g.real[at] * normalized(at)));
      gb.real[i] += g.real[at];
      gb.scale[i] += FiniteOrZero(std::fabs(g.real[at]));
    }
    for (int64_t i = 0, at = row * sizes.n; i < sizes.n; ++i, ++at) {
      gx.real[at] = static_cast<double>(
          rstd.real[row] * (scaled(at, i) - (center ? sum / n : 0) - normalized(at) * slope / n));
      gx.scale[at] =
          FiniteOrZero(rstd.real[row] * (std::fabs(scaled(at, i)) + (center ? magnitude / n : 0) +
                                         std::fabs(normalized(at)) * slope_magnitude / n));
    }
  }
  auto gradients = Get<std::vector<int64_t>>(attrs, "gradients", {});
  if (gradients.empty())
    gradients = center ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1};
  std::vector<Values> results;
  for (const int64_t operand : gradients) {
    results.push_back(operand == 0 ? gx : operand == 1 ? gw : gb);
  }
  return results;
}

}  // namespace

void AddNetworkReferences(ReferenceTable& table) {
  table["softmax_backward"] = SoftmaxBackward;
  table["layer_norm"] = LayerNorm;
  table["layer_norm_backward"] = LayerNormBackward;
}

}  // namespace tensord::conformance
