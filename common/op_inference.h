// What the inference functions of several op files share. Internal to common/.
#pragma once

#include <string>
#include <vector>

#include "tensord/common/op_schema.h"

namespace tensord {

AttrDef RequiredAttr(absl::string_view name, AttrType type, absl::string_view doc);
AttrDef OptionalAttr(absl::string_view name, AttrType type, AttrValue default_value,
                     absl::string_view doc);

// What a peer sent, made fit for a message: quoted, escaped and cut to a sensible length.
std::string QuotedForMessage(absl::string_view text);
std::string IntsForMessage(absl::Span<const int64_t> values);
std::string ForMessage(const AttrValue& value);

// Every helper below returns its errors as InferenceContext::Error words them.

// The dtype in which inputs `first`, `first` + 1, … meet; they are set to be read in it.
absl::StatusOr<DType> PromoteInputs(InferenceContext& ctx, int first = 0);

// The shape to which all inputs broadcast.
absl::StatusOr<Shape> BroadcastInputs(const InferenceContext& ctx);

// Refuses a dtype that isn't floating, or one that is bool, and says what to cast to.
absl::Status RequireFloating(const InferenceContext& ctx, DType dtype);
absl::Status RequireNumber(const InferenceContext& ctx, DType dtype);

// Attribute "shape", validated. (No -1: reshape alone takes that.)
absl::StatusOr<Shape> ShapeAttr(const InferenceContext& ctx);

// An axis attribute's value for an input of that rank, from 0 on. For a scalar 0 and -1 give 0.
absl::StatusOr<int64_t> ResolveAxis(const InferenceContext& ctx, int64_t axis, int rank);

// The axes in the order given, from 0 on; twice the same is an error.
absl::StatusOr<std::vector<int64_t>> ResolveAxes(const InferenceContext& ctx,
                                                 absl::Span<const int64_t> axes, int rank);

// A string attribute that knows only these words.
absl::Status RequireOneOf(const InferenceContext& ctx, absl::string_view attr,
                          absl::Span<const absl::string_view> words);

}  // namespace tensord
