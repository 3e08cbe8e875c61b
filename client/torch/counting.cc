// Histograms by edges, and the unique slices of a tensor, as compositions of PyTorch's ops.
#include <cmath>

#include "kernels.h"

namespace torch_tensord {

Value NonZero(const Value& x);

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Histogram = std::tuple<Tensor, Tensor>;

// ---- histograms. A bin includes its left edge. The last bin also includes its right edge.

Histogram CountBetween(const Tensor& self, const Tensor& edges, const MaybeTensor& weight,
                       bool density) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "histogram is for floating dtypes, but got ", self.scalar_type());
  TORCH_CHECK(edges.dim() == 1 && edges.numel() > 0,
              "torch.histogram(): bins should be a one-dimensional tensor with elements");
  TORCH_CHECK(edges.scalar_type() == self.scalar_type(),
              "torch.histogram(): input tensor and bins tensors should have the same dtype, but "
              "got input with dtype ",
              self.scalar_type(), " and bins with dtype ", edges.scalar_type());
  CommonDevice("histogram", {&self, &edges});
  const int64_t bins = edges.numel() - 1;
  const Tensor x = self.reshape({-1});
  Tensor amount = at::ones_like(x);
  if (IsGiven(weight)) {
    CommonDevice("histogram", {&self, &*weight});
    TORCH_CHECK(weight->scalar_type() == self.scalar_type(),
                "torch.histogram(): if weight tensor is provided, input tensor and weight tensor "
                "should have the same dtype, but got input with dtype ",
                self.scalar_type(), " and weight with dtype ", weight->scalar_type());
    TORCH_CHECK(weight->sizes().equals(self.sizes()),
                "torch.histogram(): if weight tensor is provided it should have the same shape as "
                "the input tensor");
    amount = weight->reshape({-1});
  }
  Tensor counts = at::zeros({bins}, self.options());
  if (bins == 0) return {counts, edges.clone()};
  const Tensor inside = x.ge(edges[0]).logical_and(x.le(edges[bins]));
  const Tensor place =
      at::searchsorted(edges.contiguous(), x, false, true).sub(1).clamp(0, bins - 1);
  counts = counts.scatter_add(0, place, at::where(inside, amount, at::zeros_like(amount)));
  if (density) counts = counts.div(counts.sum().mul(edges.diff()));
  return {counts, edges.clone()};
}

// If `range` isn't given, waits for the least and the greatest element.
Histogram CountInRange(const Tensor& self, int64_t bins, std::optional<at::ArrayRef<double>> range,
                       const MaybeTensor& weight, bool density) {
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins);
  double low = 0, high = 1;
  if (range.has_value()) {
    TORCH_CHECK(range->size() == 2, "torch.histogram(): range should have 2 elements, but got ",
                range->size());
    low = (*range)[0];
    high = (*range)[1];
  } else if (self.numel() > 0) {
    const Tensor limits = at::stack({self.amin(), self.amax()}).cpu().to(at::kDouble);
    low = limits[0].item().toDouble();
    high = limits[1].item().toDouble();
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histogram(): range [", low, ", ",
              high, "] is not finite");
  TORCH_CHECK(low <= high, "torch.histogram(): min should not exceed max, but got min ", low,
              " max ", high);
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  return CountBetween(self, at::linspace(low, high, bins + 1, self.options()), weight, density);
}

std::tuple<Tensor&, Tensor&> CopyBoth(const Histogram& made, Tensor& counts, Tensor& edges) {
  return {CopyToOut(counts, std::get<0>(made)), CopyToOut(edges, std::get<1>(made))};
}
std::tuple<Tensor&, Tensor&> CountBetweenOut(const Tensor& self, const Tensor& edges,
                                             const MaybeTensor& weight, bool density,
                                             Tensor& counts, Tensor& edges_out) {
  return CopyBoth(CountBetween(self, edges, weight, density), counts, edges_out);
}
std::tuple<Tensor&, Tensor&> CountInRangeOut(const Tensor& self, int64_t bins,
                                             std::optional<at::ArrayRef<double>> range,
                                             const MaybeTensor& weight, bool density,
                                             Tensor& counts, Tensor& edges_out) {
  return CopyBoth(CountInRange(self, bins, range, weight, density), counts, edges_out);
}

// ---- unique slices

using Unique = std::tuple<Tensor, Tensor, Tensor>;

// Returns the lexicographic order of the rows. Sorts once for each column.
Tensor OrderOfRows(const Tensor& rows) {
  const Tensor columns =
      (rows.scalar_type() == at::kBool ? rows.to(at::kByte) : rows).t().contiguous();
  Tensor order = at::arange(rows.size(0), rows.options().dtype(at::kLong));
  for (int64_t i = columns.size(0) - 1; i >= 0; --i) {
    const Tensor keys = columns[i].index_select(0, order);
    // PyTorch puts NaN before all numbers, as a descending sort does. So this sorts -keys.
    const bool floats = at::isFloatingType(keys.scalar_type());
    const auto [sorted, moves] = (floats ? keys.neg() : keys).sort(/*stable=*/true, 0, floats);
    order = order.index_select(0, moves);
  }
  return order;
}

// Sorts the slices of an axis if `sort` is set, and drops each slice that equals the one before it.
// Waits for the number of the remaining slices.
Unique UniqueSlices(const Tensor& self, int64_t dim, bool sort, bool inverse, bool counts) {
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim()), size = self.size(axis);
  const at::TensorOptions indices = self.options().dtype(at::kLong);
  const Tensor none = at::empty({0}, indices);
  if (size == 0) return {at::empty(self.sizes(), self.options()), none, none};
  TORCH_CHECK(self.numel() > 0,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
              "applied");
  const Tensor rows = self.movedim(axis, 0).reshape({size, -1});
  const Tensor order = sort ? OrderOfRows(rows) : at::arange(size, indices);
  const Tensor ordered = sort ? rows.index_select(0, order) : rows;
  Tensor starts = at::ones({1}, self.options().dtype(at::kBool));
  if (size > 1) {
    const Tensor differs = ordered.narrow(0, 1, size - 1).ne(ordered.narrow(0, 0, size - 1));
    starts = at::cat({starts, differs.any(1)});
  }
  const Tensor first = MakeTensor(NonZero(Read(starts)), DeviceOf(self)).reshape({-1});
  const Tensor ends =
      at::cat({first.narrow(0, 1, first.numel() - 1), at::full({1}, size, indices)});
  const Tensor group = starts.cumsum(0).sub(1);
  c10::DimVector sizes(self.movedim(axis, 0).sizes());
  sizes[0] = first.numel();
  return {ordered.index_select(0, first).reshape(sizes).movedim(0, axis),
          inverse ? at::empty({size}, indices).scatter(0, order, group) : none,
          counts ? ends.sub(first) : none};
}
Unique UniqueDim(const Tensor& self, int64_t dim, bool, bool inverse, bool counts) {
  return UniqueSlices(self, dim, true, inverse, counts);
}
Unique UniqueDimConsecutive(const Tensor& self, int64_t dim, bool inverse, bool counts) {
  return UniqueSlices(self, dim, false, inverse, counts);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("histogram.bins_tensor", CountBetween);
  m.impl("histogram.bins_tensor_out", CountBetweenOut);
  m.impl("histogram.bin_ct", CountInRange);
  m.impl("histogram.bin_ct_out", CountInRangeOut);
  m.impl("unique_dim", UniqueDim);
  m.impl("unique_dim_consecutive", UniqueDimConsecutive);
}

}  // namespace torch_tensord
