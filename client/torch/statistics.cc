// Order statistics, counts, scans, distances and norms of rows, as compositions of PyTorch's ops.
#include <cmath>
#include <limits>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using at::Tensor;

// ---- the k-th element of each line. NaN is greater than all numbers.

struct Line {
  Tensor values, indices;  // sorted, with at least one axis
  int64_t dim = 0;
  bool scalar = false;
};
Line SortLines(const Tensor& self, int64_t dim) {
  Line line;
  line.scalar = self.dim() == 0;
  line.dim = at::maybe_wrap_dim(dim, self.dim());
  std::tie(line.values, line.indices) =
      at::sort(line.scalar ? self.unsqueeze(0) : self, true, line.dim, false);
  return line;
}
std::tuple<Tensor, Tensor> Pick(const Line& line, const Tensor& place, bool keepdim) {
  Tensor values = line.values.gather(line.dim, place),
         indices = line.indices.gather(line.dim, place);
  if (line.scalar || !keepdim) {
    values = values.squeeze(line.dim);
    indices = indices.squeeze(line.dim);
  }
  return {values, indices};
}
void CheckDimSize(const char* name, const Tensor& self, int64_t dim) {
  if (self.dim() == 0) return;
  TORCH_CHECK_INDEX(self.size(at::maybe_wrap_dim(dim, self.dim())) > 0, name,
                    "(): Expected reduction dim ", dim, " to have non-zero size.");
}

std::tuple<Tensor&, Tensor&> KthValueOut(const Tensor& self, int64_t k, int64_t dim, bool keepdim,
                                         Tensor& values, Tensor& indices) {
  const int64_t size = self.dim() == 0 ? 1 : self.size(at::maybe_wrap_dim(dim, self.dim()));
  CheckDimSize("kthvalue", self, dim);
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ",
              dim);
  const Line line = SortLines(self, dim);
  auto value = line.values.narrow(line.dim, k - 1, 1),
       index = line.indices.narrow(line.dim, k - 1, 1);
  if (line.scalar || !keepdim) {
    value = value.squeeze(line.dim);
    index = index.squeeze(line.dim);
  }
  CopyToOut(values, value);
  CopyToOut(indices, index);
  return {values, indices};
}

// Returns the median of each line: of two middle elements, the lower one. If NaN isn't ignored, the
// median of a line that has NaN is NaN.
template <bool kIgnoresNan>
std::tuple<Tensor, Tensor> MedianOf(const Tensor& self, int64_t dim, bool keepdim) {
  const Line line = SortLines(self, dim);
  const int64_t size = line.values.size(line.dim);
  if (!at::isFloatingType(self.scalar_type())) {
    c10::DimVector sizes(line.values.sizes());
    sizes[line.dim] = 1;
    return Pick(line, at::full(sizes, (size - 1) / 2, line.indices.options()), keepdim);
  }
  const Tensor numbers = line.values.eq(line.values).sum(line.dim, true);
  const Tensor middle = numbers.sub(1).clamp_min(0).div(2, "floor");
  const Tensor place =
      kIgnoresNan ? middle
                  : at::where(numbers.lt(size), numbers, at::full_like(numbers, (size - 1) / 2));
  return Pick(line, place, keepdim);
}
template <bool kIgnoresNan>
std::tuple<Tensor&, Tensor&> MedianOut(const Tensor& self, int64_t dim, bool keepdim,
                                       Tensor& values, Tensor& indices) {
  CheckDimSize("median", self, dim);
  const auto [value, index] = MedianOf<kIgnoresNan>(self, dim, keepdim);
  CopyToOut(values, value);
  CopyToOut(indices, index);
  return {values, indices};
}
template <bool kIgnoresNan>
Tensor Median(const Tensor& self) {
  if (self.numel() == 0) {
    return at::full({}, NAN, self.options().dtype(at::kDouble)).to(self.scalar_type());
  }
  return std::get<0>(MedianOf<kIgnoresNan>(self.reshape({-1}), 0, false));
}

