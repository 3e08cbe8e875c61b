// Reductions that are compositions. They are computed in float32 if the input has 16 bits, and rounded
// once. Integers and bool give float32.
#include <limits>
#include <vector>

#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// Subtracts the maximum before exp(), which then doesn't overflow. If the maximum is an infinity or NaN,
// subtracts 0 instead.
void Logsumexp(Formula& f) {
  const Value x = f.input(0);
  const DType dtype = FloatingDType(x.dtype());
  const Value wide = x.To(WideDType(dtype));
  const auto reduce = [&](const char* op, const Value& operand, bool keepdims) {
    return Apply(op, {operand}, {{"axes", f.attrs().Ints("axes")}, {"keepdims", keepdims}});
  };
  const bool keepdims = f.attrs().Bool("keepdims");
  // An extremum needs an element.
  if (wide.shape().num_elements() == 0) {
    return f.Return(Log(reduce("sum", Exp(wide), keepdims)).To(dtype));
  }
  const Value max = reduce("max", wide, true);
  const Value origin = Where(Lt(Abs(max), std::numeric_limits<double>::infinity()), max, 0);
  const Value log = Log(reduce("sum", Exp(wide - origin), keepdims));
  if (f.ok()) f.Return((log + Reshape(origin, log.shape())).To(dtype));
}

}  // namespace
}  // namespace formula

void AppendReductionCompositions(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "logsumexp",
                 .signature = "(…) -> (…) without the axes",
                 .doc = "log(sum(exp(x))), without overflow; -inf if there are no elements.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = ReductionAttrs(),
                 .formula = formula::Logsumexp});
}

}  // namespace tensord
