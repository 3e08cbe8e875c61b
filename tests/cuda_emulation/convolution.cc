#include "tensord/tests/cuda_emulation/convolution.h"

#include <tuple>

#include "tensord/tests/cuda_emulation/element.h"

namespace tensord::cuda_emulation {
namespace {

constexpr size_t kMaxSpatial = 3;

// The loops have three spatial axes. If there are fewer, the first one has the size 1.
struct Geometry {
  explicit Geometry(const Convolution& c) {
    const size_t spatial = c.strides.size();
    for (size_t a = 0; a < spatial; ++a) {
      const size_t to = kMaxSpatial - spatial + a;
      in[to] = c.x.sizes[2 + a];
      out[to] = c.y.sizes[2 + a];
      kernel[to] = c.w.sizes[2 + a];
      stride[to] = c.strides[a];
      dilation[to] = c.dilations[a];
      low[to] = c.pre_paddings[a];
    }
  }
  int64_t in[kMaxSpatial] = {1, 1, 1}, out[kMaxSpatial] = {1, 1, 1},
          kernel[kMaxSpatial] = {1, 1, 1};
  int64_t stride[kMaxSpatial] = {1, 1, 1}, dilation[kMaxSpatial] = {1, 1, 1};
  int64_t low[kMaxSpatial] = {0, 0, 0};
};

// Calls fn(place, source, tap) for each place of y and each tap whose source is inside x. The
// arguments are offsets within a channel.
template <typename Fn>
void ForTaps(const Geometry& g, Fn fn) {
  const int64_t places = g.out[0] * g.out[1] * g.out[2];
  const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  for (int64_t place = 0; place < places; ++place) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t rest_place = place, rest_tap = tap, source = 0, scale = 1;
      bool is_inside = true;
      for (int a = kMaxSpatial - 1; a >= 0; --a) {
        const int64_t at =
            rest_place % g.out[a] * g.stride[a] - g.low[a] + rest_tap % g.kernel[a] * g.dilation[a];
        rest_place /= g.out[a];
        rest_tap /= g.kernel[a];
        is_inside = is_inside && at >= 0 && at < g.in[a];
        source += at * scale;
        scale *= g.in[a];
      }
      if (is_inside) fn(place, source, tap);
    }
  }
}

// Calls fn(x, w, y) with the offsets of the factors of each product and of their result.
template <typename Fn>
void ForProducts(const Convolution& c, Fn fn) {
  const Geometry g(c);
  const int64_t group_in = c.w.sizes[1], groups = c.x.sizes[1] / group_in;
  const int64_t group_out = c.w.sizes[0] / groups;
  const int64_t in = g.in[0] * g.in[1] * g.in[2], out = g.out[0] * g.out[1] * g.out[2];
  const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  for (int64_t n = 0; n < c.x.sizes[0]; ++n) {
    for (int64_t o = 0; o < c.w.sizes[0]; ++o) {
      for (int64_t k = 0; k < group_in; ++k) {
        const int64_t channel = o / group_out * group_in + k;
        const int64_t x = (n * c.x.sizes[1] + channel) * in;
        const int64_t y = (n * c.w.sizes[0] + o) * out;
        const int64_t w = (o * group_in + k) * taps;
        ForTaps(g, [&](int64_t place, int64_t source, int64_t tap) {
          fn(x + source, w + tap, y + place);
        });
      }
    }
  }
}

template <typename T>
std::vector<T> Load(const ConvolutionTensor& tensor, const void* data,
                    ConvolutionPrecision precision) {
  std::vector<T> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    double value = Get(tensor.type, data, static_cast<int64_t>(i));
    if (precision == ConvolutionPrecision::kTf32) value = RoundToTf32(static_cast<float>(value));
    if (precision == ConvolutionPrecision::kBfloat16) value = BFloat16(static_cast<float>(value));
    values[i] = static_cast<T>(value);
  }
  return values;
}

template <typename T>
void ComputeIn(const Convolution& c, ConvolutionPrecision precision, void* x, void* w, void* y,
               const void* bias) {
  std::vector<T> sums(static_cast<size_t>(c.result().elements()));
  void* result = y;
  switch (c.direction) {
    case ConvolutionDirection::kForward: {
      const std::vector<T> a = Load<T>(c.x, x, precision), b = Load<T>(c.w, w, precision);
      ForProducts(c, [&](int64_t i, int64_t j, int64_t k) { sums[k] += a[i] * b[j]; });
      break;
    }
    case ConvolutionDirection::kBackwardData: {
      const std::vector<T> a = Load<T>(c.y, y, precision), b = Load<T>(c.w, w, precision);
      ForProducts(c, [&](int64_t i, int64_t j, int64_t k) { sums[i] += a[k] * b[j]; });
      result = x;
      break;
    }
    case ConvolutionDirection::kBackwardFilter: {
      const std::vector<T> a = Load<T>(c.y, y, precision), b = Load<T>(c.x, x, precision);
      ForProducts(c, [&](int64_t i, int64_t j, int64_t k) { sums[j] += a[k] * b[i]; });
      result = w;
      break;
    }
  }
  const auto count = static_cast<int64_t>(sums.size());
  const int64_t places = c.has_bias ? count / (c.y.sizes[0] * c.y.sizes[1]) : 1;
  for (int64_t i = 0; i < count; ++i) {
    T value = sums[static_cast<size_t>(i)] * static_cast<T>(c.alpha);
    if (c.has_bias) value += static_cast<T>(Get(c.bias_type, bias, i / places % c.y.sizes[1]));
    if (c.relu && value <= 0) value = 0;
    Put(c.result().type, result, i, value);
  }
}

}  // namespace

int64_t ConvolutionTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

const ConvolutionTensor& Convolution::result() const {
  if (direction == ConvolutionDirection::kBackwardData) return x;
  return direction == ConvolutionDirection::kBackwardFilter ? w : y;
}

bool IsConsistent(const Convolution& c) {
  const size_t spatial = c.strides.size(), rank = spatial + 2;
  if (spatial < 2 || spatial > kMaxSpatial) return false;
  if (c.x.sizes.size() != rank || c.w.sizes.size() != rank || c.y.sizes.size() != rank)
    return false;
  const auto& [x, w, y] = std::tie(c.x.sizes, c.w.sizes, c.y.sizes);
  if (x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0 || y[0] != x[0] || y[1] != w[0]) return false;
  for (size_t a = 0; a < spatial; ++a) {
    const int64_t room =
        x[2 + a] + c.pre_paddings[a] + c.post_paddings[a] - (w[2 + a] - 1) * c.dilations[a] - 1;
    if (room < 0 || y[2 + a] != room / c.strides[a] + 1) return false;
  }
  return true;
}

void Compute(const Convolution& convolution, ConvolutionPrecision precision, void* x, void* w,
             void* y, const void* bias) {
  if (convolution.in_double) {
    ComputeIn<double>(convolution, precision, x, w, y, bias);
  } else {
    ComputeIn<float>(convolution, precision, x, w, y, bias);
  }
}

}  // namespace tensord::cuda_emulation
