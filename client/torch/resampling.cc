// Interpolation, padding with elements of the tensor, and their gradients.
#include "resampling.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace torch_tensord {
namespace {

at::Tensor HostTensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kCPU));
}

// Returns the sizes of a tensor of the map's terms: (terms, elements). If each element has one
// term, returns (elements).
c10::DimVector PlaceSizes(const LinearMap& map) {
  return map.terms == 1 ? c10::DimVector{map.out} : c10::DimVector{map.terms, map.out};
}
template <typename Number, typename Function>
std::vector<Number> ByTerm(const LinearMap& map, Function function) {
  std::vector<Number> made;
  for (int64_t t = 0; t < map.terms; ++t) {
    for (int64_t i = 0; i < map.out; ++i)
      made.push_back(function(static_cast<size_t>(i * map.terms + t)));
  }
  return made;
}
Value PlacesOf(const LinearMap& map, c10::DeviceIndex device) {
  const auto place = [&](size_t i) { return std::max<int64_t>(map.index[i], 0); };
  return UploadIntegers(ByTerm<int64_t>(map, place), PlaceSizes(map), device);
}
// Multiplies `x` by the weights of the terms, which start at the axis `axis`. Its axes broadcast to
// theirs. If `donated` is true, may overwrite `x`. A term with the index -1 is 0, also if `x` has
// NaN or infinity there.
Value Weigh(const LinearMap& map, Value x, int64_t axis, bool donated, c10::DeviceIndex device) {
  c10::DimVector sizes = PlaceSizes(map);
  sizes.resize(x->dim() - axis, 1);
  if (!map.weight.empty()) {
    const auto weight = [&](size_t i) { return map.weight[i]; };
    const Value weights = UploadNumbers(ByTerm<double>(map, weight), sizes, x->dtype(), device);
    x = Push(server_op<"mul">, {x, weights}, donated ? 1 : 0);
  }
  if (std::ranges::all_of(map.index, [](int64_t i) { return i >= 0; })) return x;
  const auto present = [&](size_t i) { return map.index[i] >= 0 ? 1.0 : 0.0; };
  return Where(UploadNumbers(ByTerm<double>(map, present), sizes, at::kBool, device), x,
               Number(0, x));
}

// Returns the greatest number of terms that read the same element.
int64_t MaxUses(const LinearMap& map) {
  std::vector<int64_t> uses(map.in, 0);
  for (const int64_t i : map.index) {
    if (i >= 0) ++uses[i];
  }
  return std::ranges::max(uses);
}
// Returns the map from the gradient of the result to that of the input. `terms` is at least
// MaxUses(map).
LinearMap Transposed(const LinearMap& map, int64_t terms) {
  LinearMap made = {.in = map.out, .out = map.in, .terms = terms};
  made.index.resize(made.out * made.terms, -1);
  if (!map.weight.empty()) made.weight.resize(made.index.size(), 0);
  std::vector<int64_t> counts(map.in, 0);
  for (size_t i = 0; i < map.index.size(); ++i) {
    const int64_t from = map.index[i];
    if (from < 0) continue;
    const int64_t place = from * made.terms + counts[from]++;
    made.index[place] = static_cast<int64_t>(i) / map.terms;
    if (!map.weight.empty()) made.weight[place] = map.weight[i];
  }
  return made;
}

}  // namespace

bool LinearMap::IsIdentity() const {
  if (in != out || (terms > 1 && weight.empty())) return false;
  for (int64_t i = 0; i < out; ++i) {
    if (index[i * terms] != i) return false;
    if (!weight.empty() && weight[i * terms] != 1) return false;
  }
  return true;
}

Value UploadIntegers(const std::vector<int64_t>& numbers, at::IntArrayRef sizes,
                     c10::DeviceIndex device) {
  const at::Tensor host = HostTensor(sizes, at::kLong);
  std::memcpy(host.mutable_data_ptr(), numbers.data(), host.nbytes());
  return Read(UploadTensor(host, device));
}
Value UploadNumbers(const std::vector<double>& numbers, at::IntArrayRef sizes, at::ScalarType dtype,
                    c10::DeviceIndex device) {
  const at::Tensor host = HostTensor(sizes, at::kDouble);
  std::memcpy(host.mutable_data_ptr(), numbers.data(), host.nbytes());
  return Read(UploadTensor(host.to(dtype), device));
}

