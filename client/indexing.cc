#include "tensord/client/indexing.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/function_name.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using internal::NameFunction;
using internal::ToInts;
using Pointers = absl::InlinedVector<const Tensor*, 4>;

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

Attributes SliceAttrs(const SliceScatterOptions& options) {
  return {{"axis", options.axis},
          {"start", options.start},
          {"stop", options.stop},
          {"step", options.step}};
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

Tensor IndexSelect(const Tensor& x, int64_t axis, const Tensor& index) {
  if (index.ok() && index.shape().rank() != 1) {
    return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(
        "index_select: the index must have one dimension; it is ", index.spec().ToString())));
  }
  return NameFunction("index_select", {x, index}, Index(x, {index}, axis));
}

Tensor TakeAlongDim(const Tensor& x, const Tensor& index, int64_t axis) {
  return internal::Enqueue("take_along_dim", Pointers{&x, &index}, {{"axis", axis}});
}

Tensor Embedding(const Tensor& indices, const Tensor& weight) {
  return NameFunction("embedding", {indices, weight}, Index(weight, {indices}));
}

Tensor EmbeddingBackward(const Tensor& gradient, const Tensor& indices, int64_t rows,
                         const EmbeddingBackwardOptions& options) {
  std::vector<int64_t> padding;
  if (options.padding_idx.has_value()) padding.push_back(*options.padding_idx);
  return internal::Enqueue("embedding_backward", Pointers{&gradient, &indices},
                           {{"rows", rows},
                            {"padding_idx", std::move(padding)},
                            {"scale_grad_by_freq", options.scale_grad_by_freq}});
}

Tensor OneHot(const Tensor& indices, int64_t classes) {
  return internal::Enqueue("one_hot", Pointers{&indices}, {{"classes", classes}});
}

Tensor SelectScatter(const Tensor& x, const Tensor& src, int64_t axis, int64_t index) {
  return internal::Enqueue("select_scatter", Pointers{&x, &src},
                           {{"axis", axis}, {"index", index}});
}

Tensor SelectBackward(const Tensor& gradient, const Shape& shape, int64_t axis, int64_t index) {
  return internal::Enqueue("select_backward", Pointers{&gradient},
                           {{"shape", ToInts(shape.dims())}, {"axis", axis}, {"index", index}});
}

Tensor SliceScatter(const Tensor& x, const Tensor& src, const SliceScatterOptions& options) {
  return internal::Enqueue("slice_scatter", Pointers{&x, &src}, SliceAttrs(options));
}

Tensor SliceBackward(const Tensor& gradient, const Shape& shape,
                     const SliceScatterOptions& options) {
  Attributes attrs = SliceAttrs(options);
  attrs.Set("shape", ToInts(shape.dims()));
  return internal::Enqueue("slice_backward", Pointers{&gradient}, attrs);
}

Tensor MaskedFill(const Tensor& x, const Tensor& mask, Operand value) {
  return NameFunction("masked_fill", {x, mask, value}, Where(mask, value, x));
}

}  // namespace tensord
