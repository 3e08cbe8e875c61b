// The list of elementwise ops. A row makes an op known to the registry of ops (op_schema.h) and so
// to ListOps, to the loops of the CPU backend, the kernels of the CUDA backend, the source of fused
// CUDA kernels, the fusion of chains, the activations of linear, and the functions of client/ops.h.
// common/README.md shows how an op is added.
//
// The rows are macros because nvcc and the files that are compiled once per instruction set read
// them, too. They are expanded with a macro X of these parameters:
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
  X(exp, Exp, Float, Libm, "e to the x.")                             \
  X(log, Log, Float, Libm, "The natural logarithm.")                  \
  X(log1p, Log1p, Float, Libm, "log(1 + x), exact for x close to 0.") \
  X(sqrt, Sqrt, Float, Arithmetic, "The square root.")                \
  X(rsqrt, Rsqrt, Float, Arithmetic, "1 / sqrt(x).")

// Ops of one operand that are values of linear's attribute "activation", too.
#define TENSORD_ACTIVATION_OPS(X)                                \
  X(relu, Relu, Number, Arithmetic, "max(x, 0); NaN stays NaN.") \
  X(sigmoid, Sigmoid, Float, Libm, "1 / (1 + exp(-x)).")         \
  X(silu, Silu, FloatOnly, Libm, "x times sigmoid(x).")          \
  X(tanh, Tanh, Float, Libm, "The hyperbolic tangent.")

// The functions of the op gelu, which its attribute "approximate" chooses from. Each is a value of
// linear's attribute "activation".
#define TENSORD_GELU_FUNCTIONS(X)                                                  \
  X(gelu, Gelu, FloatOnly, Libm, "x times the normal distribution function of x.") \
  X(gelu_tanh, GeluTanh, FloatOnly, Libm, "gelu with the approximation by tanh.")

// Ops of two operands, which broadcast. The result has the dtype in which the operands meet.
#define TENSORD_ARITHMETIC_OPS(X)                                           \
  X(add, Add, Any, Arithmetic, "a + b; for bool, or. Integers wrap.")       \
  X(sub, Sub, Number, Arithmetic, "a - b. Integers wrap.")                  \
  X(mul, Mul, Any, Arithmetic, "a * b; for bool, and. Integers wrap.")      \
  X(div, Div, Float, Arithmetic, "a / b; of integers and bool in float32.") \
  X(pow, Pow, Number, Libm, "a to the b. Integers wrap.")                   \
  X(maximum, Maximum, Any, Arithmetic, "The larger of a and b; NaN wins.")  \
  X(minimum, Minimum, Any, Arithmetic, "The smaller of a and b; NaN wins.")

// The same with a result of dtype bool.
#define TENSORD_COMPARISON_OPS(X)                \
  X(eq, Eq, Any, Arithmetic, "a == b, as bool.") \
  X(ne, Ne, Any, Arithmetic, "a != b, as bool.") \
  X(lt, Lt, Any, Arithmetic, "a < b, as bool.")  \
  X(le, Le, Any, Arithmetic, "a <= b, as bool.") \
  X(gt, Gt, Any, Arithmetic, "a > b, as bool.")  \
  X(ge, Ge, Any, Arithmetic, "a >= b, as bool.")

// ---------------------------------------------------------------- what the rows above come to

#define TENSORD_UNARY_OPS(X) TENSORD_MATH_OPS(X) TENSORD_ACTIVATION_OPS(X)
#define TENSORD_BINARY_OPS(X) TENSORD_ARITHMETIC_OPS(X) TENSORD_COMPARISON_OPS(X)
// The values of linear's attribute "activation", except "none".
#define TENSORD_ACTIVATIONS(X) TENSORD_ACTIVATION_OPS(X) TENSORD_GELU_FUNCTIONS(X)
#define TENSORD_UNARY_FUNCTIONS(X) TENSORD_UNARY_OPS(X) TENSORD_GELU_FUNCTIONS(X)

namespace tensord {

// Which dtypes a function computes in. float16 and bfloat16 are computed in float32 and rounded.
enum class ElementwiseTyping : uint8_t {
  kAny,        // every dtype
  kNumber,     // every dtype but bool, which is refused
  kFloat,      // the floating dtypes; integers and bool are read as float32, as in PyTorch
  kFloatOnly,  // the floating dtypes; others are refused
};

// How long a function takes for an element on a CPU.
enum class ElementwiseCost : uint8_t {
  kArithmetic,  // a nanosecond or less
  kLibm,        // about ten: it calls a function of libm
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
