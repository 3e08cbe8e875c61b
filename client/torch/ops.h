// Tables of the ops that one kernel template implements. X is called with the name of PyTorch's
// overload, without ".out", and what the template needs. Ops that aren't here are written by hand.
#pragma once

// One operand, floating or of another dtype. X(aten name, op of the server, dtype rule). kFloat:
// integers are computed in the default dtype. kSame: in their own.
// clang-format off
#define TENSORD_UNARY_OPS(X)                                                                    \
  X(acos, acos, kFloat) X(acosh, acosh, kFloat) X(asin, asin, kFloat) X(asinh, asinh, kFloat)   \
  X(atan, atan, kFloat) X(atanh, atanh, kFloat) X(cos, cos, kFloat) X(cosh, cosh, kFloat)       \
  X(erf, erf, kFloat) X(erfinv, erfinv, kFloat) X(exp, exp, kFloat) X(expm1, expm1, kFloat)     \
  X(log, log, kFloat) X(log10, log10, kFloat) X(log1p, log1p, kFloat) X(log2, log2, kFloat)     \
  X(rsqrt, rsqrt, kFloat) X(sigmoid, sigmoid, kFloat) X(sin, sin, kFloat) X(sinh, sinh, kFloat) \
  X(sqrt, sqrt, kFloat) X(tan, tan, kFloat) X(tanh, tanh, kFloat)                                \
  X(ceil, ceil, kSame) X(floor, floor, kSame) X(neg, neg, kSame) X(round, round, kSame)         \
  X(trunc, trunc, kSame) X(silu, silu, kSame) X(reciprocal, reciprocal, kFloat)                 \
  X(exp2, exp2, kFloat) X(frac, frac, kSame) X(sign, sgn, kSame) X(sgn, sgn, kSame)             \
  X(signbit, signbit, kSame) X(isposinf, isposinf, kSame) X(isneginf, isneginf, kSame)          \
  X(lgamma, lgamma, kFloat) X(digamma, digamma, kFloat) X(sinc, sinc, kFloat)                   \
  X(special_entr, entr, kFloat) X(special_spherical_bessel_j0, spherical_bessel_j0, kFloat)     \
  X(i0, i0, kFloat) X(special_i0e, i0e, kFloat) X(special_i1, i1, kFloat)                       \
  X(special_i1e, i1e, kFloat) X(special_modified_bessel_i0, i0, kFloat)                         \
  X(special_modified_bessel_i1, i1, kFloat)
// clang-format on

// Two operands of one dtype. X(overload, op of the server, dtype rule).
// clang-format off
#define TENSORD_BINARY_OPS(X)                                                                    \
  X("atan2.out", atan2, kFloat) X("copysign.out", copysign, kFloat) X("hypot.out", hypot, kSame) \
  X("logaddexp.out", logaddexp, kSame) X("nextafter.out", nextafter, kSame)                      \
  X("maximum.out", maximum, kSame) X("minimum.out", minimum, kSame)                              \
  X("remainder.Tensor_out", remainder, kSame) X("fmod.Tensor_out", fmod, kSame)                  \
  X("pow.Tensor_Tensor_out", pow, kSame) X("fmax.out", fmax, kSame) X("fmin.out", fmin, kSame)   \
  X("logical_and.out", logical_and, kSame) X("logical_or.out", logical_or, kSame)                \
  X("logical_xor.out", logical_xor, kSame)                                                       \
  X("bitwise_and.Tensor_out", bitwise_and, kSame) X("bitwise_or.Tensor_out", bitwise_or, kSame)  \
  X("bitwise_xor.Tensor_out", bitwise_xor, kSame)                                                \
  X("bitwise_left_shift.Tensor_out", shift_left, kSame)                                          \
  X("bitwise_right_shift.Tensor_out", shift_right, kSame)                                        \
  X("special_xlog1py.out", xlog1py, kFloat) X("special_zeta.out", zeta, kFloat)                  \
  X("xlogy.OutTensor", xlogy, kFloat)
// clang-format on

#define TENSORD_COMPARISON_OPS(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)
