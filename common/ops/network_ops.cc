// The gradient of softmax, and normalization.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status InferSoftmaxBackward(InferenceContext& ctx) {
  const Shape& shape = ctx.input(0).shape;
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, dtype));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 1, shape, "that of the gradient"));
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), shape.rank()));
  ctx.SetAttr("axis", axis);
  ctx.AddOutput(dtype, shape);
  return absl::OkStatus();
}

// The shapes of layer_norm.
struct LayerNormShapes {
  Shape normalized;  // the last dimensions of x
  Shape statistics;  // that of x, with 1 for these dimensions
};

absl::StatusOr<LayerNormShapes> ReadLayerNormShapes(const InferenceContext& ctx, const Shape& x) {
  const int64_t count = ctx.attrs().Int("normalized_rank");
  if (count < 1 || count > x.rank()) {
    return ctx.Error(absl::StrCat("normalized_rank is ", count, " and must be from 1 to the ",
                                  x.rank(), " dimensions of x"));
  }
  LayerNormShapes shapes;
  for (int d = 0; d < x.rank(); ++d) {
    const bool normalized = d >= x.rank() - count;
    if (normalized) shapes.normalized.AppendDim(x.dim(d));
    shapes.statistics.AppendDim(normalized ? 1 : x.dim(d));
  }
  return shapes;
}

absl::Status CheckEps(const InferenceContext& ctx) {
  const double eps = ctx.attrs().Float("eps");
  if (std::isfinite(eps)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("eps is ", eps, ": name a finite number"));
}

absl::Status InferLayerNorm(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(0);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  TENSORD_RETURN_IF_ERROR(CheckEps(ctx));
  TENSORD_ASSIGN_OR_RETURN(const LayerNormShapes shapes, ReadLayerNormShapes(ctx, x.shape));
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, i, x.dtype, shapes.normalized));
  }
  ctx.AddOutput(x.dtype, x.shape);
  if (ctx.attrs().Bool("center")) ctx.AddOutput(StatisticsDType(x.dtype), shapes.statistics);
  ctx.AddOutput(StatisticsDType(x.dtype), shapes.statistics);
  return absl::OkStatus();
}

// Brings the attribute "gradients" into normal form: at least one of the numbers 0 (x), 1 (weight)
// and 2 (bias), ascending. If it is empty, it becomes `all`. Adds an output for each number.
// `weight` is the position of the weight among the inputs, or -1 if there is none.
absl::Status AddGradients(InferenceContext& ctx, std::vector<int64_t> all, const TensorSpec& x,
                          int weight, const Shape& parameters) {
  std::vector<int64_t> gradients = ctx.attrs().Ints("gradients");
  if (gradients.empty()) gradients = std::move(all);
  if (const absl::Status status = CheckGradients(gradients); !status.ok()) {
    return ctx.Error(status.message());
  }
  for (const int64_t operand : gradients) {
    if (operand == 0) {
      ctx.AddOutput(x.dtype, x.shape);
    } else {
      ctx.AddOutput(weight < 0 ? x.dtype : ctx.input(weight).dtype, parameters);
    }
  }
  ctx.SetAttr("gradients", std::move(gradients));
  return absl::OkStatus();
}

// Checks the dtype and the shape of an input that holds statistics of the forward op.
absl::Status RequireStatistics(const InferenceContext& ctx, int input, DType x, const Shape& shape,
                               absl::string_view whose) {
  TENSORD_RETURN_IF_ERROR(
      RequireDType(ctx, input, StatisticsDType(x), "the dtype of the forward op's result"));
  return RequireShape(ctx, input, shape, whose);
}

absl::Status InferLayerNormBackward(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(1);
  const bool center = ctx.attrs().Bool("center");
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  TENSORD_RETURN_IF_ERROR(RequireDType(ctx, 0, x.dtype, "that of x"));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 0, x.shape, "that of x"));
  TENSORD_ASSIGN_OR_RETURN(const LayerNormShapes shapes, ReadLayerNormShapes(ctx, x.shape));
  const int statistics = center ? 2 : 1, weight = 2 + statistics;
  if (ctx.num_inputs() < weight) return ctx.Error("with center, needs the mean as input 3");
  if (ctx.num_inputs() > weight + 1) {
    return ctx.Error("without center, takes no mean: the inputs are gradient, x, rstd and weight");
  }
  for (int i = 2; i < weight; ++i) {
    TENSORD_RETURN_IF_ERROR(RequireStatistics(ctx, i, x.dtype, shapes.statistics,
                                              "that of x with 1 for the normalized dimensions"));
  }
  const bool has_weight = ctx.num_inputs() > weight;
  if (has_weight) {
    TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, weight, x.dtype, shapes.normalized));
  }
  std::vector<int64_t> all = {0, 1};
  if (center) all.push_back(2);
  return AddGradients(ctx, std::move(all), x, has_weight ? weight : -1, shapes.normalized);
}

// Checks that x has channels, and returns their number as the shape of parameters and statistics.
absl::StatusOr<Shape> ReadChannels(const InferenceContext& ctx, const TensorSpec& x) {
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  if (x.shape.rank() < 2) {
    return ctx.Error(
        absl::StrCat("x has ", x.shape.rank(), " dimensions, and needs at least two: (N,C,…)"));
  }
  return Shape({x.shape.dim(1)});
}

