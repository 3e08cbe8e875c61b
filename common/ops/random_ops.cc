// Random numbers, and dropout. Their bits are defined in server/device/random_math.h.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status AddDrawnOutput(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(CheckRandomSource(ctx, ctx.num_inputs() > 0 ? 0 : -1));
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ShapeAttr(ctx));
  ctx.AddOutput(ctx.attrs().Type("dtype"), std::move(shape));
  return absl::OkStatus();
}

absl::Status RequireFiniteAttr(const InferenceContext& ctx, const char* attr, DType dtype) {
  const double value = ctx.attrs().Float(attr);
  if (std::abs(value) <= MaxFinite(dtype)) return absl::OkStatus();
  return ctx.Error(
      absl::StrCat(attr, " is ", value, " and must be a finite value of ", DescribeRange(dtype)));
}

absl::Status InferUniform(InferenceContext& ctx) {
  const DType dtype = ctx.attrs().Type("dtype");
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, dtype));
  for (const char* bound : {"low", "high"}) {
    TENSORD_RETURN_IF_ERROR(RequireFiniteAttr(ctx, bound, dtype));
  }
  const double low = ctx.attrs().Float("low");
  const double high = ctx.attrs().Float("high");
  const bool in_double = dtype == DType::kFloat64;
  const double extent = in_double ? high - low : static_cast<float>(high) - static_cast<float>(low);
  if (!(extent > 0) || extent > MaxFinite(dtype)) {
    return ctx.Error(absl::StrCat("low ", low, " must be below high ", high,
                                  ", and their difference a positive finite value of ",
                                  DescribeRange(dtype)));
  }
  return AddDrawnOutput(ctx);
}

absl::Status InferNormal(InferenceContext& ctx) {
  const DType dtype = ctx.attrs().Type("dtype");
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, dtype));
  for (const char* moment : {"mean", "stddev"}) {
    TENSORD_RETURN_IF_ERROR(RequireFiniteAttr(ctx, moment, dtype));
  }
  if (ctx.attrs().Float("stddev") < 0) {
    return ctx.Error(
        absl::StrCat("stddev is ", ctx.attrs().Float("stddev"), " and must not be negative"));
  }
  return AddDrawnOutput(ctx);
}

absl::Status InferRandint(InferenceContext& ctx) {
  const DType dtype = ctx.attrs().Type("dtype");
  TENSORD_RETURN_IF_ERROR(RequireInteger(ctx, dtype));
  const int64_t low = ctx.attrs().Int("low"), high = ctx.attrs().Int("high");
  if (low >= high) return ctx.Error(absl::StrCat("low ", low, " must be below high ", high));
  for (const int64_t bound : {low, high - 1}) {
    if (FitsInteger(dtype, bound)) continue;
    return ctx.Error(absl::StrCat("gives integers from ", low, " to ", high - 1, ", and ", bound,
                                  " doesn't fit ", DescribeRange(dtype), "; name a wider dtype"));
  }
  return AddDrawnOutput(ctx);
}

absl::Status InferDropout(InferenceContext& ctx) {
  const TensorSpec& x = ctx.input(0);
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, x.dtype));
  const double p = ctx.attrs().Float("p");
  if (!(p >= 0 && p <= 1)) {
    return ctx.Error(absl::StrCat("the probability p is ", p, " and must be from 0 to 1"));
  }
  TENSORD_RETURN_IF_ERROR(CheckRandomSource(ctx, ctx.num_inputs() > 1 ? 1 : -1));
  ctx.AddOutput(x.dtype, x.shape);
  if (ctx.attrs().Bool("mask")) {
    ctx.AddOutput(DType::kBool, x.shape);
  } else if (p == 0) {
    ctx.SetAlias();
  }
  return absl::OkStatus();
}

AttrDef ShapeOfResult() { return RequiredAttr("shape", AttrType::kInts, "shape of the result"); }

AttrDef DTypeOfResult(DType default_dtype) {
  return OptionalAttr("dtype", AttrType::kDType, default_dtype, "dtype of the result");
}

AttrDef Seed() {
  return OptionalAttr("seed", AttrType::kInt, int64_t{0},
                      "the same seed gives the same numbers everywhere; required without state");
}

AttrDef Stream() {
  return OptionalAttr("stream", AttrType::kInt, int64_t{0},
                      "the streams of a seed are independent sequences of numbers");
}

// Returns the schema of an op that draws numbers. Its optional input holds seed and stream.
OpSchema Drawing(const char* name, const char* doc, std::vector<AttrDef> attrs,
                 absl::Status (*infer)(InferenceContext&)) {
  OpSchema schema = {name, "([state (2)]) -> shape", doc,   0,
                     1,    std::move(attrs),         infer, OpCost::kCompute};
  schema.input_names = {"state"};
  return schema;
}

}  // namespace

void AppendRandomOps(std::vector<OpSchema>& ops) {
  ops.push_back(Drawing("uniform", "Random numbers, uniform in [low, high), by Philox4x32-10.",
                        {ShapeOfResult(), Seed(), Stream(),
                         OptionalAttr("low", AttrType::kFloat, 0.0, "lower bound, included"),
                         OptionalAttr("high", AttrType::kFloat, 1.0, "upper bound, excluded"),
                         DTypeOfResult(DType::kFloat32)},
                        InferUniform));
  ops.push_back(Drawing(
      "normal", "Normally distributed random numbers, by Philox4x32-10 and Box-Muller.",
      {ShapeOfResult(), Seed(), Stream(), OptionalAttr("mean", AttrType::kFloat, 0.0, "the mean"),
       OptionalAttr("stddev", AttrType::kFloat, 1.0, "standard deviation, 0 or more"),
       DTypeOfResult(DType::kFloat32)},
      InferNormal));
  ops.push_back(Drawing(
      "randint", "Random integers, uniform in [low, high), by Philox4x32-10.",
      {ShapeOfResult(), Seed(), Stream(),
       OptionalAttr("low", AttrType::kInt, int64_t{0}, "lower bound, included"),
       RequiredAttr("high", AttrType::kInt, "upper bound, excluded"), DTypeOfResult(DType::kInt64)},
      InferRandint));
  ops.push_back({"dropout",
                 "(…)[, state (2)] -> (…)[, mask (…)]",
                 "x / (1 - p) where a uniform random number is at least p, otherwise 0.",
                 1,
                 2,
                 {OptionalAttr("p", AttrType::kFloat, 0.5, "the probability of a 0, from 0 to 1"),
                  Seed(), Stream(),
                  OptionalAttr("mask", AttrType::kBool, false,
                               "also return which elements are kept, as bool")},
                 InferDropout,
                 OpCost::kCompute});
  ops.back().input_names = {"x", "state"};
}

}  // namespace tensord
