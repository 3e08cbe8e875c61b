#include "tensord/client/ops.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/activation.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/operands.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

using internal::Enqueue;

Tensor Unary(absl::string_view op, const Tensor& x, const Attributes& attrs = {}) {
  const Tensor* inputs[] = {&x};
  return Enqueue(op, inputs, attrs);
}

Tensor Binary(absl::string_view op, const Tensor& a, const Tensor& b,
              const Attributes& attrs = {}) {
  const Tensor* inputs[] = {&a, &b};
  return Enqueue(op, inputs, attrs);
}

Tensor Binary(absl::string_view op, const Operand& a, const Operand& b) {
  if (a.tensor() != nullptr && b.tensor() != nullptr) return Binary(op, *a.tensor(), *b.tensor());
  return internal::RunOperands(op, {a, b});
}

Attributes ReduceAttrs(const std::vector<int64_t>& axes, bool keepdims) {
  Attributes attrs;
  if (!axes.empty()) attrs.Set("axes", axes);
  if (keepdims) attrs.Set("keepdims", true);
  return attrs;
}

Tensor Reduce(absl::string_view op, const Tensor& x, const ReduceOptions& options) {
  return Unary(op, x, ReduceAttrs(options.axes, options.keepdims));
}

Attributes VarAttrs(const VarOptions& options) {
  Attributes attrs = ReduceAttrs(options.axes, options.keepdims);
  if (options.correction != 1) attrs.Set("correction", options.correction);
  return attrs;
}

Tensor Accumulate(absl::string_view op, const Tensor& x, const AccumulateOptions& options) {
  Attributes attrs = ReduceAttrs(options.axes, options.keepdims);
  if (options.dtype.has_value()) attrs.Set("dtype", *options.dtype);
  return Unary(op, x, attrs);
}

Tensor RunScan(absl::string_view op, const Tensor& x, int64_t axis, const ScanOptions& options) {
  Attributes attrs = {{"axis", axis}};
  if (options.dtype.has_value()) attrs.Set("dtype", *options.dtype);
  if (options.exclusive) attrs.Set("exclusive", true);
  if (options.reverse) attrs.Set("reverse", true);
  return Unary(op, x, attrs);
}

Attributes LinearAttrs(const LinearOptions& options) {
  Attributes attrs;
  if (options.activation != Activation::kNone) {
    attrs.Set("activation", std::string(internal::ActivationName(options.activation)));
  }
  if (options.allow_tf32) attrs.Set("allow_tf32", true);
  return attrs;
}

// Returns the error of an axis of Transpose, which the client resolves itself.
absl::Status AxisError(const Tensor& x, const absl::Status& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("transpose: ", error.message(), "; input is ", x.spec().ToString()));
}

}  // namespace

Tensor RunOp(absl::string_view op, absl::Span<const Tensor> inputs, const Attributes& attrs) {
  if (inputs.empty()) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat(op, ": no inputs; an op without inputs needs a device")));
  }
  absl::InlinedVector<const Tensor*, 3> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  return Enqueue(op, pointers, attrs);
}

StatusOrVector<Tensor> RunOpWithOutputs(absl::string_view op, absl::Span<const Tensor> inputs,
                                        const Attributes& attrs, const RunOptions& options) {
  if (inputs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": no inputs; an op without inputs needs a device"));
  }
  absl::InlinedVector<const Tensor*, 3> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  TENSORD_ASSIGN_OR_RETURN(internal::Tensors outputs,
                           internal::EnqueueAll(op, pointers, attrs, options.donate));
  return std::vector<Tensor>(std::make_move_iterator(outputs.begin()),
                             std::make_move_iterator(outputs.end()));
}

Tensor RunOp(const Device& device, absl::string_view op, const Attributes& attrs) {
  return internal::EnqueueCreation(op, device, attrs);
}

