// Scaled dot product attention and its gradient.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// The maximum number of keys if neither keys nor values have elements. Otherwise memory limits it.
constexpr int64_t kMaxKeysWithoutElements = 1 << 20;

// The shapes of attention, where (…,H) are the leading dimensions of q.
struct AttentionShapes {
  DType dtype;
  Shape rows;    // (…,H,L)
  Shape scores;  // (…,H,L,S)
  Shape output;  // (…,H,L,Ev)
};

// Returns the size of the heads' axis. Without this axis, there is one head.
int64_t HeadsOf(const Shape& shape) { return shape.rank() < 3 ? 1 : shape.dim(shape.rank() - 3); }

// Checks that the input `k` or `v` has the dtype, the rank and the batch dimensions of q.
absl::Status CheckLikeQuery(const InferenceContext& ctx, int input, const TensorSpec& q) {
  const Shape& shape = ctx.input(input).shape;
  TENSORD_RETURN_IF_ERROR(RequireDType(ctx, input, q.dtype, "that of q"));
  bool alike = shape.rank() == q.shape.rank();
  for (int d = 0; alike && d < shape.rank() - 3; ++d) alike = shape.dim(d) == q.shape.dim(d);
  if (alike) return absl::OkStatus();
  return ctx.Error(absl::StrCat(ctx.NameOf(input), " has the shape ", shape.ToString(),
                                " and must have the rank of q, and its dimensions before the "
                                "heads; q has ",
                                q.shape.ToString()));
}

// Checks q, k and v, which are the inputs from `q_input` on.
absl::StatusOr<AttentionShapes> ReadShapes(const InferenceContext& ctx, int q_input) {
  const TensorSpec& q = ctx.input(q_input);
  const Shape &k = ctx.input(q_input + 1).shape, &v = ctx.input(q_input + 2).shape;
  const int rank = q.shape.rank();
  TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, q.dtype));
  if (rank < 2) {
    return ctx.Error(absl::StrCat("q has the shape ", q.shape.ToString(),
                                  " and needs at least two dimensions: (…,H,L,E)"));
  }
  for (int i = 1; i <= 2; ++i) TENSORD_RETURN_IF_ERROR(CheckLikeQuery(ctx, q_input + i, q));
  if (k.dim(rank - 1) != q.shape.dim(rank - 1)) {
    return ctx.Error(absl::StrCat("the last dimensions of q and k are ", q.shape.dim(rank - 1),
                                  " and ", k.dim(rank - 1), " and must be equal"));
  }
  const int64_t heads = HeadsOf(q.shape), shared = HeadsOf(k);
  if (HeadsOf(v) != shared || v.dim(rank - 2) != k.dim(rank - 2)) {
    return ctx.Error(absl::StrCat("k and v have the shapes ", k.ToString(), " and ", v.ToString(),
                                  " and must have equal heads and lengths"));
  }
  if (shared == 0 ? heads != 0 : heads % shared != 0) {
    return ctx.Error(absl::StrCat("q has ", heads, " heads, which must be a multiple of the ",
                                  shared, " heads of k and v"));
  }
  AttentionShapes shapes;
  shapes.dtype = q.dtype;
  shapes.rows = Shape(q.shape.dims().first(rank - 1));
  shapes.scores = shapes.rows;
  shapes.scores.AppendDim(k.dim(rank - 2));
  shapes.output = shapes.rows;
  shapes.output.AppendDim(v.dim(rank - 1));
  if (k.dim(rank - 1) == 0 && v.dim(rank - 1) == 0 && k.dim(rank - 2) > kMaxKeysWithoutElements) {
    return ctx.Error(absl::StrCat("k and v have ", k.dim(rank - 2),
                                  " keys without elements, and the limit is ",
                                  kMaxKeysWithoutElements));
  }
  const absl::Status valid = shapes.scores.Validate();
  if (!valid.ok()) return ctx.Error(absl::StrCat("the scores: ", valid.message()));
  return shapes;
}

