#include "conv_reference.h"

#include <algorithm>
#include <cmath>

#include "tensord/server/device/conv_attributes.h"
#include "tensord/tests/unit/cuda/rounding.h"

namespace tensord::server {
namespace {

// Calls fn(x, w, y) with the elements of each product of the convolution.
template <typename Fn>
void ForProducts(const ConvGeometry& g, Fn fn) {
  int64_t o[3], t[3];
  for (int64_t image = 0; image < g.batch; ++image) {
    for (int64_t out = 0; out < g.out_channels; ++out) {
      for (int64_t in = 0; in < g.group_in(); ++in) {
        const int64_t channel = out / g.group_out() * g.group_in() + in;
        for (int64_t place = 0; place < g.out_elements() * g.taps(); ++place) {
          int64_t rest = place, source = 0, scale = 1;
          for (int a = 2; a >= 0; rest /= g.kernel[a--]) t[a] = rest % g.kernel[a];
          for (int a = 2; a >= 0; rest /= g.out[a--]) o[a] = rest % g.out[a];
          bool is_inside = true;
          for (int a = 2; a >= 0; --a) {
            const int64_t at = o[a] * g.stride[a] - g.low[a] + t[a] * g.dilation[a];
            is_inside = is_inside && at >= 0 && at < g.in[a];
            source += at * scale;
            scale *= g.in[a];
          }
          if (!is_inside) continue;
          fn((image * g.in_channels + channel) * g.in_elements() + source,
             (out * g.group_in() + in) * g.taps() + place % g.taps(),
             (image * g.out_channels + out) * g.out_elements() + place / g.taps());
        }
      }
    }
  }
}

std::vector<double> Values(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.spec.num_elements(); ++i) values.push_back(tensor.At(i));
  return values;
}

}  // namespace

Attributes ConvCase::backward_attrs(const Shape& shape) const {
  Attributes attributes = attrs();
  attributes.Set("shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  return attributes;
}

ConvReference::ConvReference(const ConvCase& c, DType dtype) {
  const auto plan = PlanOp("conv", {{dtype, c.x}, {dtype, c.w}}, c.attrs());
  EXPECT_TRUE(plan.ok()) << plan.status();
  y_spec = plan->output();
  x = MakeValues(dtype, c.x, 1);
  w = MakeValues(dtype, c.w, 2);
  g = MakeValues(dtype, y_spec.shape, 3);
  bias = MakeValues(dtype, {c.w.dim(0)}, 4);
  const ConvGeometry geometry = ReadConvGeometry(plan->attrs, c.x, c.w, y_spec.shape);
  const std::vector<double> xs = Values(x), ws = Values(w), gs = Values(g);
  y.assign(gs.size(), 0);
  x_gradient.assign(xs.size(), 0);
  w_gradient.assign(ws.size(), 0);
  ForProducts(geometry, [&](int64_t i, int64_t j, int64_t k) {
    y[k] += xs[i] * ws[j];
    x_gradient[i] += gs[k] * ws[j];
    w_gradient[j] += gs[k] * xs[i];
  });
}

std::vector<double> ConvReference::WithEpilogue(const std::string& activation,
                                                bool with_bias) const {
  std::vector<double> result = y;
  const int64_t channels = y_spec.shape.dim(1);
  const int64_t places =
      y_spec.num_elements() / std::max<int64_t>(y_spec.shape.dim(0), 1) / channels;
  for (size_t i = 0; i < result.size(); ++i) {
    double& value = result[i];
    if (with_bias) value += bias.At(static_cast<int64_t>(i) / places % channels);
    if (activation == "relu") value = std::max(value, 0.0);
    if (activation == "silu") value /= 1 + std::exp(-value);
  }
  return result;
}

void ExpectNear(const HostTensor& actual, const std::vector<double>& expected, double roundings,
                double scale) {
  ASSERT_EQ(actual.spec.num_elements(), static_cast<int64_t>(expected.size()));
  const double rounding = RoundingOf(actual.spec.dtype) * roundings;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = actual.At(static_cast<int64_t>(i));
    ASSERT_LE(std::abs(value - expected[i]),
              rounding * std::max(std::abs(expected[i]), scale) * 1.01)
        << "element " << i << " of " << actual.spec.ToString() << " is " << value << ", not "
        << expected[i];
  }
}

}  // namespace tensord::server
