#include "tensord/common/ops/op_inference.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

AttrDef RequiredAttr(absl::string_view name, AttrType type, absl::string_view doc) {
  return {std::string(name), type, std::nullopt, std::string(doc)};
}

AttrDef OptionalAttr(absl::string_view name, AttrType type, AttrValue default_value,
                     absl::string_view doc) {
  return {std::string(name), type, std::move(default_value), std::string(doc)};
}

std::string QuotedForMessage(absl::string_view text) {
  constexpr size_t kMaxShown = 64;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxShown)),
                      text.size() > kMaxShown ? "…\"" : "\"");
}

std::string IntsForMessage(absl::Span<const int64_t> values) {
  return Shape(values.first(std::min<size_t>(values.size(), kMaxRank + 1))).ToString();
}

std::string ForMessage(const AttrValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const int64_t* i = std::get_if<int64_t>(&value)) return absl::StrCat(*i);
  if (const double* f = std::get_if<double>(&value)) return absl::StrCat(*f);
  if (const auto* s = std::get_if<std::string>(&value)) return QuotedForMessage(*s);
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) return IntsForMessage(*ints);
  if (const DType* dtype = std::get_if<DType>(&value)) return std::string(DTypeName(*dtype));
  if (const Bytes* bytes = std::get_if<Bytes>(&value)) {
    return absl::StrCat(bytes->data.size(), " bytes");
  }
  return "nothing";
}

std::string DescribeRange(DType dtype) {
  if (!IsInteger(dtype)) {
    return absl::StrCat(DTypeName(dtype), ", which ends at ", MaxFinite(dtype));
  }
  const IntegerRange range = RangeOf(dtype);
  return absl::StrCat(DTypeName(dtype), ", which goes from ", range.min, " to ", range.max);
}

AttrDef AllowTf32() {
  return OptionalAttr(
      "allow_tf32", AttrType::kBool, false,
      "allows a GPU to round float32 inputs to TF32 (10 bits of mantissa), which is faster");
}

namespace {

std::vector<absl::string_view> ActivationNames() {
  std::vector<absl::string_view> names = {"none"};
  for (const UnaryFunction function : Activations()) names.push_back(FunctionName(function));
  return names;
}

}  // namespace

AttrDef ActivationAttr() {
  return OptionalAttr("activation", AttrType::kString, "none",
                      absl::StrJoin(ActivationNames(), ", "));
}

absl::Status RequireActivation(const InferenceContext& ctx) {
  return RequireOneOf(ctx, "activation", ActivationNames());
}

absl::StatusOr<DType> PromoteInputs(InferenceContext& ctx, int first) {
  DType dtype = ctx.input(first).dtype;
  for (int i = first + 1; i < ctx.num_inputs(); ++i) {
    const absl::StatusOr<DType> promoted = PromoteTypes(dtype, ctx.input(i).dtype);
    if (!promoted.ok()) return ctx.Error(promoted.status().message());
    dtype = *promoted;
  }
  for (int i = first; i < ctx.num_inputs(); ++i) ctx.ReadInputAs(i, dtype);
  return dtype;
}

absl::StatusOr<Shape> BroadcastInputs(const InferenceContext& ctx) {
  Shape shape = ctx.input(0).shape;
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    absl::StatusOr<Shape> wider = BroadcastShapes(shape, ctx.input(i).shape);
    if (!wider.ok()) return ctx.Error(wider.status().message());
    shape = *std::move(wider);
  }
  return shape;
}

absl::Status RequireFloating(const InferenceContext& ctx, DType dtype) {
  if (IsFloating(dtype)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("needs a floating dtype, not ", DTypeName(dtype),
                                ": cast first, for example to float32"));
}

absl::Status RequireNumber(const InferenceContext& ctx, DType dtype) {
  if (!IsBool(dtype)) return absl::OkStatus();
  return ctx.Error("is not defined for bool: cast first, for example to int32");
}

absl::Status RequireBits(const InferenceContext& ctx, DType dtype) {
  if (!IsFloating(dtype)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("needs integers or bool, not ", DTypeName(dtype),
                                ": cast first, for example to int64"));
}

absl::Status RequireInteger(const InferenceContext& ctx, DType dtype) {
  if (IsInteger(dtype)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("needs an integer dtype, not ", DTypeName(dtype),
                                ": cast first, for example to int64"));
}

absl::Status RequireShape(const InferenceContext& ctx, int input, const Shape& shape,
                          absl::string_view whose) {
  if (ctx.input(input).shape == shape) return absl::OkStatus();
  return ctx.Error(absl::StrCat(ctx.NameOf(input), " has the shape ",
                                ctx.input(input).shape.ToString(), " and must have ", whose, ", ",
                                shape.ToString()));
}

absl::Status RequireDType(const InferenceContext& ctx, int input, DType dtype,
                          absl::string_view whose) {
  if (ctx.input(input).dtype == dtype) return absl::OkStatus();
  return ctx.Error(absl::StrCat(ctx.NameOf(input), " is ", DTypeName(ctx.input(input).dtype),
                                " and must have ", whose, ", ", DTypeName(dtype),
                                ": cast it first"));
}

