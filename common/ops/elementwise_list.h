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
  X(exp, Exp, Float, Libm, "e to the x.")                             \
  X(log, Log, Float, Libm, "The natural logarithm.")                  \
  X(log1p, Log1p, Float, Libm, "log(1 + x), exact for x close to 0.") \
  X(sqrt, Sqrt, Float, Arithmetic, "The square root.")                \
  X(rsqrt, Rsqrt, Float, Arithmetic, "1 / sqrt(x).")

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
#define TENSORD_ARITHMETIC_OPS(X)                                                      \
  X(add, Add, Any, Arithmetic, "a + b; logical OR for bool. Integers wrap.")           \
  X(sub, Sub, Number, Arithmetic, "a - b. Integers wrap.")                             \
  X(mul, Mul, Any, Arithmetic, "a * b; logical AND for bool. Integers wrap.")          \
  X(div, Div, Float, Arithmetic, "a / b; integers and bool are converted to float32.") \
  X(pow, Pow, Number, Libm, "a to the power of b. Integers wrap.")                     \
  X(maximum, Maximum, Any, Arithmetic, "The larger of a and b; NaN if either is NaN.") \
  X(minimum, Minimum, Any, Arithmetic, "The smaller of a and b; NaN if either is NaN.")

// Ops of two operands, which broadcast. The result has dtype bool.
#define TENSORD_COMPARISON_OPS(X)                \
  X(eq, Eq, Any, Arithmetic, "a == b, as bool.") \
  X(ne, Ne, Any, Arithmetic, "a != b, as bool.") \
  X(lt, Lt, Any, Arithmetic, "a < b, as bool.")  \
  X(le, Le, Any, Arithmetic, "a <= b, as bool.") \
  X(gt, Gt, Any, Arithmetic, "a > b, as bool.")  \
  X(ge, Ge, Any, Arithmetic, "a >= b, as bool.")

// ---------------------------------------------------------------- lists made from the rows above

#define TENSORD_UNARY_OPS(X) TENSORD_MATH_OPS(X) TENSORD_ACTIVATION_OPS(X)
#define TENSORD_BINARY_OPS(X) TENSORD_ARITHMETIC_OPS(X) TENSORD_COMPARISON_OPS(X)
// The values of linear's attribute "activation", except "none".
#define TENSORD_ACTIVATIONS(X) TENSORD_ACTIVATION_OPS(X) TENSORD_GELU_FUNCTIONS(X)
#define TENSORD_UNARY_FUNCTIONS(X) TENSORD_UNARY_OPS(X) TENSORD_GELU_FUNCTIONS(X)

namespace tensord {

// The dtypes that a function accepts. float16 and bfloat16 are computed in float32 and rounded.
enum class ElementwiseTyping : uint8_t {
  kAny,        // every dtype
  kNumber,     // every dtype except bool; bool is an error
  kFloat,      // the floating dtypes; integers and bool are converted to float32, as in PyTorch
  kFloatOnly,  // the floating dtypes; any other dtype is an error
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