// Checks the mask, which broadcasts to the scores.
absl::Status ReadMask(InferenceContext& ctx, int input, const AttentionShapes& shapes) {
  const TensorSpec& mask = ctx.input(input);
  const DType wide = StatisticsDType(shapes.dtype);
  if (mask.dtype != DType::kBool && mask.dtype != shapes.dtype && mask.dtype != wide) {
    return ctx.Error(absl::StrCat(
        "the mask is ", DTypeName(mask.dtype), " and must be bool or ", DTypeName(shapes.dtype),
        shapes.dtype == wide ? "" : absl::StrCat(" or ", DTypeName(wide)), ": cast it first"));
  }
  const int missing = shapes.scores.rank() - mask.shape.rank();
  bool fits = missing >= 0;
  for (int d = 0; fits && d < mask.shape.rank(); ++d) {
    fits = mask.shape.dim(d) == 1 || mask.shape.dim(d) == shapes.scores.dim(d + missing);
  }
  if (!fits) {
    return ctx.Error(absl::StrCat("the mask has the shape ", mask.shape.ToString(),
                                  " and must broadcast to that of the scores, ",
                                  shapes.scores.ToString()));
  }
  if (ctx.attrs().Bool("causal")) return ctx.Error("takes a mask, or causal, but not both");
  if (IsFloating(mask.dtype)) ctx.ReadInputAs(input, wide);
  return absl::OkStatus();
}

// Checks the optional inputs, which are the inputs from `first` on: the mask, and the state, which
// is int64. Returns whether there is a mask.
absl::StatusOr<bool> ReadOptionalInputs(InferenceContext& ctx, int first,
                                        const AttentionShapes& shapes) {
  const int last = ctx.num_inputs() - 1;
  const bool has_state = last > first || (last == first && ctx.input(last).dtype == DType::kInt64);
  const bool has_mask = last >= first + (has_state ? 1 : 0);
  if (has_mask) TENSORD_RETURN_IF_ERROR(ReadMask(ctx, first, shapes));
  const double p = ctx.attrs().Float("dropout_p");
  if (!(p >= 0 && p <= 1)) {
    return ctx.Error(absl::StrCat("the probability dropout_p is ", p, " and must be from 0 to 1"));
  }
  if (has_state || p > 0) {
    TENSORD_RETURN_IF_ERROR(CheckRandomSource(ctx, has_state ? last : -1));
  }
  return has_mask;
}

// Brings the scale into normal form: replaces 0, the default, by 1 / sqrt(E).
absl::Status ReadScale(InferenceContext& ctx, const Shape& q) {
  const double scale = ctx.attrs().Float("scale");
  if (!std::isfinite(scale)) {
    return ctx.Error(absl::StrCat("scale is ", scale, ": name a finite number"));
  }
  const auto depth = static_cast<double>(q.dim(q.rank() - 1));
  if (scale == 0) ctx.SetAttr("scale", depth == 0 ? 1.0 : 1 / std::sqrt(depth));
  return absl::OkStatus();
}

absl::Status InferSdpa(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(const AttentionShapes shapes, ReadShapes(ctx, 0));
  TENSORD_RETURN_IF_ERROR(ReadScale(ctx, ctx.input(0).shape));
  TENSORD_RETURN_IF_ERROR(ReadOptionalInputs(ctx, 3, shapes).status());
  ctx.AddOutput(shapes.dtype, shapes.output);
  ctx.AddOutput(StatisticsDType(shapes.dtype), shapes.rows);
  return absl::OkStatus();
}

