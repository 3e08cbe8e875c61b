// Convolution and its gradients.
#include <cmath>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using Numbers = std::vector<int64_t>;

// A convolution of x (N,C,spatial…) with w (O,C/groups,kernel…) to y (N,O,spatial…).
struct Convolution {
  Shape x, w, y;
  Numbers stride, dilation, low, high;
  int64_t groups;

  Convolution(const Attributes& attrs, Shape x_shape, Shape w_shape)
      : x(std::move(x_shape)), w(std::move(w_shape)), groups(Get<int64_t>(attrs, "groups", 1)) {
    const int axes = x.rank() - 2;
    stride = PerAxis(attrs, "stride", 1, axes);
    dilation = PerAxis(attrs, "dilation", 1, axes);
    const Numbers padding = Get<Numbers>(attrs, "padding", {});
    if (static_cast<int>(padding.size()) == 2 * axes) {
      for (int a = 0; a < axes; ++a) {
        low.push_back(padding[2 * a]);
        high.push_back(padding[2 * a + 1]);
      }
    } else {
      low = high = PerAxis(attrs, "padding", 0, axes);
    }
    y = x;
    y.set_dim(1, w.dim(0));
    for (int a = 0; a < axes; ++a) {
      const int64_t room = x.dim(2 + a) + low[a] + high[a] - dilation[a] * (w.dim(2 + a) - 1) - 1;
      y.set_dim(2 + a, room / stride[a] + 1);
    }
  }

  static Numbers PerAxis(const Attributes& attrs, const char* name, int64_t otherwise, int axes) {
    Numbers numbers = Get<Numbers>(attrs, name, {});
    if (numbers.empty()) numbers = {otherwise};
    if (numbers.size() == 1) numbers.resize(axes, numbers[0]);
    return numbers;
  }

  // Calls fn with the positions in x, w and y of the factors and of the sum of each product.
  template <typename Fn>
  void ForProducts(Fn fn) const {
    for (int64_t iy = 0; iy < y.num_elements(); ++iy) {
      const Index at = Unravel(iy, y);
      for (int64_t k = 0; k < w.num_elements() / w.dim(0); ++k) {
        const int64_t iw = at[1] * (w.num_elements() / w.dim(0)) + k;
        const Index tap = Unravel(iw, w);
        Index from = at;
        from[1] = at[1] / (w.dim(0) / groups) * w.dim(1) + tap[1];
        bool inside = true;
        for (int d = 2; d < x.rank(); ++d) {
          from[d] = at[d] * stride[d - 2] - low[d - 2] + tap[d] * dilation[d - 2];
          inside = inside && from[d] >= 0 && from[d] < x.dim(d);
        }
        if (inside) fn(Ravel(from, x), iw, iy);
      }
    }
  }
};

// Sums products of elements of two tensors.
class Sums {
 public:
  explicit Sums(const Shape& shape) : sums_(shape.num_elements()), magnitudes_(sums_.size()) {}

  void Add(int64_t i, double a, double b) {
    const long double product = static_cast<long double>(a) * b;
    sums_[i] += product;
    magnitudes_[i] += std::isfinite(product) ? std::fabs(product) : 0;
  }
  Values Result(DType dtype, const Shape& shape) const {
    Values values = Values::Of(dtype, shape);
    values.scale.resize(values.size());
    for (int64_t i = 0; i < values.size(); ++i) {
      values.real[i] = static_cast<double>(sums_[i]);
      values.scale[i] = static_cast<double>(magnitudes_[i]);
    }
    return values;
  }

 private:
  std::vector<long double> sums_, magnitudes_;
};

// Converts the inputs to the dtype to which they are promoted.
std::vector<Values> Promoted(Inputs inputs) {
  DType dtype = inputs[0].spec.dtype;
  for (const Values& input : inputs) dtype = Promote(dtype, input.spec.dtype);
  std::vector<Values> promoted;
  for (const Values& input : inputs) promoted.push_back(Cast(input, dtype));
  return promoted;
}

Values Conv(const Attributes& attrs, Inputs given) {
  const std::vector<Values> inputs = Promoted(given);
  const Values &x = inputs[0], &w = inputs[1];
  const Convolution conv(attrs, x.spec.shape, w.spec.shape);
  Sums sums(conv.y);
  conv.ForProducts(
      [&](int64_t ix, int64_t iw, int64_t iy) { sums.Add(iy, x.real[ix], w.real[iw]); });
  if (inputs.size() == 3) {
    for (int64_t i = 0; i < conv.y.num_elements(); ++i) {
      sums.Add(i, inputs[2].real[Unravel(i, conv.y)[1]], 1);
    }
  }
  Values y = sums.Result(x.spec.dtype, conv.y);
  const auto activate = ActivationReference(Get<std::string>(attrs, "activation", "none"));
  for (double& value : y.real) value = activate(value);
  return y;
}

Values ConvBackwardInput(const Attributes& attrs, Inputs given) {
  const std::vector<Values> inputs = Promoted(given);
  const Values &g = inputs[0], &w = inputs[1];
  const Shape x(absl::MakeConstSpan(Get<Numbers>(attrs, "shape", {})));
  Sums sums(x);
  Convolution(attrs, x, w.spec.shape).ForProducts([&](int64_t ix, int64_t iw, int64_t iy) {
    sums.Add(ix, g.real[iy], w.real[iw]);
  });
  return sums.Result(g.spec.dtype, x);
}

Values ConvBackwardWeight(const Attributes& attrs, Inputs given) {
  const std::vector<Values> inputs = Promoted(given);
  const Values &g = inputs[0], &x = inputs[1];
  const Shape w(absl::MakeConstSpan(Get<Numbers>(attrs, "shape", {})));
  Sums sums(w);
  Convolution(attrs, x.spec.shape, w).ForProducts([&](int64_t ix, int64_t iw, int64_t iy) {
    sums.Add(iw, g.real[iy], x.real[ix]);
  });
  return sums.Result(g.spec.dtype, w);
}

}  // namespace

void AddConvReferences(ReferenceTable& table) {
  table["conv"] = Conv;
  table["conv_backward_input"] = ConvBackwardInput;
  table["conv_backward_weight"] = ConvBackwardWeight;
}

}  // namespace tensord::conformance