Value Apply(const LinearMap& map, const Value& x, int64_t axis, c10::DeviceIndex device) {
  if (map.IsIdentity()) return x;
  const Value terms =
      Weigh(map, Push("index", {x, PlacesOf(map, device)}, {{"axis", axis}}), axis, true, device);
  return map.terms == 1 ? terms : Reduce("sum", terms, {axis}, false);
}
Value ApplyTransposed(const LinearMap& map, const Value& g, int64_t axis, c10::DeviceIndex device) {
  if (map.IsIdentity()) return g;
  // In the transposed map, each element has as many terms as the element with the most terms. If
  // this takes too much memory, index_put adds the terms instead.
  constexpr int64_t kMaxGrowth = 4;
  const int64_t terms = std::max<int64_t>(MaxUses(map), 1);
  if (map.in * terms <= kMaxGrowth * map.out * map.terms)
    return Apply(Transposed(map, terms), g, axis, device);
  c10::DimVector sizes(g->sizes()), wide = sizes;
  sizes[axis] = map.in;
  if (map.terms > 1) wide.insert(wide.begin() + axis, 1);
  return Push("index_put",
              {Zeros(device, sizes, g->dtype()), PlacesOf(map, device),
               Weigh(map, Reshape(g, wide), axis, false, device)},
              {{"axis", axis}, {"reduce", "add"}}, 1);
}

Value ApplyAll(c10::ArrayRef<LinearMap> maps, const at::Tensor& self) {
  Value x = Read(self);
  const at::ScalarType dtype = x->dtype();
  for (const LinearMap& map : maps) {
    if (!map.weight.empty()) x = Cast(x, ComputeDType(dtype));
  }
  // Starts with the last axis, whose elements are neighbors in memory.
  for (size_t i = maps.size(); i-- > 0;) {
    const int64_t axis = x->dim() - static_cast<int64_t>(maps.size() - i);
    x = Apply(maps[i], x, axis, DeviceOf(self));
  }
  return Cast(x, dtype);
}
Value ApplyAllTransposed(c10::ArrayRef<LinearMap> maps, const at::Tensor& gradient) {
  // Sums of 16-bit numbers are rounded once.
  Value g = Cast(Read(gradient), ComputeDType(gradient.scalar_type()));
  for (size_t i = 0; i < maps.size(); ++i) {
    const int64_t axis = g->dim() - static_cast<int64_t>(maps.size() - i);
    g = ApplyTransposed(maps[i], g, axis, DeviceOf(gradient));
  }
  return Cast(g, gradient.scalar_type());
}

LinearMap AdaptiveAverage(int64_t in, int64_t out) {
  LinearMap map = {.in = in, .out = out};
  const auto start = [&](int64_t i) { return i * in / out; };
  const auto end = [&](int64_t i) { return ((i + 1) * in + out - 1) / out; };
  for (int64_t i = 0; i < out; ++i) map.terms = std::max(map.terms, end(i) - start(i));
  map.index.resize(out * map.terms, -1);
  map.weight.resize(out * map.terms);
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t t = 0; t < end(i) - start(i); ++t) {
      map.index[i * map.terms + t] = start(i) + t;
      map.weight[i * map.terms + t] = 1.0 / static_cast<double>(end(i) - start(i));
    }
  }
  return map;
}

