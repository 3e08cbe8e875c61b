// The list of elementwise ops. Each row defines an op, except the rows of TENSORD_GELU_FUNCTIONS,
// which name the two functions of the op gelu. The rows are expanded in the registry of ops
// (op_schema.h, which ListOps returns), the loops of the CPU backend, the kernels of the CUDA
// backend, the source of fused CUDA kernels, the fusion of chains, the activations of linear, and
// the functions of client/ops.h. common/README.md shows how to add an op.
//
// The rows are macros because nvcc, and files that are compiled once per instruction set, also read
// them. They are expanded with a macro X of these parameters:
//
//   X(name, Function, typing, cost, doc)
//     name      the op's name, as in RunOp
//     Function  the functor in server/device/elementwise_math.h, and the function in client/ops.h
//     typing    a value of ElementwiseTyping
//     cost      a value of ElementwiseCost
//     doc       one sentence
#pragma once

#include <cstdint>

// Ops of one operand.
#define TENSORD_MATH_OPS(X)                                           \
  X(neg, Neg, Number, Arithmetic, "-x.")                              \
  X(abs, Abs, Number, Arithmetic, "The absolute value.")              \
  X(sign, Sign, Number, Arithmetic, "1, -1 or 0; NaN stays NaN.")     \
  X(exp, Exp, Float, Libm, "e to the x.")                             \
  X(log, Log, Float, Libm, "The natural logarithm.")                  \
  X(log1p, Log1p, Float, Libm, "log(1 + x), exact for x close to 0.") \
  X(sqrt, Sqrt, Float, Arithmetic, "The square root.")                \
  X(rsqrt, Rsqrt, Float, Arithmetic, "1 / sqrt(x).")

// Ops of one operand: functions of libm, and erfinv.
#define TENSORD_TRANSCENDENTAL_OPS(X)                                       \
  X(expm1, Expm1, Float, Libm, "exp(x) - 1, exact for x close to 0.")       \
  X(log2, Log2, Float, Libm, "The logarithm to base 2.")                    \
  X(log10, Log10, Float, Libm, "The logarithm to base 10.")                 \
  X(sin, Sin, Float, Libm, "The sine; x is in radians.")                    \
  X(cos, Cos, Float, Libm, "The cosine; x is in radians.")                  \
  X(tan, Tan, Float, Libm, "The tangent; x is in radians.")                 \
  X(asin, Asin, Float, Libm, "The inverse of sin, in [-pi/2, pi/2].")       \
  X(acos, Acos, Float, Libm, "The inverse of cos, in [0, pi].")             \
  X(atan, Atan, Float, Libm, "The inverse of tan, in [-pi/2, pi/2].")       \
  X(sinh, Sinh, Float, Libm, "The hyperbolic sine.")                        \
  X(cosh, Cosh, Float, Libm, "The hyperbolic cosine.")                      \
  X(asinh, Asinh, Float, Libm, "The inverse of sinh.")                      \
  X(acosh, Acosh, Float, Libm, "The inverse of cosh; NaN for x < 1.")       \
  X(atanh, Atanh, Float, Libm, "The inverse of tanh; NaN outside [-1, 1].") \
  X(erf, Erf, Float, Libm, "The error function.")                           \
  X(erfc, Erfc, Float, Libm, "1 - erf(x), exact for large x.")              \
  X(erfinv, Erfinv, Float, Libm, "The inverse of erf; NaN outside [-1, 1].")

// Ops of one operand that round to an integer. The result has the operand's dtype.
#define TENSORD_ROUNDING_OPS(X)                                                  \
  X(floor, Floor, FloatOrAlias, Arithmetic, "The largest integer that is <= x.") \
  X(ceil, Ceil, FloatOrAlias, Arithmetic, "The smallest integer that is >= x.")  \
  X(trunc, Trunc, FloatOrAlias, Arithmetic, "x rounded toward zero.")            \
  X(round, Round, FloatOrAlias, Arithmetic, "The nearest integer; halves give the even one.")

// Ops of one operand that are also values of linear's attribute "activation".
#define TENSORD_ACTIVATION_OPS(X)                                \
  X(relu, Relu, Number, Arithmetic, "max(x, 0); NaN stays NaN.") \
  X(sigmoid, Sigmoid, Float, Libm, "1 / (1 + exp(-x)).")         \
  X(silu, Silu, FloatOnly, Libm, "x times sigmoid(x).")          \
  X(tanh, Tanh, Float, Libm, "The hyperbolic tangent.")

// The functions of the op gelu. Its attribute "approximate" chooses one. Each is also a value of
// linear's attribute "activation".
#define TENSORD_GELU_FUNCTIONS(X)                                                  \
  X(gelu, Gelu, FloatOnly, Libm, "x times the normal distribution function of x.") \
  X(gelu_tanh, GeluTanh, FloatOnly, Libm, "gelu with the approximation by tanh.")

// Ops of two operands, which broadcast. The result has the dtype to which the operands are
// promoted.
#define TENSORD_BASIC_ARITHMETIC_OPS(X)                                                \
  X(add, Add, Any, Arithmetic, "a + b; logical OR for bool. Integers wrap.")           \
  X(sub, Sub, Number, Arithmetic, "a - b. Integers wrap.")                             \
  X(mul, Mul, Any, Arithmetic, "a * b; logical AND for bool. Integers wrap.")          \
  X(div, Div, Float, Arithmetic, "a / b; integers and bool are converted to float32.") \
  X(pow, Pow, Number, Libm, "a to the power of b. Integers wrap.")                     \
  X(maximum, Maximum, Any, Arithmetic, "The larger of a and b; NaN if either is NaN.") \
  X(minimum, Minimum, Any, Arithmetic, "The smaller of a and b; NaN if either is NaN.")