absl::Status InferSdpaBackward(InferenceContext& ctx) {
  constexpr int kG = 0, kQ = 1, kO = 4, kLse = 5, kMask = 6;
  TENSORD_ASSIGN_OR_RETURN(const AttentionShapes shapes, ReadShapes(ctx, kQ));
  TENSORD_RETURN_IF_ERROR(ReadScale(ctx, ctx.input(kQ).shape));
  for (const int input : {kG, kO}) {
    TENSORD_RETURN_IF_ERROR(RequireDType(ctx, input, shapes.dtype, "that of q"));
    TENSORD_RETURN_IF_ERROR(RequireShape(ctx, input, shapes.output, "that of the forward op's o"));
  }
  TENSORD_RETURN_IF_ERROR(RequireDType(ctx, kLse, StatisticsDType(shapes.dtype),
                                       "the dtype of the forward op's result"));
  TENSORD_RETURN_IF_ERROR(RequireShape(ctx, kLse, shapes.rows, "that of the forward op's result"));
  TENSORD_ASSIGN_OR_RETURN(const bool has_mask, ReadOptionalInputs(ctx, kMask, shapes));
  for (int i = kQ; i < kO; ++i) ctx.AddOutput(shapes.dtype, ctx.input(i).shape);
  if (!ctx.attrs().Bool("mask_gradient")) return absl::OkStatus();
  if (!has_mask || !IsFloating(ctx.input(kMask).dtype)) {
    return ctx.Error("mask_gradient needs a floating mask");
  }
  ctx.AddOutput(ctx.input(kMask).dtype, ctx.input(kMask).shape);
  return absl::OkStatus();
}

std::vector<AttrDef> AttentionAttrs() {
  return {OptionalAttr("scale", AttrType::kFloat, 0.0,
                       "the factor of q·k before the softmax; 0: 1 / sqrt(E)"),
          OptionalAttr("causal", AttrType::kBool, false,
                       "true: row i attends to the keys from 0 to i; not with a mask"),
          OptionalAttr("dropout_p", AttrType::kFloat, 0.0,
                       "the probability of dropping a weight, from 0 to 1"),
          OptionalAttr("seed", AttrType::kInt, int64_t{0},
                       "as of dropout; required with dropout_p and without state"),
          OptionalAttr("stream", AttrType::kInt, int64_t{0}, "as of dropout")};
}

}  // namespace

void AppendAttentionOps(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "sdpa",
                 .signature = "q (…,H,L,E), k (…,Hkv,S,E), v (…,Hkv,S,Ev)[, mask (…,H,L,S)]"
                              "[, state (2)] -> o (…,H,L,Ev), lse (…,H,L)",
                 .doc = "Scaled dot product attention: softmax(scale * q·k^T + mask)·v, and the "
                        "log(sum(exp)) of the softmax.",
                 .min_inputs = 3,
                 .max_inputs = 5,
                 .attrs = AttentionAttrs(),
                 .infer = InferSdpa,
                 .cost = OpCost::kPairs,
                 .input_names = {"q", "k", "v", "mask", "state"}});
  std::vector<AttrDef> attrs = AttentionAttrs();
  attrs.push_back(OptionalAttr("mask_gradient", AttrType::kBool, false,
                               "also return the gradient of a floating mask"));
  ops.push_back({.name = "sdpa_backward",
                 .signature = "gradient (…,H,L,Ev), q (…,H,L,E), k (…,Hkv,S,E), v (…,Hkv,S,Ev), "
                              "o (…,H,L,Ev), lse (…,H,L)[, mask (…,H,L,S)][, state (2)] -> gq "
                              "(…,H,L,E), gk (…,Hkv,S,E), gv (…,Hkv,S,Ev)[, gmask (…,H,L,S)]",
                 .doc = "The gradients of sdpa, of the gradient of o, and of o and lse.",
                 .min_inputs = 6,
                 .max_inputs = 8,
                 .attrs = std::move(attrs),
                 .infer = InferSdpaBackward,
                 .cost = OpCost::kPairs,
                 .input_names = {"gradient", "q", "k", "v", "o", "lse", "mask", "state"}});
}

}  // namespace tensord