// ---- scans, in log2(n) steps

// Returns a tensor whose element i is element i - shift, or element i if there is no such element.
Tensor Shifted(const Tensor& x, int64_t shift, int64_t dim) {
  const int64_t size = x.size(dim);
  return at::cat({x.narrow(dim, 0, shift), x.narrow(dim, 0, size - shift)}, dim);
}

template <bool kMax>
void CumExtremum(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  if (self.numel() == 0) return;
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return;
  }
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(dim);
  c10::DimVector shape(self.dim(), 1);
  shape[dim] = size;
  Tensor x = self;
  Tensor place = at::arange(size, indices.options()).view(shape).expand(self.sizes());
  for (int64_t shift = 1; shift < size; shift *= 2) {
    const Tensor before = Shifted(x, shift, dim);
    // Of equal elements, the last counts. NaN stays.
    Tensor keeps = kMax ? x.ge(before) : x.le(before);
    if (at::isFloatingType(self.scalar_type())) keeps = keeps.logical_or(x.ne(x));
    place = at::where(keeps, place, Shifted(place, shift, dim));
    x = at::where(keeps, x, before);
  }
  values.copy_(x);
  indices.copy_(place);
}

Tensor LogCumSumExp(const Tensor& self, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0 || self.numel() == 0) return self.clone();
  const int64_t size = self.size(dim);
  Tensor x = self;
  for (int64_t shift = 1; shift < size; shift *= 2) {
    const Tensor sums =
        at::logaddexp(x.narrow(dim, shift, size - shift), x.narrow(dim, 0, size - shift));
    x = at::cat({x.narrow(dim, 0, shift), sums}, dim);
  }
  return x;
}
Tensor& LogCumSumExpOut(const Tensor& self, int64_t dim, Tensor& out) {
  return CopyToOut(out, LogCumSumExp(self, dim));
}

// Returns the most frequent element of each line, and its last index. If several are equally
// frequent, returns the least.
std::tuple<Tensor, Tensor> Mode(const Tensor& self, int64_t dim, bool keepdim) {
  CheckDimSize("mode", self, dim);
  const Line line = SortLines(self, dim);
  const int64_t d = line.dim, size = line.values.size(d);
  if (line.values.numel() == 0 || size == 1) {
    return Pick(line, at::zeros_like(line.indices.narrow(d, 0, 1)), keepdim);
  }
  const Tensor changes = line.values.narrow(d, 1, size - 1).ne(line.values.narrow(d, 0, size - 1));
  const Tensor one = at::ones_like(changes.narrow(d, 0, 1));
  const Tensor starts = at::cat({one, changes}, d), ends = at::cat({changes, one}, d);
  c10::DimVector shape(line.values.dim(), 1);
  shape[d] = size;
  const Tensor place = at::arange(size, line.indices.options()).view(shape);
  Tensor first = at::where(starts, place, at::zeros_like(place));
  for (int64_t shift = 1; shift < size; shift *= 2)
    first = at::maximum(first, Shifted(first, shift, d));
  const Tensor counts = at::where(ends, place.sub(first).add(1), at::zeros_like(place));
  return Pick(line, counts.argmax(d, true), keepdim);
}

std::tuple<Tensor&, Tensor&> ModeOut(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                     Tensor& indices) {
  const auto [value, index] = Mode(self, dim, keepdim);
  CopyToOut(values, value);
  CopyToOut(indices, index);
  return {values, indices};
}

// ---- counts. If the shape or the limits depend on values, these wait.

