// Group normalization and its gradient. In 16 bits, they are computed in float32, and each result
// is rounded once.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

using Ints = std::vector<int64_t>;

Value ReducedOver(const char* op, const Value& x, Ints axes, bool keepdims) {
  return Apply(op, {x}, {{"axes", std::move(axes)}, {"keepdims", keepdims}});
}

// x (N,C,…) and its groups.
struct Groups {
  int64_t n, groups, channels_per_group, pixels;

  Shape split() const { return {n, groups, channels_per_group, pixels}; }
  Shape lines() const { return {n, groups, channels_per_group * pixels}; }
  Shape parameters() const { return {1, groups, channels_per_group, 1}; }
};

// Returns the groups of x. Fails if x can't be split, or if an input from `first` on isn't a
// parameter of the shape (C).
Groups ReadGroups(Formula& f, const Value& x, int first) {
  f.RequireFloating();
  const int64_t groups = f.attrs().Int("groups");
  const Shape& shape = x.shape();
  if (shape.rank() < 2) {
    f.Fail("x needs at least two dimensions, (N,C,…)");
    return {};
  }
  const int64_t channels = shape.dim(1);
  if (groups < 1 || channels % groups != 0) {
    f.Fail(absl::StrCat("groups is ", groups, " and must divide the ", channels, " channels"));
    return {};
  }
  for (int i = first; i < f.num_inputs(); ++i) {
    if (f.input(i).shape() == Shape({channels})) continue;
    f.Fail(absl::StrCat("a parameter must have the shape [", channels, "]"));
  }
  int64_t pixels = 1;
  for (int d = 2; d < shape.rank(); ++d) pixels *= shape.dim(d);
  return {shape.dim(0), groups, channels / groups, pixels};
}

void GroupNorm(Formula& f) {
  const Value x = f.input(0);
  const Groups groups = ReadGroups(f, x, 1);
  if (!f.ok()) return;
  const DType wide = WideDType(x.dtype());
  // Without parameters, no later op rounds, so layer_norm may round to 16 bits.
  const Value lines = Reshape(f.num_inputs() > 1 ? x.To(wide) : x, groups.lines());
  const auto made = ApplyAll("layer_norm", {&lines, 1}, {{"eps", f.attrs().Float("eps")}});
  if (!f.ok()) return;
  Value y = made[0];
  if (f.num_inputs() > 1) {
    y = Reshape(y, groups.split()) * Reshape(f.input(1).To(wide), groups.parameters());
  }
  if (f.num_inputs() > 2) y = y + Reshape(f.input(2).To(wide), groups.parameters());
  f.Return(Reshape(y.To(x.dtype()), x.shape()));
  f.Return(Reshape(made[1], {groups.n, groups.groups}));
  f.Return(Reshape(made[2], {groups.n, groups.groups}));
}

void GroupNormBackward(Formula& f) {
  const Value x = f.input(1);
  const Groups groups = ReadGroups(f, x, 4);
  const Shape statistics({groups.n, groups.groups});
  if (f.input(0).shape() != x.shape()) f.Fail("the gradient must have the shape of x");
  if (f.input(2).shape() != statistics || f.input(3).shape() != statistics) {
    f.Fail(absl::StrCat("mean and rstd must have the shape ", statistics.ToString()));
  }
  const Ints given = f.attrs().Ints("gradients");
  if (const absl::Status status = CheckGradients(given); !status.ok()) f.Fail(status.message());
  if (!f.ok()) return;
  const DType wide = WideDType(x.dtype());
  const auto split = [&](const Value& v) { return Reshape(v.To(wide), groups.split()); };
  const auto statistic = [&](int i) {
    return Reshape(f.input(i).To(wide), {groups.n, groups.groups, 1, 1});
  };
  const Value g = split(f.input(0)), rstd = statistic(3);
  const Value normal = (split(x) - statistic(2)) * rstd;
  const auto gx = [&] {
    Value scaled = g;
    if (f.num_inputs() > 4) scaled = g * Reshape(f.input(4).To(wide), groups.parameters());
    const Value average = ReducedOver("mean", scaled, {2, 3}, true);
    const Value mean_of_product = ReducedOver("mean", scaled * normal, {2, 3}, true);
    return (scaled - average - normal * mean_of_product) * rstd;
  };
  const Shape parameter_shape = {x.shape().dim(1)};
  const DType parameter = f.num_inputs() > 4 ? f.input(4).dtype() : x.dtype();
  for (const int64_t operand : given.empty() ? Ints{0, 1, 2} : given) {
    if (operand == 0) {
      f.Return(Reshape(gx().To(x.dtype()), x.shape()));
    } else {
      const Value sum = ReducedOver("sum", operand == 1 ? g * normal : g, {0, 3}, false);
      f.Return(Reshape(sum.To(parameter), parameter_shape));
    }
  }
}

void AppendGroupNorm(std::vector<OpSchema>& ops) {
  const AttrDef groups = RequiredAttr("groups", AttrType::kInt, "the number of groups of channels");
  ops.push_back(
      {.name = "group_norm",
       .signature = "x (N,C,…), weight (C), bias (C) -> y (N,C,…), mean, rstd (N,groups)",
       .doc = "(x - mean) * rstd * weight + bias, where rstd is 1 / sqrt(variance + eps) "
              "over a group of channels.",
       .min_inputs = 1,
       .max_inputs = 3,
       .attrs = {groups, OptionalAttr("eps", AttrType::kFloat, 1e-5, "added to the variance")},
       .input_names = {"x", "weight", "bias"},
       .formula = GroupNorm});
  ops.push_back(
      {.name = "group_norm_backward",
       .signature = "gradient, x (N,C,…), mean, rstd (N,groups), weight (C) -> "
                    "gx (N,C,…), gweight, gbias (C)",
       .doc = "The gradients of x, weight and bias, from the gradient of y and the statistics of "
              "group_norm.",
       .min_inputs = 4,
       .max_inputs = 5,
       .attrs = {groups, GradientsAttr()},
       .input_names = {"gradient", "x", "mean", "rstd", "weight"},
       .formula = GroupNormBackward});
}

}  // namespace
}  // namespace formula

void AppendNormalizationCompositions(std::vector<OpSchema>& ops) { formula::AppendGroupNorm(ops); }

}  // namespace tensord
