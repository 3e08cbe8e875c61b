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

}  // namespace tensord