Tensor BinCount(const Tensor& self, const std::optional<Tensor>& weights, int64_t min_length) {
  TORCH_CHECK(min_length >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = IsGiven(weights);
  if (weighted) CommonDevice("bincount", {&self, &*weights});
  TORCH_CHECK(!weighted || weights->sizes().equals(self.sizes()),
              "weights should be 1-d and have the same length as input");
  const at::ScalarType dtype = !weighted                              ? at::kLong
                               : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                      : at::kDouble;
  if (self.numel() == 0) return at::zeros({min_length}, self.options().dtype(at::kLong));
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                              "bincount is not implemented for the dtype ", self.scalar_type(),
                              ": it takes integers");
  const Tensor x = self.to(at::kLong);
  const Tensor limits = at::stack({x.amin(), x.amax()}).cpu();
  const int64_t least = limits[0].item().toLong(), greatest = limits[1].item().toLong();
  TORCH_CHECK(least >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const Tensor zeros = at::zeros({std::max(greatest + 1, min_length)}, self.options().dtype(dtype));
  return zeros.scatter_add(0, x, weighted ? weights->to(dtype) : at::ones_like(x));
}

Tensor HistC(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
  double low = min.toDouble(), high = max.toDouble();
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histc: range of [", low, ", ", high,
              "] is not finite");
  TORCH_CHECK(low <= high, "torch.histc: max must be larger than min, but got [", low, ", ", high,
              "]");
  if (low == high && self.numel() > 0) {
    const Tensor limits = at::stack({self.amin(), self.amax()}).cpu().to(at::kDouble);
    low = limits[0].item().toDouble();
    high = limits[1].item().toDouble();
    TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histc: range of [", low, ", ",
                high, "] is not finite");
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  const Tensor counts = at::zeros({bins}, self.options());
  if (self.numel() == 0) return counts;
  // Integers are counted as on CUDA.
  const bool integers = at::isIntegralType(self.scalar_type(), true);
  const Tensor x = self.reshape({-1}).to(integers ? at::kDouble : self.scalar_type());
  const Tensor inside = x.ge(low).logical_and(x.le(high));
  const Tensor safe = at::where(inside, x, at::full_like(x, low));
  const Tensor place = safe.sub(low).mul(bins).div(high - low).to(at::kLong).clamp(0, bins - 1);
  return counts.scatter_add(0, place, inside.to(self.scalar_type()));
}
Tensor& HistCOut(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                 Tensor& out) {
  return CopyToOut(out, HistC(self, bins, min, max));
}

std::tuple<Tensor, Tensor> UniqueOf(const Tensor& self, bool sorted, bool inverse) {
  const auto [values, places, counts] = at::_unique2(self, sorted, inverse, false);
  return {values, places};
}

Tensor NonZeroStatic(const Tensor& self, int64_t size, int64_t fill) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  if (self.dim() == 0 || self.numel() == 0 || size == 0)
    return at::full({size, self.dim()}, fill, self.options().dtype(at::kLong));
  const Value x = Read(self);
  const Tensor places =
      MakeTensor(Transpose(Push("nonzero", {x}, {{"size", size}}), 0, 1), DeviceOf(self));
  const Tensor count = MakeTensor(Reduce("count_nonzero", x, {}, false), DeviceOf(self));
  const Tensor valid = at::arange(size, places.options()).unsqueeze(1).lt(count);
  return at::where(valid, places, at::full_like(places, fill));
}
Tensor& NonZeroStaticOut(const Tensor& self, int64_t size, int64_t fill, Tensor& out) {
  return CopyToOut(out, NonZeroStatic(self, size, fill));
}

// ---- distances

// Above this number of differences, the gradient is computed by a product of matrices, which is
// faster, but less accurate.
constexpr int64_t kMaxDifferences = int64_t{1} << 22;

bool UsesProduct(const Tensor& a, const Tensor& b, double p, std::optional<int64_t> mode) {
  constexpr int64_t kFewRows = 25;
  const int64_t given = mode.value_or(0);
  return p == 2 && (given == 1 || (given == 0 && (a.size(-2) > kFewRows || b.size(-2) > kFewRows)));
}
Tensor CDist(const Tensor& a, const Tensor& b, double p, std::optional<int64_t> mode) {
  CommonDevice("cdist", {&a, &b});
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  c10::DimVector sizes =
      at::infer_size_dimvector(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.append({a.size(-2), b.size(-2)});
  if (c10::multiply_integers(sizes) == 0 || a.size(-1) == 0) return at::zeros(sizes, a.options());
  if (UsesProduct(a, b, p, mode)) return at::_euclidean_dist(a, b);
  return at::linalg_vector_norm(a.unsqueeze(-2).sub(b.unsqueeze(-3)), p, at::IntArrayRef({-1}));
}
// Returns the gradient of |difference|ₚ for each element of `difference`.
Tensor NormSlope(const Tensor& gradient, const Tensor& difference, const Tensor& norm, double p) {
  if (p == 0) return at::zeros_like(difference);
  if (p == 1) return gradient.mul(difference.sign());
  if (std::isinf(p)) return gradient.mul(difference.sign()).mul(difference.abs().eq(norm));
  const Tensor zero = norm.eq(0);
  const Tensor safe = at::where(zero, at::ones_like(norm), norm);
  if (p == 2) return at::where(zero, at::zeros_like(norm), gradient.div(safe)).mul(difference);
  const Tensor power = difference.abs().pow(p - 1).mul(difference.sign());
  const Tensor slope = power.mul(gradient.div(safe.pow(p - 1)));
  return at::where(zero.logical_or(difference.eq(0)), at::zeros_like(slope), slope);
}
Tensor CDistBackward(const Tensor& gradient, const Tensor& a, const Tensor& b, double p,
                     const Tensor& distances) {
  c10::DimVector sizes =
      at::infer_size_dimvector(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  const int64_t pairs = c10::multiply_integers(sizes) * a.size(-2) * b.size(-2);
  sizes.append({a.size(-2), a.size(-1)});
  if (pairs * a.size(-1) == 0) return at::zeros(sizes, a.options());
  if (p == 2 && pairs * a.size(-1) > kMaxDifferences) {
    const Tensor zero = distances.eq(0);
    const Tensor ratio = at::where(zero, at::zeros_like(distances), gradient.div(distances));
    return ratio.sum(-1, true).mul(a).sub(ratio.matmul(b)).expand(sizes).contiguous();
  }
  const Tensor slope = NormSlope(gradient.unsqueeze(-1), a.unsqueeze(-2).sub(b.unsqueeze(-3)),
                                 distances.unsqueeze(-1), p);
  return slope.sum(-2);
}

// Returns the pairs (i, j) with i < j, in row-major order.
std::pair<Tensor, Tensor> Pairs(const Tensor& self) {
  const Tensor pairs = at::triu_indices(self.size(0), self.size(0), 1, at::kLong, std::nullopt,
                                        self.device(), std::nullopt);
  return {pairs[0], pairs[1]};
}
Tensor PDist(const Tensor& self, double p) {
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors");
  const int64_t n = self.size(0);
  if (n <= 1 || self.size(1) == 0)
    return at::zeros({std::max<int64_t>(n * (n - 1) / 2, 0)}, self.options());
  const auto [i, j] = Pairs(self);
  return at::linalg_vector_norm(self.index_select(0, i).sub(self.index_select(0, j)), p,
                                at::IntArrayRef({-1}));
}
Tensor PDistBackward(const Tensor& gradient, const Tensor& self, double p,
                     const Tensor& distances) {
  const Tensor zeros = at::zeros_like(self, at::MemoryFormat::Contiguous);
  if (self.size(0) <= 1 || self.size(1) == 0) return zeros;
  const auto [i, j] = Pairs(self);
  const Tensor slope =
      NormSlope(gradient.unsqueeze(-1), self.index_select(0, i).sub(self.index_select(0, j)),
                distances.unsqueeze(-1), p);
  return zeros.index_add(0, i, slope).index_add(0, j, slope, -1);
}

// ---- rows of limited norm

// Returns all axes apart from `dim`.
c10::DimVector OtherAxes(const Tensor& v, int64_t dim) {
  c10::DimVector dims;
  for (int64_t d = 0; d < v.dim(); ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}
// Returns the factors that limit the norms of rows.
Tensor LimitingFactor(const Tensor& norms, const at::Scalar& max_norm) {
  return at::where(norms.gt(max_norm), norms.add(1e-7).reciprocal().mul(max_norm),
                   at::ones_like(norms));
}
Tensor& RenormOut(const Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& max_norm,
                  Tensor& out) {
  if (self.numel() == 0) return out;
  const c10::DimVector dims = OtherAxes(self, at::maybe_wrap_dim(dim, self.dim()));
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Tensor norms = at::linalg_vector_norm(self.to(dtype), p, dims, true);
  return CopyToOut(out, self.mul(LimitingFactor(norms, max_norm)));
}
constexpr Origin kRenorm{nullptr, "embedding_renorm_ (of embedding with max_norm)", "the indices"};
Tensor& EmbeddingRenorm(Tensor& self, const Tensor& indices, double max_norm, double p) {
  CommonDevice("embedding_renorm_", {&self, &indices});
  const OriginScope scope(kRenorm);
  if (indices.numel() == 0) return self;
  const Tensor places = indices.reshape({-1}).to(at::kLong);
  const Tensor rows = self.index_select(0, places);
  // On the CPU, PyTorch computes the factors in float64.
  const Tensor norms = at::linalg_vector_norm(rows, p, at::IntArrayRef({1}), true).to(at::kDouble);
  const Tensor factors = LimitingFactor(norms, max_norm).to(rows.scalar_type());
  return self.index_copy_(0, places, rows.mul(factors));
}

// ---- weights of a given norm

std::tuple<Tensor, Tensor> WeightNorm(const Tensor& v, const Tensor& g, int64_t dim) {
  CommonDevice("_weight_norm_interface", {&v, &g});
  const Tensor norms = at::linalg_vector_norm(v.to(ComputeDType(v.scalar_type())), 2,
                                              OtherAxes(v, at::maybe_wrap_dim(dim, v.dim())), true);
  return {v.mul(g.div(norms)).to(v.scalar_type()), norms};
}
std::tuple<Tensor, Tensor> WeightNormBackward(const Tensor& gradient, const Tensor& v,
                                              const Tensor& g, const Tensor& norms, int64_t dim) {
  const c10::DimVector axes = OtherAxes(v, at::maybe_wrap_dim(dim, v.dim()));
  const at::ScalarType dtype = norms.scalar_type();
  const Tensor gw = gradient.to(dtype), x = v.to(dtype);
  const Tensor along = gw.mul(x).sum(axes, true);
  const Tensor gv = g.to(dtype).div(norms).mul(gw.sub(x.mul(along.div(norms.mul(norms)))));
  return {gv.to(v.scalar_type()), along.div(norms).to(g.scalar_type())};
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("kthvalue.values", KthValueOut);
  m.impl("median", Median<false>);
  m.impl("median.dim_values", MedianOut<false>);
  m.impl("nanmedian", Median<true>);
  m.impl("nanmedian.dim_values", MedianOut<true>);
  m.impl("mode", Mode);
  m.impl("mode.values", ModeOut);
  m.impl("_cummax_helper", CumExtremum<true>);
  m.impl("_cummin_helper", CumExtremum<false>);
  m.impl("_logcumsumexp", LogCumSumExp);
  m.impl("_logcumsumexp.out", LogCumSumExpOut);
  m.impl("bincount", BinCount);
  m.impl("histc", HistC);
  m.impl("histc.out", HistCOut);
  m.impl("_unique", UniqueOf);
  m.impl("nonzero_static", NonZeroStatic);
  m.impl("nonzero_static.out", NonZeroStaticOut);
  m.impl("_cdist_forward", CDist);
  m.impl("_cdist_backward", CDistBackward);
  m.impl("_pdist_forward", PDist);
  m.impl("_pdist_backward", PDistBackward);
  m.impl("renorm.out", RenormOut);
  m.impl("embedding_renorm_", EmbeddingRenorm);
  m.impl("_weight_norm_interface", WeightNorm);
  m.impl("_weight_norm_interface_backward", WeightNormBackward);
}

}  // namespace torch_tensord
