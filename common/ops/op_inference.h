// Helpers of the inference functions. Internal to common/.
#pragma once

#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"

namespace tensord {

AttrDef RequiredAttr(absl::string_view name, AttrType type, absl::string_view doc);
AttrDef OptionalAttr(absl::string_view name, AttrType type, AttrValue default_value,
                     absl::string_view doc);

// Return a peer's text or values for an error message: quoted, escaped and cut.
std::string QuotedForMessage(absl::string_view text);
std::string IntsForMessage(absl::Span<const int64_t> values);
std::string ForMessage(const AttrValue& value);

// The helpers below return errors by InferenceContext::Error().

// Returns the dtype to which the inputs `first`, `first` + 1, … are promoted, and sets them to be
// read in it.
absl::StatusOr<DType> PromoteInputs(InferenceContext& ctx, int first = 0);

// Returns the shape to which all inputs broadcast.
absl::StatusOr<Shape> BroadcastInputs(const InferenceContext& ctx);

// Return an error that says what to cast to: if the dtype is not floating; if it is bool.
absl::Status RequireFloating(const InferenceContext& ctx, DType dtype);
absl::Status RequireNumber(const InferenceContext& ctx, DType dtype);

// Returns the attribute "shape", validated. Does not accept -1, which only reshape takes.
absl::StatusOr<Shape> ShapeAttr(const InferenceContext& ctx);

// Returns the axis of an input of rank `rank`, from 0 on. For a scalar, 0 and -1 give 0.
absl::StatusOr<int64_t> ResolveAxis(const InferenceContext& ctx, int64_t axis, int rank);

// Returns the axes in the order given, from 0 on. A repeated axis is an error.
absl::StatusOr<std::vector<int64_t>> ResolveAxes(const InferenceContext& ctx,
                                                 absl::Span<const int64_t> axes, int rank);

// Returns an error if the string attribute is none of these words.
absl::Status RequireOneOf(const InferenceContext& ctx, absl::string_view attr,
                          absl::Span<const absl::string_view> words);

}  // namespace tensord
