// Reductions that are compositions. logsumexp, var and std are computed in float32 if the input has
// 16 bits, and rounded once. logsumexp of integers and bool is float32. var and std take floating
// inputs.
#include <vector>

#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// Subtracts the maximum before exp(), which then doesn't overflow. If the maximum is an infinity or
// NaN, subtracts 0 instead.
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
  const Value origin = Where(Lt(Abs(max), kInfinity), max, 0);
  const Value log = Log(reduce("sum", Exp(wide - origin), keepdims));
  if (f.ok()) f.Return((log + Reshape(origin, log.shape())).To(dtype));
}

Attributes AxesOf(const Formula& f) {
  return {{"axes", f.attrs().Ints("axes")}, {"keepdims", f.attrs().Bool("keepdims")}};
}

void All(Formula& f) {
  const Value x = f.input(0), count = Apply("count_nonzero", {x}, AxesOf(f));
  if (!f.ok()) return;
  const int64_t results = count.shape().num_elements();
  f.Return(Eq(count, results == 0 ? 0 : x.shape().num_elements() / results));
}

void Any(Formula& f) { f.Return(Ne(Apply("count_nonzero", {f.input(0)}, AxesOf(f)), 0)); }

Value Variance(const Formula& f, const Value& x) {
  Attributes attrs = AxesOf(f);
  attrs.Set("correction", f.attrs().Float("correction"));
  return Apply("var_mean", {x}, attrs);
}

void Var(Formula& f) { f.Return(Variance(f, f.input(0))); }

void Std(Formula& f) {
  const Value x = f.input(0);
  f.Return(Sqrt(Variance(f, x.To(WideDType(x.dtype())))).To(x.dtype()));
}

OpSchema Reduction(const char* name, const char* doc, void (*formula)(Formula&)) {
  return {.name = name,
          .signature = "(…) -> (…) without the axes",
          .doc = doc,
          .min_inputs = 1,
          .max_inputs = 1,
          .attrs = ReductionAttrs(),
          .formula = formula};
}

OpSchema Spread(const char* name, const char* doc, void (*formula)(Formula&)) {
  OpSchema schema = Reduction(name, doc, formula);
  schema.attrs.push_back(CorrectionAttr());
  return schema;
}

}  // namespace
}  // namespace formula

void AppendReductionCompositions(std::vector<OpSchema>& ops) {
  ops.push_back(formula::Reduction(
      "logsumexp", "log(sum(exp(x))), without overflow; -inf if there are no elements.",
      formula::Logsumexp));
  ops.push_back(formula::Reduction(
      "all", "Whether all elements are nonzero, as bool; true for no elements. NaN isn't zero.",
      formula::All));
  ops.push_back(formula::Reduction(
      "any", "Whether any element is nonzero, as bool; false for no elements. NaN isn't zero.",
      formula::Any));
  ops.push_back(formula::Spread(
      "var", "The variance: the squared deviations divided by n - correction.", formula::Var));
  ops.push_back(
      formula::Spread("std", "The standard deviation, the square root of var.", formula::Std));
}

}  // namespace tensord