absl::Status ReadParameter(InferenceContext& ctx, int input, DType dtype, const Shape& shape) {
  const DType given = ctx.input(input).dtype, statistics = StatisticsDType(dtype);
  if (given != dtype && given != statistics) {
    return ctx.Error(absl::StrCat(
        ctx.NameOf(input), " is ", DTypeName(given), " and must be ", DTypeName(dtype),
        dtype == statistics ? "" : absl::StrCat(" or ", DTypeName(statistics)), ": cast it first"));
  }
  if (ctx.input(input).shape != shape) {
    return ctx.Error(absl::StrCat(ctx.NameOf(input), " has the shape ",
                                  ctx.input(input).shape.ToString(), " and must have ",
                                  shape.ToString()));
  }
  ctx.ReadInputAs(input, statistics);
  return absl::OkStatus();
}

absl::Status RequireIndices(const InferenceContext& ctx, int input, absl::string_view what) {
  const DType dtype = ctx.input(input).dtype;
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return absl::OkStatus();
  return ctx.Error(absl::StrCat(
      "input ", input, " has ", what, ", which must be int32 or int64, not ", DTypeName(dtype),
      dtype == DType::kBool
          ? ": for a mask, use where, or nonzero, which gives the indices of the true elements"
          : ": cast it first, for example to int64"));
}

absl::Status CheckRandomSource(const InferenceContext& ctx, int state) {
  if (state < 0) {
    if (ctx.IsGiven("seed")) return absl::OkStatus();
    return ctx.Error("attribute seed is missing: give it, or the input state");
  }
  if (ctx.input(state).dtype != DType::kInt64 || ctx.input(state).shape != Shape({2})) {
    return ctx.Error("the input state must be int64[2]: seed and stream");
  }
  if (ctx.attrs().Int("seed") == 0 && ctx.attrs().Int("stream") == 0) return absl::OkStatus();
  return ctx.Error(
      "seed and stream come from the input state, so the attributes seed and stream must be absent "
      "or 0");
}

absl::StatusOr<Shape> ShapeAttr(const InferenceContext& ctx) {
  Shape shape(absl::MakeConstSpan(ctx.attrs().Ints("shape")));
  const absl::Status status = shape.Validate();
  if (!status.ok()) return ctx.Error(status.message());
  return shape;
}

absl::StatusOr<int64_t> ResolveAxis(const InferenceContext& ctx, int64_t axis, int rank) {
  const absl::StatusOr<int> resolved = NormalizeAxis(axis, std::max(rank, 1));
  if (resolved.ok()) return *resolved;
  return ctx.Error(NormalizeAxis(axis, rank).status().message());
}

absl::StatusOr<Dims> ResolveAxes(const InferenceContext& ctx, absl::Span<const int64_t> axes,
                                 int rank) {
  bool seen[kMaxRank] = {};
  Dims resolved;
  for (int64_t axis : axes) {
    TENSORD_ASSIGN_OR_RETURN(const int64_t from_zero, ResolveAxis(ctx, axis, rank));
    if (std::exchange(seen[from_zero], true)) {
      return ctx.Error(
          absl::StrCat("axis ", from_zero, " is named twice in ", IntsForMessage(axes)));
    }
    resolved.push_back(from_zero);
  }
  return resolved;
}

std::vector<AttrDef> ReductionAttrs() {
  return {OptionalAttr("axes", AttrType::kInts, std::vector<int64_t>{},
                       "the axes to reduce; negative axes count from the end; empty: all axes"),
          OptionalAttr("keepdims", AttrType::kBool, false, "keep reduced axes with size 1")};
}

AttrDef CorrectionAttr() {
  return OptionalAttr("correction", AttrType::kFloat, 1.0,
                      "subtracted from the number n of reduced elements");
}

AttrDef GradientsAttr() {
  return OptionalAttr(
      "gradients", AttrType::kInts, std::vector<int64_t>{},
      "the operands whose gradients are computed: 0 is x, 1 the weight, 2 the bias; "
      "empty: all operands that the forward op can have");
}

absl::Status CheckGradients(absl::Span<const int64_t> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] >= (i == 0 ? 0 : gradients[i - 1] + 1) && gradients[i] <= 2) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("gradients is ", IntsForMessage(gradients),
                     ": name some of 0 (x), 1 (weight) and 2 (bias), in this order"));
  }
  return absl::OkStatus();
}

absl::Status RequireOneOf(const InferenceContext& ctx, absl::string_view attr,
                          absl::Span<const absl::string_view> words) {
  const std::string& value = ctx.attrs().String(attr);
  if (std::find(words.begin(), words.end(), value) != words.end()) return absl::OkStatus();
  return ctx.Error(absl::StrCat("attribute ", attr, " is ", QuotedForMessage(value),
                                " and must be one of \"", absl::StrJoin(words, "\", \""), "\""));
}

void SetAliasIfWorthwhile(InferenceContext& ctx, int64_t offset_bytes, int64_t bytes) {
  constexpr int64_t kViewAlignmentBytes = 64;  // as that of allocated memory
  constexpr int64_t kMinViewBytes = 1 << 20;
  if (offset_bytes % kViewAlignmentBytes != 0) return;
  if (bytes >= ctx.input(0).size_bytes() / 16 || bytes >= kMinViewBytes) {
    ctx.SetAlias(offset_bytes);
  }
}

}  // namespace tensord
