// Samples of images at the positions of a grid.
#include <cmath>

#include "kernels.h"

namespace torch_tensord {
namespace {

using at::Tensor;

enum GridFilter : int64_t { kGridLinear = 0, kGridNearest = 1, kGridCubic = 2 };
enum GridPadding : int64_t { kGridZeros = 0, kGridBorder = 1, kGridReflection = 2 };

// One coordinate of all samples: the position in elements of its axis, and the derivative of that
// by the number in the grid.
struct Coordinate {
  Tensor position;  // (N, P)
  Tensor slope;
};

// Reflects positions at twice_low / 2 and twice_high / 2.
void Reflect(Coordinate& c, double twice_low, double twice_high) {
  if (twice_low == twice_high) {
    c.position = at::zeros_like(c.position);
    c.slope = at::zeros_like(c.slope);
    return;
  }
  const double low = twice_low / 2, span = (twice_high - twice_low) / 2;
  const Tensor from = c.position.sub(low), distance = from.abs();
  const Tensor flips = distance.div(span).floor();
  const Tensor rest = distance.sub(flips.mul(span));
  const Tensor even = flips.remainder(2).eq(0);
  c.position = at::where(even, rest.add(low), rest.neg().add(span + low));
  const Tensor sign = at::where(from.lt(0), at::full_like(from, -1), at::ones_like(from));
  c.slope = c.slope.mul(sign).mul(at::where(even, at::ones_like(sign), at::full_like(sign, -1)));
}
void Clip(Coordinate& c, int64_t size) {
  const Tensor inside = c.position.gt(0).logical_and(c.position.lt(size - 1));
  c.slope = at::where(inside, c.slope, at::zeros_like(c.slope));
  c.position = c.position.clamp(0, size - 1);
}
void Pad(Coordinate& c, int64_t size, int64_t padding, bool align_corners) {
  if (padding == kGridReflection) {
    if (align_corners) {
      Reflect(c, 0, 2.0 * static_cast<double>(size - 1));
    } else {
      Reflect(c, -1, 2.0 * static_cast<double>(size) - 1);
    }
  }
  if (padding != kGridZeros) Clip(c, size);
}
Coordinate CoordinateOf(const Tensor& grid, int64_t size, bool align_corners) {
  const double scale =
      align_corners ? static_cast<double>(size - 1) / 2 : static_cast<double>(size) / 2;
  const double offset = align_corners ? 0 : -0.5;
  return {grid.add(1).mul(scale).add(offset), at::full_like(grid, scale)};
}

struct Grid {
  Tensor x;                             // (N, C, elements)
  std::vector<int64_t> sizes;           // of the axes of the image, the outermost first
  std::vector<Coordinate> coordinates;  // in the same order
  int64_t batch, channels, samples;
};
Grid ReadGrid(const Tensor& input, const Tensor& grid, int64_t padding, bool align_corners,
              bool pads) {
  CommonDevice("grid_sampler", {&input, &grid});
  Grid result;
  const int64_t axes = input.dim() - 2;
  TORCH_CHECK(grid.dim() == input.dim() && grid.size(-1) == axes && grid.size(0) == input.size(0),
              "grid_sampler(): expected a grid with the input's batch size, and positions of ",
              axes, " numbers, but got input with sizes ", input.sizes(), " and grid with sizes ",
              grid.sizes());
  const at::ScalarType dtype = ComputeDType(input.scalar_type());
  result.batch = input.size(0);
  result.channels = input.size(1);
  result.samples = grid.numel() / std::max<int64_t>(result.batch * axes, 1);
  int64_t elements = 1;
  for (int64_t a = 0; a < axes; ++a) {
    result.sizes.push_back(input.size(2 + a));
    elements *= input.size(2 + a);
  }
  result.x = input.to(dtype).reshape({result.batch, result.channels, elements});
  // The grid has the innermost axis first.
  const Tensor lines = grid.to(dtype).reshape({result.batch, result.samples, axes});
  for (int64_t a = 0; a < axes; ++a) {
    Coordinate c = CoordinateOf(lines.select(2, axes - 1 - a), result.sizes[a], align_corners);
    if (pads) Pad(c, result.sizes[a], padding, align_corners);
    result.coordinates.push_back(std::move(c));
  }
  return result;
}

// A term of the weighted sum: an element of the image for each sample.
struct Term {
  Tensor index;                 // (N, P), inside the image
  Tensor outside;               // (N, P), bool: if true, the term is 0
  std::vector<Tensor> weights;  // for each axis
  std::vector<Tensor> slopes;   // the derivatives of the weights by the position
};
// Adds the factor of an axis to a term.
void AddAxis(Term& term, const Tensor& place, int64_t size, const Tensor& weight,
             const Tensor& slope) {
  // NaN is outside, too.
  const Tensor outside = place.ge(0).logical_and(place.le(size - 1)).logical_not();
  const Tensor safe = place.masked_fill(outside, 0).to(at::kLong);
  term.index = term.index.defined() ? term.index.mul(size).add(safe) : safe;
  term.outside = term.outside.defined() ? term.outside.logical_or(outside) : outside;
  term.weights.push_back(weight);
  term.slopes.push_back(slope);
}
Tensor CubicNear(const Tensor& x) {  // for distances up to 1
  constexpr double a = -0.75;
  return x.mul(a + 2).sub(a + 3).mul(x).mul(x).add(1);
}
Tensor CubicFar(const Tensor& x) {  // for distances from 1 to 2
  constexpr double a = -0.75;
  return x.mul(a).sub(5 * a).mul(x).add(8 * a).mul(x).sub(4 * a);
}
Tensor CubicNearSlope(const Tensor& x) {
  constexpr double a = -0.75;
  return x.mul(3 * (a + 2)).sub(2 * (a + 3)).mul(x);
}
Tensor CubicFarSlope(const Tensor& x) {
  constexpr double a = -0.75;
  return x.mul(3 * a).sub(10 * a).mul(x).add(8 * a);
}

std::vector<Term> TermsOf(const Grid& grid, int64_t filter, int64_t padding, bool align_corners) {
  std::vector<Term> terms(1);
  for (size_t a = 0; a < grid.sizes.size(); ++a) {
    const Tensor& position = grid.coordinates[a].position;
    const int64_t size = grid.sizes[a];
    std::vector<Term> next;
    const auto add = [&](const Tensor& place, const Tensor& weight, const Tensor& slope) {
      for (const Term& term : terms) {
        next.push_back(term);
        AddAxis(next.back(), place, size, weight, slope);
      }
    };
    const Tensor one = at::ones_like(position), zero = at::zeros_like(position);
    if (filter == kGridNearest) {
      add(position.round(), one, zero);
    } else if (filter == kGridLinear) {
      const Tensor first = position.floor(), rest = position.sub(first);
      add(first, one.sub(rest), one.neg());
      add(first.add(1), rest, one);
    } else {
      const Tensor first = position.floor(), t = position.sub(first);
      const Tensor u = one.sub(t);
      const Tensor weights[] = {CubicFar(t.add(1)), CubicNear(t), CubicNear(u), CubicFar(u.add(1))};
      const Tensor slopes[] = {CubicFarSlope(t.add(1)), CubicNearSlope(t), CubicNearSlope(u).neg(),
                               CubicFarSlope(u.add(1)).neg()};
      for (int i = 0; i < 4; ++i) {
        Coordinate place = {first.add(i - 1), zero};
        Pad(place, size, padding, align_corners);
        add(place.position, weights[i], slopes[i]);
      }
    }
    terms = std::move(next);
  }
  return terms;
}
// Multiplies numbers (N, C, P) by the weight of the term.
Tensor Weigh(const Term& term, const Tensor& x) {
  Tensor weight = term.weights[0];
  for (size_t a = 1; a < term.weights.size(); ++a) weight = weight.mul(term.weights[a]);
  return x.mul(weight.unsqueeze(1)).masked_fill(term.outside.unsqueeze(1), 0);
}
Tensor Spread(const Tensor& x, const Grid& grid) {
  return x.unsqueeze(1).expand({grid.batch, grid.channels, grid.samples});
}
c10::DimVector ResultSizes(const Tensor& input, const Tensor& grid) {
  c10::DimVector sizes = {input.size(0), input.size(1)};
  for (int64_t d = 1; d < grid.dim() - 1; ++d) sizes.push_back(grid.size(d));
  return sizes;
}

Tensor GridSampler(const Tensor& input, const Tensor& positions, int64_t filter, int64_t padding,
                   bool align_corners) {
  const c10::DimVector sizes = ResultSizes(input, positions);
  if (c10::multiply_integers(sizes) == 0) return at::zeros(sizes, input.options());
  const Grid grid = ReadGrid(input, positions, padding, align_corners, filter != kGridCubic);
  Tensor sum;
  for (const Term& term : TermsOf(grid, filter, padding, align_corners)) {
    const Tensor part = Weigh(term, grid.x.gather(2, Spread(term.index, grid)));
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum.reshape(sizes).to(input.scalar_type());
}
std::tuple<Tensor, Tensor> GridSamplerBackward(const Tensor& gradient, const Tensor& input,
                                               const Tensor& positions, int64_t filter,
                                               int64_t padding, bool align_corners,
                                               std::array<bool, 2> mask) {
  if (gradient.numel() == 0 || input.numel() == 0)
    return {at::zeros_like(input), at::zeros_like(positions)};
  const Grid grid = ReadGrid(input, positions, padding, align_corners, filter != kGridCubic);
  const Tensor g =
      gradient.to(grid.x.scalar_type()).reshape({grid.batch, grid.channels, grid.samples});
  Tensor image = at::zeros_like(grid.x);
  std::vector<Tensor> slopes(grid.sizes.size());
  for (const Term& term : TermsOf(grid, filter, padding, align_corners)) {
    const Tensor index = Spread(term.index, grid);
    if (mask[0]) image = image.scatter_add(2, index, Weigh(term, g));
    if (!mask[1] || filter == kGridNearest) continue;
    const Tensor value = grid.x.gather(2, index).mul(g).sum(1).masked_fill(term.outside, 0);
    for (size_t a = 0; a < slopes.size(); ++a) {
      Tensor part = value;
      for (size_t b = 0; b < slopes.size(); ++b)
        part = part.mul(a == b ? term.slopes[b] : term.weights[b]);
      slopes[a] = slopes[a].defined() ? slopes[a].add(part) : part;
    }
  }
  Tensor of_grid;
  if (mask[1] && filter == kGridNearest)
    of_grid = at::zeros_like(positions, at::MemoryFormat::Contiguous);
  if (mask[1] && filter != kGridNearest) {
    std::vector<Tensor> parts;
    for (size_t a = slopes.size(); a-- > 0;)
      parts.push_back(slopes[a].mul(grid.coordinates[a].slope));
    of_grid = at::stack(parts, 2).reshape(positions.sizes()).to(positions.scalar_type());
  }
  return {mask[0] ? image.reshape(input.sizes()).to(input.scalar_type()) : Tensor(), of_grid};
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("grid_sampler_2d", GridSampler);
  m.impl("grid_sampler_3d", GridSampler);
  m.impl("grid_sampler_2d_backward", GridSamplerBackward);
  m.impl("grid_sampler_3d_backward", GridSamplerBackward);
}

}  // namespace torch_tensord
