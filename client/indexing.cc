#include "tensord/client/indexing.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using Pointers = absl::InlinedVector<const Tensor*, 4>;

std::vector<int64_t> ToInts(absl::Span<const int64_t> values) {
  return std::vector<int64_t>(values.begin(), values.end());
}

// Runs an op that changes input 0.
Tensor Update(absl::string_view op, const Pointers& inputs, const Attributes& attrs, bool donate) {
  if (!donate) return internal::Enqueue(op, inputs, attrs);
  constexpr int kFirst[] = {0};
  absl::StatusOr<internal::Tensors> outputs = internal::EnqueueAll(op, inputs, attrs, kFirst);
  return outputs.ok() ? std::move(outputs->front()) : Tensor::Failed(outputs.status());
}

std::string NameOf(ScatterReduction reduce) {
  switch (reduce) {
    case ScatterReduction::kAdd:
      return "add";
    case ScatterReduction::kMul:
      return "mul";
    case ScatterReduction::kMax:
      return "max";
    case ScatterReduction::kMin:
      return "min";
    default:
      return "none";
  }
}

Attributes ViewAttrs(const Shape& shape, absl::Span<const int64_t> strides, int64_t offset) {
  return {{"shape", ToInts(shape.dims())}, {"strides", ToInts(strides)}, {"offset", offset}};
}

}  // namespace

Tensor Index(const Tensor& x, absl::Span<const Tensor> indices, int64_t axis) {
  Pointers inputs = {&x};
  for (const Tensor& index : indices) inputs.push_back(&index);
  return internal::Enqueue("index", inputs, {{"axis", axis}});
}

Tensor Gather(const Tensor& x, int64_t axis, const Tensor& index) {
  return internal::Enqueue("gather", Pointers{&x, &index}, {{"axis", axis}});
}

Tensor IndexPut(const Tensor& x, absl::Span<const Tensor> indices, const Tensor& values,
                const IndexPutOptions& options) {
  Pointers inputs = {&x};
  for (const Tensor& index : indices) inputs.push_back(&index);
  inputs.push_back(&values);
  const std::string reduce = options.accumulate ? "add" : "none";
  return Update("index_put", inputs, {{"axis", options.axis}, {"reduce", reduce}}, options.donate);
}

Tensor Scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& src,
               const ScatterOptions& options) {
  return Update("scatter", {&x, &index, &src}, {{"axis", axis}, {"reduce", NameOf(options.reduce)}},
                options.donate);
}

Tensor ScatterAdd(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& src) {
  return Scatter(x, axis, index, src, {.reduce = ScatterReduction::kAdd});
}

Tensor AsStrided(const Tensor& x, const Shape& shape, absl::Span<const int64_t> strides,
                 int64_t offset) {
  return internal::Enqueue("as_strided", Pointers{&x}, ViewAttrs(shape, strides, offset));
}

Tensor AsStridedScatter(const Tensor& x, const Tensor& src, const Shape& shape,
                        absl::Span<const int64_t> strides, const AsStridedScatterOptions& options) {
  return Update("as_strided_scatter", {&x, &src}, ViewAttrs(shape, strides, options.offset),
                options.donate);
}

Tensor Bitcast(const Tensor& x, DType dtype) {
  return internal::Enqueue("bitcast", Pointers{&x}, {{"dtype", dtype}});
}

}  // namespace tensord