namespace {

// ---- interpolation

enum class Filter { kNearest, kNearestExact, kLinear, kCubic, kSmoothLinear, kSmoothCubic };
using Scale = std::optional<double>;

// Returns the distance of neighbors of the result, in elements of the input. Real is the type in
// which PyTorch computes positions.
template <typename Real>
Real StepOf(int64_t in, int64_t out, bool align_corners, Scale scale) {
  if (align_corners)
    return out > 1 ? static_cast<Real>(in - 1) / static_cast<Real>(out - 1) : Real(0);
  if (scale.has_value() && *scale > 0) return static_cast<Real>(1.0 / *scale);
  return static_cast<Real>(in) / static_cast<Real>(out);
}

template <typename Real>
LinearMap NearestMap(int64_t in, int64_t out, Scale scale, bool exact) {
  LinearMap map = {.in = in, .out = out};
  const Real step = StepOf<Real>(in, out, false, scale);
  for (int64_t i = 0; i < out; ++i) {
    const Real position = (static_cast<Real>(i) + (exact ? Real(0.5) : Real(0))) * step;
    map.index.push_back(std::min(static_cast<int64_t>(std::floor(position)), in - 1));
  }
  return map;
}

template <typename Real>
Real Cubic(Real x, Real a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

template <typename Real>
LinearMap PointMap(int64_t in, int64_t out, bool align_corners, Scale scale, bool cubic) {
  LinearMap map = {.in = in, .out = out, .terms = cubic ? 4 : 2};
  const Real step = StepOf<Real>(in, out, align_corners, scale);
  for (int64_t i = 0; i < out; ++i) {
    Real position = align_corners ? step * static_cast<Real>(i)
                                  : step * (static_cast<Real>(i) + Real(0.5)) - Real(0.5);
    if (!cubic) position = in == out ? static_cast<Real>(i) : std::max(position, Real(0));
    int64_t first = static_cast<int64_t>(std::floor(position));
    first = std::min(first, in - 1);
    const Real rest = std::min(std::max(position - static_cast<Real>(first), Real(0)), Real(1));
    for (int64_t t = 0; t < map.terms; ++t) {
      const int64_t place = cubic ? first - 1 + t : first + t;
      map.index.push_back(std::min(std::max<int64_t>(place, 0), in - 1));
      map.weight.push_back(cubic    ? Cubic<Real>(rest + 1 - static_cast<Real>(t), Real(-0.75))
                           : t == 0 ? Real(1) - rest
                                    : rest);
    }
  }
  return map;
}

// If the result is smaller than the input, averages over the width of an element of the result.
template <typename Real>
LinearMap SmoothMap(int64_t in, int64_t out, bool align_corners, Scale scale, bool cubic) {
  LinearMap map = {.in = in, .out = out};
  const Real step = StepOf<Real>(in, out, align_corners, scale);
  if (in == out && step == 1) return NearestMap<Real>(in, out, scale, false);  // the identity
  const Real radius = (cubic ? Real(2) : Real(1)) * std::max(step, Real(1));
  const Real inverse = step >= 1 ? Real(1) / step : Real(1);
  map.terms = static_cast<int64_t>(std::ceil(radius)) * 2 + 1;
  map.index.resize(out * map.terms, -1);
  map.weight.resize(out * map.terms);
  for (int64_t i = 0; i < out; ++i) {
    const Real center = step * (static_cast<Real>(i) + Real(0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - radius + Real(0.5)), 0);
    const int64_t last = std::min(static_cast<int64_t>(center + radius + Real(0.5)), in);
    const int64_t count = std::min(std::max<int64_t>(last - first, 0), map.terms);
    Real sum = 0;
    for (int64_t t = 0; t < count; ++t) {
      const Real x = (static_cast<Real>(first + t) - center + Real(0.5)) * inverse;
      const Real weight = cubic ? Cubic<Real>(x, Real(-0.5)) : std::max(1 - std::abs(x), Real(0));
      map.index[i * map.terms + t] = first + t;
      map.weight[i * map.terms + t] = weight;
      sum += weight;
    }
    for (int64_t t = 0; t < count && sum != 0; ++t) map.weight[i * map.terms + t] /= sum;
  }
  return map;
}

template <typename Real>
LinearMap MapOf(Filter filter, int64_t in, int64_t out, bool align_corners, Scale scale) {
  switch (filter) {
    case Filter::kNearest:
    case Filter::kNearestExact:
      return NearestMap<Real>(in, out, scale, filter == Filter::kNearestExact);
    case Filter::kLinear:
    case Filter::kCubic:
      return PointMap<Real>(in, out, align_corners, scale, filter == Filter::kCubic);
    default:
      return SmoothMap<Real>(in, out, align_corners, scale, filter == Filter::kSmoothCubic);
  }
}

using Maps = c10::SmallVector<LinearMap, 3>;
Maps MapsOf(Filter filter, at::ScalarType dtype, at::IntArrayRef in, at::IntArrayRef out,
            bool align_corners, std::initializer_list<Scale> scales) {
  Maps maps;
  size_t i = 0;
  for (const Scale& scale : scales) {
    const int64_t from = in[in.size() - scales.size() + i], to = out[i];
    ++i;
    maps.push_back(dtype == at::kDouble ? MapOf<double>(filter, from, to, align_corners, scale)
                                        : MapOf<float>(filter, from, to, align_corners, scale));
  }
  return maps;
}
at::Tensor& InterpolateOut(Filter filter, const at::Tensor& self, at::IntArrayRef size,
                           bool align_corners, std::initializer_list<Scale> scales,
                           const at::Tensor& out) {
  const bool nearest = filter == Filter::kNearest || filter == Filter::kNearestExact;
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype) || (nearest && dtype == at::kByte),
                              "interpolation is not implemented for ", dtype,
                              " on tensord: it takes floating numbers, and nearest also uint8");
  c10::DimVector sizes = {self.size(0), self.size(1)};
  sizes.append(size.begin(), size.end());
  if (c10::multiply_integers(sizes) == 0) {
    Resize(out, sizes);
    return const_cast<at::Tensor&>(out);
  }
  return WriteOut(
      out, ApplyAll(MapsOf(filter, self.scalar_type(), self.sizes(), size, align_corners, scales),
                    self));
}
at::Tensor& InterpolateGradient(Filter filter, const at::Tensor& gradient, at::IntArrayRef size,
                                at::IntArrayRef input_size, bool align_corners,
                                std::initializer_list<Scale> scales, const at::Tensor& out) {
  if (c10::multiply_integers(input_size) == 0) {
    Resize(out, input_size);
    return const_cast<at::Tensor&>(out);
  }
  return WriteOut(out, ApplyAllTransposed(MapsOf(filter, gradient.scalar_type(), input_size, size,
                                                 align_corners, scales),
                                          gradient));
}