#define TENSORD_DEFINE(name, Function, typing, cost, doc) \
  Tensor Function(const Tensor& x) { return Unary(#name, x); }
TENSORD_UNARY_OPS(TENSORD_DEFINE)
#undef TENSORD_DEFINE

#define TENSORD_DEFINE(name, Function, typing, cost, doc) \
  Tensor Function(Operand a, Operand b) { return Binary(#name, a, b); }
TENSORD_BINARY_OPS(TENSORD_DEFINE)
#undef TENSORD_DEFINE

Tensor operator+(const Tensor& a, Operand b) { return Add(a, b); }
Tensor operator+(Scalar a, const Tensor& b) { return Add(a, b); }
Tensor operator-(const Tensor& a, Operand b) { return Sub(a, b); }
Tensor operator-(Scalar a, const Tensor& b) { return Sub(a, b); }
Tensor operator*(const Tensor& a, Operand b) { return Mul(a, b); }
Tensor operator*(Scalar a, const Tensor& b) { return Mul(a, b); }
Tensor operator/(const Tensor& a, Operand b) { return Div(a, b); }
Tensor operator/(Scalar a, const Tensor& b) { return Div(a, b); }
Tensor operator-(const Tensor& x) { return Neg(x); }

Tensor Gelu(const Tensor& x, GeluApproximation approximate) {
  Attributes attrs;
  if (approximate == GeluApproximation::kTanh) attrs.Set("approximate", std::string("tanh"));
  return Unary("gelu", x, attrs);
}

Tensor Cast(const Tensor& x, DType dtype) { return Unary("cast", x, {{"dtype", dtype}}); }

Tensor Conj(const Tensor& x) { return Unary("conj", x); }

Tensor Where(const Tensor& condition, Operand x, Operand y) {
  return internal::RunOperands("where", {condition, x, y}, /*first=*/1);
}

Tensor Matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  Attributes attrs;
  if (options.transpose_a) attrs.Set("transpose_a", true);
  if (options.transpose_b) attrs.Set("transpose_b", true);
  if (options.allow_tf32) attrs.Set("allow_tf32", true);
  return Binary("matmul", a, b, attrs);
}

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const LinearOptions& options) {
  if (bias.state() == nullptr && x.ok() && weight.ok()) {
    return Tensor::Failed(absl::InvalidArgumentError(
        "linear: the bias is an empty Tensor; for a layer without a bias, leave it out"));
  }
  const Tensor* inputs[] = {&x, &weight, &bias};
  return Enqueue("linear", inputs, LinearAttrs(options));
}

Tensor Linear(const Tensor& x, const Tensor& weight, const LinearOptions& options) {
  return Binary("linear", x, weight, LinearAttrs(options));
}

Tensor Sum(const Tensor& x, const AccumulateOptions& options) {
  return Accumulate("sum", x, options);
}
Tensor Prod(const Tensor& x, const AccumulateOptions& options) {
  return Accumulate("prod", x, options);
}
Tensor CountNonzero(const Tensor& x, const ReduceOptions& options) {
  return Reduce("count_nonzero", x, options);
}
VarAndMean VarMean(const Tensor& x, const VarOptions& options) {
  const Tensor* inputs[] = {&x};
  absl::StatusOr<internal::Tensors> outputs =
      internal::EnqueueAll("var_mean", inputs, VarAttrs(options), {});
  if (!outputs.ok()) return {Tensor::Failed(outputs.status()), Tensor::Failed(outputs.status())};
  return {std::move((*outputs)[0]), std::move((*outputs)[1])};
}
Tensor CumSum(const Tensor& x, int64_t axis, const ScanOptions& options) {
  return RunScan("cumsum", x, axis, options);
}
Tensor CumProd(const Tensor& x, int64_t axis, const ScanOptions& options) {
  return RunScan("cumprod", x, axis, options);
}
Tensor Mean(const Tensor& x, const ReduceOptions& options) { return Reduce("mean", x, options); }
Tensor Var(const Tensor& x, const VarOptions& options) {
  return Unary("var", x, VarAttrs(options));
}
Tensor Std(const Tensor& x, const VarOptions& options) {
  return Unary("std", x, VarAttrs(options));
}
Tensor All(const Tensor& x, const ReduceOptions& options) { return Reduce("all", x, options); }
Tensor Any(const Tensor& x, const ReduceOptions& options) { return Reduce("any", x, options); }
Tensor Max(const Tensor& x, const ReduceOptions& options) { return Reduce("max", x, options); }
Tensor Min(const Tensor& x, const ReduceOptions& options) { return Reduce("min", x, options); }
Tensor LogSumExp(const Tensor& x, const ReduceOptions& options) {
  return Reduce("logsumexp", x, options);
}
Tensor Argmax(const Tensor& x, const ReduceOptions& options) {
  return Reduce("argmax", x, options);
}
Tensor Argmin(const Tensor& x, const ReduceOptions& options) {
  return Reduce("argmin", x, options);
}

Tensor Norm(const Tensor& x, const NormOptions& options) {
  Attributes attrs = ReduceAttrs(options.axes, options.keepdims);
  if (options.ord != 2) attrs.Set("ord", options.ord);
  return Unary("norm", x, attrs);
}

Tensor Softmax(const Tensor& x, int64_t axis) { return Unary("softmax", x, {{"axis", axis}}); }
Tensor LogSoftmax(const Tensor& x, int64_t axis) {
  return Unary("log_softmax", x, {{"axis", axis}});
}

Tensor Reshape(const Tensor& x, const Shape& shape) {
  return Unary("reshape", x, {{"shape", internal::ToInts(shape.dims())}});
}

Tensor Permute(const Tensor& x, absl::Span<const int64_t> axes) {
  return Unary("permute", x, {{"axes", internal::ToInts(axes)}});
}

Tensor Transpose(const Tensor& x, int64_t axis0, int64_t axis1) {
  if (!x.ok()) return x;
  std::vector<int64_t> axes(x.rank());
  for (int i = 0; i < x.rank(); ++i) axes[i] = i;
  const absl::StatusOr<int> first = NormalizeAxis(axis0, x.rank());
  if (!first.ok()) return Tensor::Failed(AxisError(x, first.status()));
  const absl::StatusOr<int> second = NormalizeAxis(axis1, x.rank());
  if (!second.ok()) return Tensor::Failed(AxisError(x, second.status()));
  std::swap(axes[*first], axes[*second]);
  return Permute(x, axes);
}

Tensor Slice(const Tensor& x, absl::Span<const int64_t> starts, absl::Span<const int64_t> stops,
             const SliceOptions& options) {
  Attributes attrs = {{"starts", internal::ToInts(starts)}, {"stops", internal::ToInts(stops)}};
  if (!options.axes.empty()) attrs.Set("axes", options.axes);
  if (!options.steps.empty()) attrs.Set("steps", options.steps);
  return Unary("slice", x, attrs);
}

Tensor Concat(absl::Span<const Tensor> tensors, int64_t axis) {
  if (tensors.empty()) {
    return Tensor::Failed(
        absl::InvalidArgumentError("concat: the list of tensors is empty; give at least one"));
  }
  return RunOp("concat", tensors, {{"axis", axis}});
}

Tensor BroadcastTo(const Tensor& x, const Shape& shape) {
  return Unary("broadcast_to", x, {{"shape", internal::ToInts(shape.dims())}});
}

}  // namespace tensord
