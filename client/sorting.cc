#include "tensord/client/sorting.h"

#include <utility>

#include "tensord/client/internal/enqueue.h"

namespace tensord {
namespace {

ValuesAndIndices Unpack(absl::StatusOr<internal::Tensors> outputs) {
  if (!outputs.ok()) return {Tensor::Failed(outputs.status()), Tensor::Failed(outputs.status())};
  return {std::move((*outputs)[0]), std::move((*outputs)[1])};
}

}  // namespace

ValuesAndIndices Sort(const Tensor& x, const SortOptions& options) {
  const Tensor* const inputs[] = {&x};
  return Unpack(internal::EnqueueAll(
      "sort", inputs, {{"axis", options.axis}, {"descending", options.descending}}, {}));
}

Tensor ArgSort(const Tensor& x, const SortOptions& options) { return Sort(x, options).indices; }

ValuesAndIndices TopK(const Tensor& x, int64_t k, const TopKOptions& options) {
  const Tensor* const inputs[] = {&x};
  return Unpack(internal::EnqueueAll(
      "topk", inputs, {{"k", k}, {"axis", options.axis}, {"largest", options.largest}}, {}));
}

Tensor SearchSorted(const Tensor& sorted, const Tensor& x, const SearchSortedOptions& options) {
  const Tensor* const inputs[] = {&sorted, &x};
  return internal::Enqueue("searchsorted", inputs, {{"right", options.right}});
}

Tensor NonZero(const Tensor& x, int64_t size) {
  const Tensor* const inputs[] = {&x};
  return internal::Enqueue("nonzero", inputs, {{"size", size}});
}

}  // namespace tensord
