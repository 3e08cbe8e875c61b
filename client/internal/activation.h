// The names of activations in the attributes of ops.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "tensord/client/ops.h"

namespace tensord::internal {

inline absl::string_view ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      break;
#define TENSORD_CASE(name, Function, typing, cost, doc) \
  case Activation::k##Function:                         \
    return #name;
      TENSORD_ACTIVATIONS(TENSORD_CASE)
#undef TENSORD_CASE
  }
  return "none";
}

// Returns nullopt if no activation has this name.
inline std::optional<Activation> ActivationOfName(absl::string_view name) {
#define TENSORD_CASE(op, Function, typing, cost, doc) \
  if (name == #op) return Activation::k##Function;
  TENSORD_ACTIVATIONS(TENSORD_CASE)
#undef TENSORD_CASE
  if (name == "none") return Activation::kNone;
  return std::nullopt;
}

}  // namespace tensord::internal