// Kernels of one to three axes, each with a scale.
template <Filter kFilter, typename... Scales>
struct Nearest {
  static at::Tensor& Out(const at::Tensor& self, at::IntArrayRef size, Scales... scales,
                         at::Tensor& out) {
    return InterpolateOut(kFilter, self, size, false, {scales...}, out);
  }
  static at::Tensor& Gradient(const at::Tensor& gradient, at::IntArrayRef size,
                              at::IntArrayRef input_size, Scales... scales, at::Tensor& out) {
    return InterpolateGradient(kFilter, gradient, size, input_size, false, {scales...}, out);
  }
};
template <Filter kFilter, typename... Scales>
struct Smooth {
  static at::Tensor& Out(const at::Tensor& self, at::IntArrayRef size, bool align_corners,
                         Scales... scales, at::Tensor& out) {
    return InterpolateOut(kFilter, self, size, align_corners, {scales...}, out);
  }
  static at::Tensor& Gradient(const at::Tensor& gradient, at::IntArrayRef size,
                              at::IntArrayRef input_size, bool align_corners, Scales... scales,
                              at::Tensor& out) {
    return InterpolateGradient(kFilter, gradient, size, input_size, align_corners, {scales...},
                               out);
  }
};

// ---- padding

// The padding is (left, right) for each axis, the last axis first. Negative numbers crop.
template <bool kReflects>
Maps PaddingOf(const at::Tensor& self, at::IntArrayRef padding) {
  const auto axes = static_cast<int64_t>(padding.size() / 2);
  bool valid = self.dim() == axes + 1 || self.dim() == axes + 2;
  for (int64_t d = self.dim() - axes - 1; d >= 0 && d < self.dim(); ++d)
    valid = valid && self.size(d) > 0;
  TORCH_CHECK(valid, "Expected ", axes + 1, "D or ", axes + 2,
              "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
              "input, but got: ",
              self.sizes());
  Maps maps;
  for (size_t i = padding.size() / 2; i-- > 0;) {
    const int64_t in = self.size(self.dim() - 1 - static_cast<int64_t>(i));
    const int64_t left = padding[2 * i], right = padding[2 * i + 1];
    TORCH_CHECK(!kReflects || (left < in && right < in),
                "Padding size should be less than the corresponding input dimension, but got: "
                "padding (",
                left, ", ", right, ") at dimension ", self.dim() - 1 - static_cast<int64_t>(i),
                " of input ", self.sizes());
    LinearMap map = {.in = in, .out = in + left + right};
    TORCH_CHECK(map.out >= 1, "input of size ", in, " is too small for the padding (", left, ", ",
                right, ")");
    for (int64_t j = 0; j < map.out; ++j) {
      int64_t place = j - left;
      if (kReflects && place < 0) place = -place;
      if (kReflects && place >= in) place = 2 * (in - 1) - place;
      map.index.push_back(std::min(std::max<int64_t>(place, 0), in - 1));
    }
    maps.push_back(std::move(map));
  }
  return maps;
}
template <bool kReflects>
at::Tensor& PadOut(const at::Tensor& self, at::IntArrayRef padding, at::Tensor& out) {
  return WriteOut(out, ApplyAll(PaddingOf<kReflects>(self, padding), self));
}
template <bool kReflects>
at::Tensor Pad(const at::Tensor& self, at::IntArrayRef padding) {
  return MakeInFormat(ApplyAll(PaddingOf<kReflects>(self, padding), self), DeviceOf(self),
                      self.suggest_memory_format());
}
template <bool kReflects>
at::Tensor& PadBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                           at::IntArrayRef padding, at::Tensor& out) {
  if (self.numel() == 0) return out;
  return WriteOut(out, ApplyAllTransposed(PaddingOf<kReflects>(self, padding), gradient));
}
template <bool kReflects>
at::Tensor PadBackward(const at::Tensor& gradient, const at::Tensor& self,
                       at::IntArrayRef padding) {
  at::Tensor out = MakeContiguous(self.sizes(), gradient.scalar_type(), DeviceOf(gradient));
  return PadBackwardOut<kReflects>(gradient, self, padding, out);
}

