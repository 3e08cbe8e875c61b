// Errors that name the function that the program called.
#pragma once

#include <initializer_list>

#include "absl/strings/string_view.h"
#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"

namespace tensord::internal {

// Returns `result`, which the function has computed from `operands`. If `result` has the error of
// an op in the function, and no operand has failed, the error gets the prefix "FUNCTION: ".
Tensor NameFunction(absl::string_view function, std::initializer_list<Operand> operands,
                    Tensor result);

}  // namespace tensord::internal
