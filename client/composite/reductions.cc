#include "tensord/client/composite/reductions.h"

#include "tensord/client/composite/elementwise.h"
#include "tensord/client/internal/composite.h"
#include "tensord/common/dtype.h"

namespace tensord {
namespace {

using internal::Composite;
using internal::Has16Bits;

}  // namespace

Tensor Var(const Tensor& x, const VarOptions& options) {
  return Composite("var", {x}, VarMean(x, options).var);
}

Tensor Std(const Tensor& x, const VarOptions& options) {
  if (!x.ok() || !Has16Bits(x.dtype())) {
    return Composite("std", {x}, Sqrt(VarMean(x, options).var));
  }
  return Composite("std", {x}, Sqrt(VarMean(x.To(DType::kFloat32), options).var).To(x.dtype()));
}

Tensor All(const Tensor& x, const ReduceOptions& options) {
  const Tensor count = CountNonzero(x, options);
  const int64_t outputs = count.num_elements();
  return Composite("all", {x}, Eq(count, outputs == 0 ? 0 : x.num_elements() / outputs));
}

Tensor Any(const Tensor& x, const ReduceOptions& options) {
  return Composite("any", {x}, Ne(CountNonzero(x, options), 0));
}

Tensor LogSumExp(const Tensor& x, const ReduceOptions& options) {
  if (!x.ok()) return x;
  if (Has16Bits(x.dtype())) return LogSumExp(x.To(DType::kFloat32), options).To(x.dtype());
  if (!IsFloating(x.dtype())) return LogSumExp(x.To(DType::kFloat32), options);
  const AccumulateOptions sum = {.axes = options.axes, .keepdims = options.keepdims};
  if (x.num_elements() == 0) {  // an extremum needs an element
    return Composite("log_sum_exp", {x}, Log(Sum(Exp(x), sum)));
  }
  const Tensor max = Max(x, {.axes = options.axes, .keepdims = true});
  const Tensor origin = Where(IsFinite(max), max, 0);  // the distance from an infinity may be NaN
  const Tensor log = Log(Sum(Exp(x - origin), sum));
  return Composite("log_sum_exp", {x}, log.ok() ? log + Reshape(origin, log.shape()) : log);
}

}  // namespace tensord