using S = Scale;

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("upsample_nearest1d.out", Nearest<Filter::kNearest, S>::Out);
  m.impl("upsample_nearest2d.out", Nearest<Filter::kNearest, S, S>::Out);
  m.impl("upsample_nearest3d.out", Nearest<Filter::kNearest, S, S, S>::Out);
  m.impl("_upsample_nearest_exact1d.out", Nearest<Filter::kNearestExact, S>::Out);
  m.impl("_upsample_nearest_exact2d.out", Nearest<Filter::kNearestExact, S, S>::Out);
  m.impl("_upsample_nearest_exact3d.out", Nearest<Filter::kNearestExact, S, S, S>::Out);
  m.impl("upsample_linear1d.out", Smooth<Filter::kLinear, S>::Out);
  m.impl("upsample_bilinear2d.out", Smooth<Filter::kLinear, S, S>::Out);
  m.impl("upsample_trilinear3d.out", Smooth<Filter::kLinear, S, S, S>::Out);
  m.impl("upsample_bicubic2d.out", Smooth<Filter::kCubic, S, S>::Out);
  m.impl("_upsample_bilinear2d_aa.out", Smooth<Filter::kSmoothLinear, S, S>::Out);
  m.impl("_upsample_bicubic2d_aa.out", Smooth<Filter::kSmoothCubic, S, S>::Out);

  m.impl("upsample_nearest1d_backward.grad_input", Nearest<Filter::kNearest, S>::Gradient);
  m.impl("upsample_nearest2d_backward.grad_input", Nearest<Filter::kNearest, S, S>::Gradient);
  m.impl("upsample_nearest3d_backward.grad_input", Nearest<Filter::kNearest, S, S, S>::Gradient);
  m.impl("_upsample_nearest_exact1d_backward.grad_input",
         Nearest<Filter::kNearestExact, S>::Gradient);
  m.impl("_upsample_nearest_exact2d_backward.grad_input",
         Nearest<Filter::kNearestExact, S, S>::Gradient);
  m.impl("_upsample_nearest_exact3d_backward.grad_input",
         Nearest<Filter::kNearestExact, S, S, S>::Gradient);
  m.impl("upsample_linear1d_backward.grad_input", Smooth<Filter::kLinear, S>::Gradient);
  m.impl("upsample_bilinear2d_backward.grad_input", Smooth<Filter::kLinear, S, S>::Gradient);
  m.impl("upsample_trilinear3d_backward.grad_input", Smooth<Filter::kLinear, S, S, S>::Gradient);
  m.impl("upsample_bicubic2d_backward.grad_input", Smooth<Filter::kCubic, S, S>::Gradient);
  m.impl("_upsample_bilinear2d_aa_backward.grad_input",
         Smooth<Filter::kSmoothLinear, S, S>::Gradient);
  m.impl("_upsample_bicubic2d_aa_backward.grad_input",
         Smooth<Filter::kSmoothCubic, S, S>::Gradient);

  m.impl("reflection_pad1d.out", PadOut<true>);
  m.impl("reflection_pad1d_backward.grad_input", PadBackwardOut<true>);
  m.impl("reflection_pad2d", Pad<true>);
  m.impl("reflection_pad2d.out", PadOut<true>);
  m.impl("reflection_pad2d_backward", PadBackward<true>);
  m.impl("reflection_pad2d_backward.grad_input", PadBackwardOut<true>);
  m.impl("reflection_pad3d.out", PadOut<true>);
  m.impl("reflection_pad3d_backward.grad_input", PadBackwardOut<true>);
  m.impl("replication_pad1d.out", PadOut<false>);
  m.impl("replication_pad1d_backward.grad_input", PadBackwardOut<false>);
  m.impl("replication_pad2d", Pad<false>);
  m.impl("replication_pad2d.out", PadOut<false>);
  m.impl("replication_pad2d_backward", PadBackward<false>);
  m.impl("replication_pad2d_backward.grad_input", PadBackwardOut<false>);
  m.impl("replication_pad3d.out", PadOut<false>);
  m.impl("replication_pad3d_backward", PadBackward<false>);
  m.impl("replication_pad3d_backward.grad_input", PadBackwardOut<false>);
}

}  // namespace torch_tensord
