// The elementwise ops, each with its reference and its error bound.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {

struct UnaryCase {
  const char* op;
  double (*real)(double);               // the reference for floating dtypes
  int64_t (*whole)(int64_t) = nullptr;  // for integers; null: see `floating_only`
  double ulps = 0;                      // of float32 and float64
  double epsilons = 0;                  // see Bound. If it isn't 0, errors are measured against x
  bool any_zero_sign = false;
  Fill fill = Fill::kPlain;    // values for which the function is defined
  bool floating_only = false;  // integers and bool are refused; otherwise they are read as float32
  bool of_bool = false;        // `whole` is also the reference for bool; otherwise bool is refused
  // The reference for uint64. Null means that `whole` gives the same bits.
  uint64_t (*of_uint64)(uint64_t) = nullptr;
};
absl::Span<const UnaryCase> UnaryCases();

// An op whose result has the dtype of its operands.
struct ArithmeticCase {
  const char* op;
  double (*real)(double, double);                   // null: see `of_dtype`
  int64_t (*whole)(int64_t, int64_t);               // null: see `floating_only`
  int64_t (*of_bools)(int64_t, int64_t) = nullptr;  // null: bool is refused, unless `whole` is null
  double ulps = 0;
  bool any_zero_sign = false;
  double epsilons = 0;         // see Bound. If it isn't 0, errors are measured against a and b
  bool floating_only = false;  // integers and bool are refused; otherwise they are read as float32
  // A reference that depends on the dtype. If it and `real` are null, floating dtypes are refused.
  double (*of_dtype)(DType, double, double) = nullptr;
  // The reference for uint64. Null means that `whole` gives the same bits.
  uint64_t (*of_uint64)(uint64_t, uint64_t) = nullptr;

  // Returns whether the op accepts operands of this dtype.
  bool Accepts(DType dtype) const;
};
absl::Span<const ArithmeticCase> ArithmeticCases();

struct ComparisonCase {
  const char* op;
  bool (*real)(double, double);
  bool (*whole)(int64_t, int64_t);
  bool (*of_uint64)(uint64_t, uint64_t);
};
absl::Span<const ComparisonCase> ComparisonCases();

// The reference of gelu with approximate="tanh".
double GeluByTanh(double x);

}  // namespace tensord::conformance