absl::Status InferBatchNorm(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(0);
  TENSORD_ASSIGN_OR_RETURN(const Shape channels, ReadChannels(ctx, x));
  TENSORD_RETURN_IF_ERROR(CheckEps(ctx));
  const double momentum = ctx.attrs().Float("momentum");
  if (!std::isfinite(momentum)) {
    return ctx.Error(absl::StrCat("momentum is ", momentum, ": name a finite number"));
  }
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, i, x.dtype, channels));
  }
  ctx.AddOutput(x.dtype, x.shape);
  if (!ctx.attrs().Bool("training")) return absl::OkStatus();
  if (channels.num_elements() > 0 && x.num_elements() / channels.num_elements() < 2) {
    return ctx.Error("training needs two or more elements of each channel");
  }
  for (int i = 0; i < 2; ++i) ctx.AddOutput(StatisticsDType(x.dtype), channels);
  for (int i = 1; i <= 2; ++i) ctx.AddOutput(ctx.input(i).dtype, channels);
  return absl::OkStatus();
}

absl::Status InferBatchNormBackward(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(1);
  TENSORD_ASSIGN_OR_RETURN(const Shape channels, ReadChannels(ctx, x));
  TENSORD_RETURN_IF_ERROR(RequireDType(ctx, 0, x.dtype, "that of x"));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 0, x.shape, "that of x"));
  for (int i = 2; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(ReadParameter(ctx, i, x.dtype, channels));
  }
  return AddGradients(ctx, {0, 1, 2}, x, ctx.num_inputs() > 4 ? 4 : -1, channels);
}

AttrDef NormalizedRank() {
  return OptionalAttr("normalized_rank", AttrType::kInt, int64_t{1},
                      "the number of last dimensions that are normalized together");
}
AttrDef Eps() {
  return OptionalAttr("eps", AttrType::kFloat, 1e-5, "added to the variance, or mean square");
}
AttrDef Center() {
  return OptionalAttr("center", AttrType::kBool, true,
                      "false: RMS norm, which doesn't subtract the mean and has no output mean");
}
AttrDef Training() {
  return OptionalAttr("training", AttrType::kBool, false,
                      "true: by the statistics of x; false: by the running ones");
}

void AppendBatchNormOps(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "batch_norm",
                 .signature = "x (N,C,…), running_mean (C), running_var (C), weight (C), bias (C) "
                              "-> y (N,C,…)[, mean (C), invstd (C), running_mean (C), "
                              "running_var (C)]",
                 .doc =
                     "(x - mean) * invstd * weight + bias for each channel; in training also the "
                     "statistics, and the updated running ones.",
                 .min_inputs = 3,
                 .max_inputs = 5,
                 .attrs = {Training(),
                           OptionalAttr("momentum", AttrType::kFloat, 0.1,
                                        "the share of x's statistics in the updated running ones"),
                           Eps()},
                 .infer = InferBatchNorm,
                 .cost = OpCost::kCopy,
                 .input_names = {"x", "running_mean", "running_var", "weight", "bias"}});
  ops.push_back({.name = "batch_norm_backward",
                 .signature = "gradient (N,C,…), x (N,C,…), mean (C), invstd (C), weight (C) -> "
                              "gx (N,C,…), gweight (C), gbias (C)",
                 .doc =
                     "The gradients of batch_norm, from its result's gradient and the statistics "
                     "by which x was normalized.",
                 .min_inputs = 4,
                 .max_inputs = 5,
                 .attrs = {Training(), GradientsAttr()},
                 .infer = InferBatchNormBackward,
                 .cost = OpCost::kCopy,
                 .input_names = {"gradient", "x", "mean", "invstd", "weight"}});
}

void AppendLayerNormOps(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "layer_norm",
                 .signature = "x (…,N), weight (N), bias (N) -> y (…,N), mean (…,1), rstd (…,1)",
                 .doc = "(x - mean) * rstd * weight + bias, where rstd is 1 / sqrt(variance + eps) "
                        "over the last dimensions.",
                 .min_inputs = 1,
                 .max_inputs = 3,
                 .attrs = {NormalizedRank(), Eps(), Center()},
                 .infer = InferLayerNorm,
                 .cost = OpCost::kCopy,
                 .input_names = {"x", "weight", "bias"}});
  ops.push_back({.name = "layer_norm_backward",
                 .signature = "gradient (…,N), x (…,N), rstd (…,1), mean (…,1), weight (N) -> "
                              "gx (…,N), gweight (N), gbias (N)",
                 .doc = "The gradients of layer_norm, from its result's gradient and statistics; "
                        "without center there is no mean.",
                 .min_inputs = 3,
                 .max_inputs = 5,
                 .attrs = {NormalizedRank(), Center(), GradientsAttr()},
                 .infer = InferLayerNormBackward,
                 .cost = OpCost::kCopy,
                 .input_names = {"gradient", "x", "rstd", "mean or weight", "weight"}});
}

}  // namespace

void AppendNetworkOps(std::vector<OpSchema>& ops) {
  ops.push_back(
      {.name = "softmax_backward",
       .signature = "(…), (…) -> (…)",
       .doc = "The gradient of softmax or log_softmax, from the result's gradient and the result.",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis of the softmax"),
                 OptionalAttr("log", AttrType::kBool, false, "true: y is that of log_softmax")},
       .infer = InferSoftmaxBackward,
       .cost = OpCost::kCopy,
       .input_names = {"gradient", "y"}});
  AppendLayerNormOps(ops);
  AppendBatchNormOps(ops);
}

}  // namespace tensord
