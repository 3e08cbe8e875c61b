#include <algorithm>

#include "tensord/common/ops/elementwise.h"
#include "tensord/common/ops/op_schema.h"

namespace tensord {
namespace {

struct Row {
  const char* name;
  const char* functor;
  ElementwiseCost cost;
};

#define TENSORD_ROW(name, Function, typing, cost, doc) {#name, #Function, ElementwiseCost::k##cost},
constexpr Row kUnaryRows[] = {TENSORD_UNARY_FUNCTIONS(TENSORD_ROW)};
constexpr Row kBinaryRows[] = {TENSORD_BINARY_OPS(TENSORD_ROW)};
#undef TENSORD_ROW

const Row& RowOf(UnaryFunction function) { return kUnaryRows[static_cast<int>(function)]; }
const Row& RowOf(BinaryFunction function) { return kBinaryRows[static_cast<int>(function)]; }

}  // namespace

std::optional<ElementwiseFunction> FunctionOf(const OpSchema& schema, const Attributes& attrs) {
  if (schema.elementwise == ElementwiseFunction::Of(UnaryFunction::kGelu) &&
      attrs.String("approximate") == "tanh") {
    return ElementwiseFunction::Of(UnaryFunction::kGeluTanh);
  }
  return schema.elementwise;
}

absl::string_view FunctionName(UnaryFunction function) { return RowOf(function).name; }
absl::string_view FunctionName(BinaryFunction function) { return RowOf(function).name; }
absl::string_view FunctorName(UnaryFunction function) { return RowOf(function).functor; }
absl::string_view FunctorName(BinaryFunction function) { return RowOf(function).functor; }
ElementwiseCost CostOf(UnaryFunction function) { return RowOf(function).cost; }
ElementwiseCost CostOf(BinaryFunction function) { return RowOf(function).cost; }

absl::Span<const UnaryFunction> Activations() {
#define TENSORD_FUNCTION(name, Function, typing, cost, doc) UnaryFunction::k##Function,
  static constexpr UnaryFunction kActivations[] = {TENSORD_ACTIVATIONS(TENSORD_FUNCTION)};
#undef TENSORD_FUNCTION
  return kActivations;
}

bool IsActivation(UnaryFunction function) {
  const auto activations = Activations();
  return std::find(activations.begin(), activations.end(), function) != activations.end();
}

std::optional<UnaryFunction> FindActivation(absl::string_view name) {
  for (const UnaryFunction function : Activations()) {
    if (FunctionName(function) == name) return function;
  }
  return std::nullopt;
}

}  // namespace tensord
