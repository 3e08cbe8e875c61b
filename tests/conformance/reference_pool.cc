// Pooling and its gradients.
#include <algorithm>
#include <cmath>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using Numbers = std::vector<int64_t>;

// The windows of the last axes of a tensor.
struct Windows {
  Numbers kernel, stride, padding, dilation;
  bool ceil;
  bool count_padding;
  int64_t divisor;

  explicit Windows(const Attributes& attrs)
      : kernel(Get<Numbers>(attrs, "kernel", {})),
        ceil(Get(attrs, "ceil_mode", false)),
        count_padding(Get(attrs, "count_include_pad", true)),
        divisor(Get<int64_t>(attrs, "divisor", 0)) {
    stride = PerAxis(attrs, "stride", kernel);
    padding = PerAxis(attrs, "padding", Numbers(kernel.size(), 0));
    dilation = PerAxis(attrs, "dilation", Numbers(kernel.size(), 1));
  }

  Numbers PerAxis(const Attributes& attrs, const char* name, const Numbers& otherwise) const {
    Numbers numbers = Get<Numbers>(attrs, name, {});
    if (numbers.empty()) return otherwise;
    if (numbers.size() == 1) numbers.resize(kernel.size(), numbers[0]);
    return numbers;
  }

  int first_axis(const Shape& shape) const {
    return shape.rank() - static_cast<int>(kernel.size());
  }

  Shape Pooled(const Shape& x) const {
    Shape pooled = x;
    for (size_t a = 0; a < kernel.size(); ++a) {
      const int axis = first_axis(x) + static_cast<int>(a);
      const double room =
          static_cast<double>(x.dim(axis) + 2 * padding[a] - 1 - dilation[a] * (kernel[a] - 1)) /
          static_cast<double>(stride[a]);
      auto count = static_cast<int64_t>(ceil ? std::ceil(room) : std::floor(room)) + 1;
      if (ceil && (count - 1) * stride[a] >= x.dim(axis) + padding[a]) --count;
      pooled.set_dim(axis, count);
    }
    return pooled;
  }

  // Returns the positions in x of the elements of the window `index` of the result, in row-major
  // order. Sets `divided_by` to the number by which a sum over them is divided.
  Group Elements(const Shape& x, const Index& index, double* divided_by = nullptr) const {
    const int first = first_axis(x);
    int64_t taps = 1;
    for (const int64_t k : kernel) taps *= k;
    Group elements;
    double places = 1;
    for (size_t a = 0; a < kernel.size(); ++a) {
      const int64_t start = index[first + a] * stride[a] - padding[a];
      const int64_t end = x.dim(first + static_cast<int>(a)) + padding[a];
      places *= static_cast<double>(std::min(kernel[a], end - start));
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      Index at = index;
      int64_t left = tap;
      bool inside = true;
      for (int a = static_cast<int>(kernel.size()) - 1; a >= 0; --a) {
        at[first + a] = index[first + a] * stride[a] - padding[a] + left % kernel[a] * dilation[a];
        left /= kernel[a];
        inside = inside && at[first + a] >= 0 && at[first + a] < x.dim(first + a);
      }
      if (inside) elements.push_back(Ravel(at, x));
    }
    if (divided_by != nullptr) {
      *divided_by = divisor != 0    ? static_cast<double>(divisor)
                    : count_padding ? places
                                    : static_cast<double>(elements.size());
    }
    return elements;
  }

  // Returns the number of elements of a plane.
  int64_t PlaneElements(const Shape& shape) const {
    int64_t elements = 1;
    for (int d = first_axis(shape); d < shape.rank(); ++d) elements *= shape.dim(d);
    return elements;
  }
};

std::vector<Values> MaxPool(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Windows windows(attrs);
  Values y = Values::Of(x.spec.dtype, windows.Pooled(x.spec.shape));
  Values indices = Values::Of(DType::kInt64, y.spec.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const Group elements = windows.Elements(x.spec.shape, Unravel(i, y.spec.shape));
    int64_t best = -1;
    for (const int64_t at : elements) {
      const bool held_nan = best >= 0 && std::isnan(x.real[best]);
      if (best < 0 || (!held_nan && (std::isnan(x.real[at]) || x.real[at] > x.real[best]))) {
        best = at;
      }
    }
    y.real[i] = best < 0 ? -INFINITY : x.real[best];
    indices.whole[i] = best < 0 ? -1 : best % windows.PlaneElements(x.spec.shape);
  }
  return {y, indices};
}

// Returns the shape of x. `pooled` is the shape of the gradient, which has an element for each
// window.
Shape ShapeOfX(const Attributes& attrs, const Shape& pooled) {
  const auto size = Get<Numbers>(attrs, "size", {});
  Shape x = pooled;
  for (size_t a = 0; a < size.size(); ++a) {
    x.set_dim(x.rank() - static_cast<int>(size.size() - a), size[a]);
  }
  return x;
}

Values MaxPoolBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &indices = inputs[1];
  const Windows windows(attrs);
  Values gx = Values::Of(g.spec.dtype, ShapeOfX(attrs, g.spec.shape));
  gx.scale.resize(gx.size());
  const int64_t from = windows.PlaneElements(g.spec.shape);
  const int64_t to = windows.PlaneElements(gx.spec.shape);
  for (int64_t i = 0; i < g.size(); ++i) {
    if (indices.whole[i] < 0) continue;
    const int64_t at = i / from * to + indices.whole[i];
    gx.real[at] += g.real[i];
    gx.scale[at] += std::isfinite(g.real[i]) ? std::fabs(g.real[i]) : 0;
  }
  return gx;
}

Values AvgPool(const Attributes& attrs, Inputs inputs) {
  const Values& x = inputs[0];
  const Windows windows(attrs);
  Values y = Values::Of(x.spec.dtype, windows.Pooled(x.spec.shape));
  y.scale.resize(y.size());
  for (int64_t i = 0; i < y.size(); ++i) {
    double divisor = 1;
    long double sum = 0, magnitude = 0;
    for (const int64_t at : windows.Elements(x.spec.shape, Unravel(i, y.spec.shape), &divisor)) {
      sum += x.real[at];
      magnitude += std::isfinite(x.real[at]) ? std::fabs(x.real[at]) : 0;
    }
    y.real[i] = static_cast<double>(sum / divisor);
    y.scale[i] = static_cast<double>(magnitude / std::fabs(divisor));
  }
  return y;
}

Values AvgPoolBackward(const Attributes& attrs, Inputs inputs) {
  const Values& g = inputs[0];
  const Windows windows(attrs);
  Values gx = Values::Of(g.spec.dtype, ShapeOfX(attrs, g.spec.shape));
  gx.scale.resize(gx.size());
  for (int64_t i = 0; i < g.size(); ++i) {
    double divisor = 1;
    for (const int64_t at : windows.Elements(gx.spec.shape, Unravel(i, g.spec.shape), &divisor)) {
      gx.real[at] += g.real[i] / divisor;
      gx.scale[at] += std::isfinite(g.real[i]) ? std::fabs(g.real[i] / divisor) : 0;
    }
  }
  return gx;
}

}  // namespace

void AddPoolReferences(ReferenceTable& table) {
  table["max_pool"] = MaxPool;
  table["max_pool_backward"] = MaxPoolBackward;
  table["avg_pool"] = AvgPool;
  table["avg_pool_backward"] = AvgPoolBackward;
}

}  // namespace tensord::conformance
