// Helpers of composite functions: errors, and the rounding of 16-bit floats.
#pragma once

#include <initializer_list>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

// Returns `result`, which the function has computed from `operands`. If `result` has the error of
// an op in the function, and no operand has failed, the error gets the prefix "FUNCTION: ": it then
// begins with the name of the function that the program called.
Tensor Composite(absl::string_view function, std::initializer_list<Operand> operands,
                 Tensor result);

inline bool Has16Bits(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }
// Converts float16 and bfloat16 to float32. Returns other tensors as they are.
Tensor Widen(const Tensor& x);
// Converts the result of widened operands to the dtype that the operands have together. If they
// can't be promoted, `result` has an error already.
Tensor Narrow(Tensor result, absl::Span<const Tensor* const> operands);

}  // namespace tensord::internal
