#include "tensord/client/selection.h"

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/indexing.h"
#include "tensord/client/internal/function_name.h"
#include "tensord/client/ops.h"
#include "tensord/client/sorting.h"

namespace tensord {
namespace {

using internal::NameFunction;

UniqueResult FailedUnique(const absl::Status& status) {
  return {Tensor::Failed(status), Tensor::Failed(status), Tensor::Failed(status)};
}

// Returns the positions of the true elements of a vector. Waits for their number.
Tensor PositionsOf(const Tensor& mask) {
  const absl::StatusOr<int64_t> count = CountNonzero(mask).Item<int64_t>();
  if (!count.ok()) return Tensor::Failed(count.status());
  return Reshape(NonZero(mask, *count), {*count});
}

}  // namespace

Tensor MaskedSelect(const Tensor& x, const Tensor& mask) {
  if (!x.ok()) return x;
  if (!mask.ok()) return mask;
  if (mask.dtype() != DType::kBool) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat("masked_select: the mask must be bool, and is ", mask.spec().ToString())));
  }
  const absl::StatusOr<Shape> shape = BroadcastShapes(x.shape(), mask.shape());
  if (!shape.ok()) {
    return Tensor::Failed(
        absl::InvalidArgumentError(absl::StrCat("masked_select: ", shape.status().message())));
  }
  const Tensor flat_mask = Reshape(BroadcastTo(mask, *shape), {-1});
  const Tensor flat = Reshape(BroadcastTo(x, *shape), {-1});
  return NameFunction("masked_select", {x, mask}, Index(flat, {PositionsOf(flat_mask)}));
}

UniqueResult Unique(const Tensor& x) {
  if (!x.ok()) return FailedUnique(x.status());
  const int64_t size = x.num_elements();
  const auto [sorted, order] = Sort(Reshape(x, {size}));
  if (!sorted.ok()) return FailedUnique(NameFunction("unique", {x}, sorted).status());
  if (size == 0) return {sorted, Reshape(order, x.shape()), order};
  // Each value begins where an element differs from the one before.
  const Tensor begins = Concat({Ones(x.device(), {1}, {.dtype = DType::kBool}),
                                Ne(Slice(sorted, {1}, {size}), Slice(sorted, {0}, {size - 1}))});
  const Tensor starts = PositionsOf(begins);
  if (!starts.ok()) return FailedUnique(starts.status());
  const Tensor end = Full(x.device(), {1}, size, {.dtype = DType::kInt64});
  const Tensor number = CumSum(begins, 0) - 1;  // of the value, for each sorted element
  return {Index(sorted, {starts}), Reshape(Scatter(order, 0, order, number), x.shape()),
          Concat({Slice(starts, {1}, {kToEnd}), end}) - starts};
}

}  // namespace tensord
