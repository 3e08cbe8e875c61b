// Helpers of the inference functions. Internal to common/.
#pragma once

#include <string>

#include "tensord/common/ops/op_schema.h"

namespace tensord {

// Of the ops over windows: convolution and pooling.
inline constexpr int kMaxSpatialAxes = 3;
// The maximum of a number in their attributes, and of a dimension of a kernel. Sums of a few
// products of two such numbers don't overflow.
inline constexpr int64_t kMaxWindowNumber = (int64_t{1} << 31) - 1;

AttrDef RequiredAttr(absl::string_view name, AttrType type, absl::string_view doc);
AttrDef OptionalAttr(absl::string_view name, AttrType type, AttrValue default_value,
                     absl::string_view doc);
// Returns the attribute "allow_tf32" of ops that multiply matrices.
AttrDef AllowTf32();
// Returns the attribute "activation": "none", or a function that the op applies to its result.
AttrDef ActivationAttr();

// Return text or values from a peer in a form for error messages. Text is quoted and escaped, and
// long values are truncated.
std::string QuotedForMessage(absl::string_view text);
std::string IntsForMessage(absl::Span<const int64_t> values);
std::string ForMessage(const AttrValue& value);
// Returns an integer or floating dtype with its limits: "int8, which goes from -128 to 127".
std::string DescribeRange(DType dtype);

// The helpers below return errors by InferenceContext::Error().

// Returns the dtype to which the inputs `first`, `first` + 1, … are promoted, and makes the kernel
// read these inputs in that dtype.
absl::StatusOr<DType> PromoteInputs(InferenceContext& ctx, int first = 0);

// Returns the shape to which all inputs broadcast.
absl::StatusOr<Shape> BroadcastInputs(const InferenceContext& ctx);

// Returns an error if the dtype isn't floating. The message says what to cast to.
absl::Status RequireFloating(const InferenceContext& ctx, DType dtype);
// Returns an error if the dtype is bool.
absl::Status RequireNumber(const InferenceContext& ctx, DType dtype);
// Returns an error if the dtype is floating.
absl::Status RequireBits(const InferenceContext& ctx, DType dtype);
// Returns an error if an input isn't int32 or int64. `what` says what it has: "the indices".
absl::Status RequireIndices(const InferenceContext& ctx, int input,
                            absl::string_view what = "the indices");
// Returns an error if the dtype is bool or floating.
absl::Status RequireInteger(const InferenceContext& ctx, DType dtype);

// Returns an error if an input doesn't have this shape. `whose` says which one it is: "that of x".
absl::Status RequireShape(const InferenceContext& ctx, int input, const Shape& shape,
                          absl::string_view whose);
// Returns an error if an input doesn't have the dtype `dtype`. `whose` is as above.
absl::Status RequireDType(const InferenceContext& ctx, int input, DType dtype,
                          absl::string_view whose);

// Returns the dtype in which network ops compute elements of a floating dtype, and keep statistics:
// float64 for float64, and float32 for the others.
constexpr DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}
// Returns an error if an input isn't a parameter of this shape for elements of `dtype`: it must
// have this dtype, or StatisticsDType(). Makes the kernel read it in the latter.
absl::Status ReadParameter(InferenceContext& ctx, int input, DType dtype, const Shape& shape);

// Checks that seed and stream come either from the attributes, or from the input `state`. If
// `state` is -1, there is no such input.
absl::Status CheckRandomSource(const InferenceContext& ctx, int state);

// Returns the attribute "shape", validated. Does not accept -1, which only reshape takes.
absl::StatusOr<Shape> ShapeAttr(const InferenceContext& ctx);

// Returns the axis of an input of rank `rank`, counted from 0. For a scalar, 0 and -1 give 0.
absl::StatusOr<int64_t> ResolveAxis(const InferenceContext& ctx, int64_t axis, int rank);

// Returns the axes in the given order, counted from 0. A repeated axis is an error.
absl::StatusOr<Dims> ResolveAxes(const InferenceContext& ctx, absl::Span<const int64_t> axes,
                                 int rank);

// Returns the attributes "axes" and "keepdims" of a reduction.
std::vector<AttrDef> ReductionAttrs();
// Returns the attribute "correction" of a variance.
AttrDef CorrectionAttr();
// Returns the attribute "gradients" of a gradient of x and of the parameters weight and bias.
AttrDef GradientsAttr();
// Returns INVALID_ARGUMENT, without the op's name, if the attribute "gradients" has an invalid
// value.
absl::Status CheckGradients(absl::Span<const int64_t> gradients);

// Returns an error if the string attribute isn't one of `words`.
absl::Status RequireOneOf(const InferenceContext& ctx, absl::string_view attr,
                          absl::Span<const absl::string_view> words);

// Returns an error if the attribute "activation" isn't one of the values that ActivationAttr()
// lists.
absl::Status RequireActivation(const InferenceContext& ctx);

// Makes the result a view of a range of input 0's memory, if the range is aligned as all tensors
// are, and not too small a part of the input: a view keeps all memory of its input.
void SetAliasIfWorthwhile(InferenceContext& ctx, int64_t offset_bytes, int64_t bytes);

}  // namespace tensord