// Ops of two operands that divide and round down. Integer quotients wrap.
#define TENSORD_DIVISION_OPS(X)                            \
  X(floor_divide, FloorDivide, Number, Libm,               \
    "a / b, rounded down; 0 for an integer divided by 0.") \
  X(remainder, Remainder, Number, Libm,                    \
    "What floor_divide leaves, with the sign of b; 0 for an integer divided by 0.")

// Ops of two floating operands.
#define TENSORD_FLOAT_PAIR_OPS(X)                                                    \
  X(atan2, Atan2, Float, Libm, "The angle of the point (b, a), in [-pi, pi].")       \
  X(hypot, Hypot, FloatOnly, Libm, "sqrt(a * a + b * b) without overflow.")          \
  X(logaddexp, Logaddexp, FloatOnly, Libm, "log(exp(a) + exp(b)) without overflow.") \
  X(copysign, Copysign, Float, Arithmetic, "The absolute value of a with b's sign.") \
  X(nextafter, Nextafter, FloatOnly, Arithmetic, "The value of the dtype that follows a toward b.")

// Ops of two operands that work on bits.
#define TENSORD_BIT_OPS(X)                                                  \
  X(bitwise_and, BitwiseAnd, Bits, Arithmetic, "a AND b, bit by bit.")      \
  X(bitwise_or, BitwiseOr, Bits, Arithmetic, "a OR b, bit by bit.")         \
  X(bitwise_xor, BitwiseXor, Bits, Arithmetic, "a XOR b, bit by bit.")      \
  X(shift_left, ShiftLeft, Integer, Arithmetic,                             \
    "a shifted left by b bits; a b outside the width counts as the width.") \
  X(shift_right, ShiftRight, Integer, Arithmetic,                           \
    "a shifted right by b bits, with its sign; a b outside the width counts as the width.")

// Ops of two operands, which broadcast. The result has dtype bool.
#define TENSORD_COMPARISON_OPS(X)                \
  X(eq, Eq, Any, Arithmetic, "a == b, as bool.") \
  X(ne, Ne, Any, Arithmetic, "a != b, as bool.") \
  X(lt, Lt, Any, Arithmetic, "a < b, as bool.")  \
  X(le, Le, Any, Arithmetic, "a <= b, as bool.") \
  X(gt, Gt, Any, Arithmetic, "a > b, as bool.")  \
  X(ge, Ge, Any, Arithmetic, "a >= b, as bool.")

// ---------------------------------------------------------------- lists made from the rows above

#define TENSORD_UNARY_OPS(X) \
  TENSORD_MATH_OPS(X)        \
  TENSORD_TRANSCENDENTAL_OPS(X) TENSORD_ROUNDING_OPS(X) TENSORD_ACTIVATION_OPS(X)
// The ops of two operands that aren't comparisons.
#define TENSORD_ARITHMETIC_OPS(X) \
  TENSORD_BASIC_ARITHMETIC_OPS(X) \
  TENSORD_DIVISION_OPS(X) TENSORD_FLOAT_PAIR_OPS(X) TENSORD_BIT_OPS(X)
#define TENSORD_BINARY_OPS(X) TENSORD_ARITHMETIC_OPS(X) TENSORD_COMPARISON_OPS(X)
// The values of linear's attribute "activation", except "none".
#define TENSORD_ACTIVATIONS(X) TENSORD_ACTIVATION_OPS(X) TENSORD_GELU_FUNCTIONS(X)
#define TENSORD_UNARY_FUNCTIONS(X) TENSORD_UNARY_OPS(X) TENSORD_GELU_FUNCTIONS(X)

namespace tensord {

// The dtypes that a function accepts. None accepts complex dtypes. float16 and bfloat16 are
// computed in float32 and rounded.
enum class ElementwiseTyping : uint8_t {
  kAny,           // every dtype
  kNumber,        // every dtype except bool; bool is an error
  kFloat,         // the floating dtypes; integers and bool are converted to float32, as in PyTorch
  kFloatOnly,     // the floating dtypes; any other dtype is an error
  kFloatOrAlias,  // every dtype; for integers and bool the result is an alias of the operand
  kBits,          // the integers and bool; a floating dtype is an error
  kInteger,       // the integers; any other dtype is an error
};

// How long a function takes for an element on a CPU.
enum class ElementwiseCost : uint8_t {
  kArithmetic,  // a nanosecond or less
  kLibm,        // about ten nanoseconds: it calls a function of libm
};

#define TENSORD_ENUMERATOR(name, Function, typing, cost, doc) k##Function,
enum class UnaryFunction : uint8_t { TENSORD_UNARY_FUNCTIONS(TENSORD_ENUMERATOR) };
enum class BinaryFunction : uint8_t { TENSORD_BINARY_OPS(TENSORD_ENUMERATOR) };
#undef TENSORD_ENUMERATOR

#define TENSORD_COUNT(name, Function, typing, cost, doc) +1
inline constexpr int kUnaryFunctionCount = 0 TENSORD_UNARY_FUNCTIONS(TENSORD_COUNT);
inline constexpr int kBinaryFunctionCount = 0 TENSORD_BINARY_OPS(TENSORD_COUNT);
inline constexpr int kArithmeticFunctionCount = 0 TENSORD_ARITHMETIC_OPS(TENSORD_COUNT);
#undef TENSORD_COUNT

constexpr bool IsComparison(BinaryFunction function) {
  return static_cast<int>(function) >= kArithmeticFunctionCount;
}

}  // namespace tensord
