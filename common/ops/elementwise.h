// The functions that elementwise ops compute, by op and by name.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/ops/elementwise_list.h"

namespace tensord {

struct OpSchema;

// A function that is computed element by element.
struct ElementwiseFunction {
  enum class Kind : uint8_t { kUnary, kBinary, kWhere, kCast };

  Kind kind;
  uint8_t number = 0;  // of a UnaryFunction or a BinaryFunction

  static constexpr ElementwiseFunction Of(UnaryFunction function) {
    return {Kind::kUnary, static_cast<uint8_t>(function)};
  }
  static constexpr ElementwiseFunction Of(BinaryFunction function) {
    return {Kind::kBinary, static_cast<uint8_t>(function)};
  }
  // Call unary() only if `kind` is kUnary, and binary() only if `kind` is kBinary.
  constexpr UnaryFunction unary() const { return static_cast<UnaryFunction>(number); }
  constexpr BinaryFunction binary() const { return static_cast<BinaryFunction>(number); }

  friend constexpr bool operator==(const ElementwiseFunction&,
                                   const ElementwiseFunction&) = default;
};

// Returns the function that the op computes with these attributes, or nullopt if the op isn't
// elementwise. `attrs` are those of an OpPlan.
std::optional<ElementwiseFunction> FunctionOf(const OpSchema& schema, const Attributes& attrs);

// Return the name in the list of elementwise ops: "relu", "gelu_tanh", "add".
absl::string_view FunctionName(UnaryFunction function);
absl::string_view FunctionName(BinaryFunction function);
// Return the functor in server/device/elementwise_math.h: "Relu", "GeluTanh", "Add".
absl::string_view FunctorName(UnaryFunction function);
absl::string_view FunctorName(BinaryFunction function);

ElementwiseCost CostOf(UnaryFunction function);
ElementwiseCost CostOf(BinaryFunction function);

// The functions that linear's attribute "activation" may name, in the order of the list.
absl::Span<const UnaryFunction> Activations();
// Returns whether linear may apply the function to its result.
bool IsActivation(UnaryFunction function);
// Returns the function that a value of linear's attribute "activation" names. Returns nullopt for
// "none" and for a name that isn't an activation.
std::optional<UnaryFunction> FindActivation(absl::string_view name);

}  // namespace tensord
