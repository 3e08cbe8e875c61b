// The functors of the elementwise ops. The kernels of the CPU and of CUDA share them. Their names
// are those of the list of elementwise ops (common/ops/elementwise_list.h). The list also says
// which op takes which dtypes.
//
// Functors work on math types: bool, the integers, float and double. The storage type differs from
// the math type for float16 and bfloat16, which are computed in float, and for bool. A bool is
// stored as a byte, which may have any non-zero value for true. MathOf, Widen and Narrow convert
// between the two types. Nextafter works on storage types, because its result depends on them.
//
// TENSORD_ISA_NAMESPACE is explained in math_functions.h.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensord/common/float16.h"
#include "tensord/server/device/math_functions.h"

namespace tensord::server {

// The storage of a DType::kBool element.
struct Bool {
  uint8_t byte;
};

inline namespace TENSORD_ISA_NAMESPACE {

// ---------------------------------------------------------------- storage and math types

template <typename T>
struct MathTypeOf {
  using type = T;
};
template <>
struct MathTypeOf<Bool> {
  using type = bool;
};
template <>
struct MathTypeOf<Half> {
  using type = float;
};
template <>
struct MathTypeOf<BFloat16> {
  using type = float;
};
template <typename Storage>
using MathOf = typename MathTypeOf<Storage>::type;

// Converts an element from its storage type to its math type.
template <typename Storage>
TENSORD_HD inline MathOf<Storage> Widen(Storage value) {
  if constexpr (std::is_same_v<Storage, Bool>) {
    return value.byte != 0;
  } else {
    return static_cast<MathOf<Storage>>(value);
  }
}

// Converts an element from its math type to its storage type. Rounds floats to nearest even.
template <typename Storage>
TENSORD_HD inline Storage Narrow(MathOf<Storage> value) {
  if constexpr (std::is_same_v<Storage, Bool>) {
    return Bool{static_cast<uint8_t>(value)};
  } else {
    return static_cast<Storage>(value);
  }
}

// The type in which sums and products of integers are computed. It is unsigned, so that overflow is
// defined: it wraps around.
template <typename T>
using Wrapping = std::make_unsigned_t<std::conditional_t<sizeof(T) < 4, int32_t, T>>;

// True if F takes and returns storage types.
template <typename F>
inline constexpr bool kTakesStorage = false;

template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// These are variables, because device code must not call std::numeric_limits.
template <typename T>
inline constexpr T kLowestOf = std::numeric_limits<T>::lowest();
template <typename T>
inline constexpr T kHighestOf = std::numeric_limits<T>::max();

template <typename T>
TENSORD_HD inline bool IsNan(T value) {
  return value != value;  // always false for integers
}

// ---------------------------------------------------------------- unary, T -> T

// Takes any numeric type.
struct Neg {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    if constexpr (kIsInteger<T>) {
      return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(x));
    } else {
      return -x;
    }
  }
};

// Takes any numeric type. The smallest integer has no positive counterpart and stays unchanged.
struct Abs {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return math::Fabs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      return x < 0 ? Neg()(x) : x;
    }
  }
};

// Takes any numeric type. A NaN stays a NaN.
struct Relu {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return x <= T{0} ? T{0} : x;
  }
};

// Takes any numeric type. A NaN stays a NaN, and a zero of any sign gives +0.
struct Sign {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return x != T{0} ? T{1} : T{0};
    } else {
      return x > T{0} ? T{1} : x < T{0} ? T{-1} : x == T{0} ? T{0} : x;
    }
  }
};

// The functors up to the end of this section take only floating types.
#define TENSORD_MATH_FUNCTOR(Function)   \
  struct Function {                      \
    template <typename T>                \
    TENSORD_HD T operator()(T x) const { \
      return math::Function(x);          \
    }                                    \
  };
TENSORD_MATH_FUNCTOR(Exp)
TENSORD_MATH_FUNCTOR(Expm1)
TENSORD_MATH_FUNCTOR(Log)
TENSORD_MATH_FUNCTOR(Log1p)
TENSORD_MATH_FUNCTOR(Log2)
TENSORD_MATH_FUNCTOR(Log10)
TENSORD_MATH_FUNCTOR(Sin)
TENSORD_MATH_FUNCTOR(Cos)
TENSORD_MATH_FUNCTOR(Tan)
TENSORD_MATH_FUNCTOR(Asin)
TENSORD_MATH_FUNCTOR(Acos)
TENSORD_MATH_FUNCTOR(Atan)
TENSORD_MATH_FUNCTOR(Sinh)
TENSORD_MATH_FUNCTOR(Cosh)
TENSORD_MATH_FUNCTOR(Tanh)
TENSORD_MATH_FUNCTOR(Asinh)
TENSORD_MATH_FUNCTOR(Acosh)
TENSORD_MATH_FUNCTOR(Atanh)
TENSORD_MATH_FUNCTOR(Erf)
TENSORD_MATH_FUNCTOR(Erfc)
TENSORD_MATH_FUNCTOR(Erfinv)
TENSORD_MATH_FUNCTOR(Floor)
TENSORD_MATH_FUNCTOR(Ceil)
TENSORD_MATH_FUNCTOR(Trunc)
TENSORD_MATH_FUNCTOR(Round)
#undef TENSORD_MATH_FUNCTOR

struct Sqrt {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Sqrt(x);
  }
};

struct Rsqrt {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return T{1} / math::Sqrt(x);
  }
};

struct Sigmoid {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return T{1} / (T{1} + math::Exp(-x));
  }
};

struct Silu {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return x / (T{1} + math::Exp(-x));
  }
};

// x Phi(x), where Phi is the normal distribution function (Hendrycks and Gimpel, 2016).
struct Gelu {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Gelu(x);
  }
};

// The approximation of the same paper, by tanh.
struct GeluTanh {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::GeluTanh(x);
  }
};

// ---------------------------------------------------------------- binary, (T, T) -> T

// Takes any type. The sum of two bools is their logical OR.
struct Add {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a | b;
    } else if constexpr (kIsInteger<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

// Takes any numeric type.
struct Sub {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (kIsInteger<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
    } else {
      return a - b;
    }
  }
};

// Takes any type. The product of two bools is their logical AND.
struct Mul {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a & b;
    } else if constexpr (kIsInteger<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

// Takes floating types only.
struct Div {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return a / b;
  }
};

// Takes any numeric type. For integers, the result is the product of b factors a, which wraps
// around. If b is negative, the result is 1 for a = 1, +-1 for a = -1, and 0 for all other a.
struct Pow {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (kIsInteger<T>) {
      if constexpr (std::is_signed_v<T>) {
        if (b < 0) return a == T{1} ? T{1} : a == T{-1} ? ((b & 1) != 0 ? T{-1} : T{1}) : T{0};
      }
      Wrapping<T> result = 1;
      Wrapping<T> square = static_cast<Wrapping<T>>(a);
      for (auto bits = static_cast<Wrapping<T>>(b); bits != 0; bits >>= 1) {
        if ((bits & 1) != 0) result *= square;
        square *= square;
      }
      return static_cast<T>(result);
    } else {
      return math::Pow(a, b);
    }
  }
};

// Takes any type. If an operand is NaN, the result is NaN.
struct Maximum {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return (a > b) | IsNan(a) ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};

// Takes any type. If an operand is NaN, the result is NaN.
struct Minimum {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return (a < b) | IsNan(a) ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};

// Takes any numeric type. For integers, the result is rounded down. x / 0 is 0, and the smallest
// value divided by -1 is itself. For floating types, the result is Python's a // b, but x / 0 is an
// infinity or NaN, as in PyTorch.
struct FloorDivide {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return b == T{0} ? a / b : FromRest(a, b, math::Fmod(a, b));
    } else if constexpr (std::is_unsigned_v<T>) {
      return b == T{0} ? T{0} : static_cast<T>(a / b);
    } else {
      if (b == T{0}) return T{0};
      if (b == T{-1}) return Neg()(a);
      const T quotient = static_cast<T>(a / b);
      return static_cast<T>(quotient - ((a % b != 0) & ((a < 0) != (b < 0)) ? 1 : 0));
    }
  }

  // Returns the result, given rest = fmod(a, b). Takes floating types only. b must not be 0.
  template <typename T>
  TENSORD_HD static T FromRest(T a, T b, T rest) {
    const bool past = (rest != T{0}) & ((rest < T{0}) != (b < T{0}));
    // This is an integer, apart from the rounding error.
    const T quotient = (a - rest) / b - (past ? T{1} : T{0});
    const T below = math::Floor(quotient);
    const T rounded = quotient - below > T(0.5) ? below + T{1} : below;
    return quotient == T{0} ? math::Copysign(T{0}, a / b) : rounded;
  }
};

// Takes any numeric type. The result has the sign of b, also if it is a zero. For integers, x % 0
// is 0.
struct Remainder {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return FromRest(a, b, math::Fmod(a, b));
    } else if constexpr (std::is_unsigned_v<T>) {
      return b == T{0} ? T{0} : static_cast<T>(a % b);
    } else {
      if ((b == T{0}) | (b == T{-1})) return T{0};
      const T rest = static_cast<T>(a % b);
      return (rest != 0) & ((rest < 0) != (b < 0)) ? static_cast<T>(rest + b) : rest;
    }
  }

  // Returns the result, given rest = fmod(a, b). Takes floating types only.
  template <typename T>
  TENSORD_HD static T FromRest(T /*a*/, T b, T rest) {
    const T shifted = (rest < T{0}) != (b < T{0}) ? rest + b : rest;
    return rest == T{0} ? math::Copysign(T{0}, b) : shifted;
  }
};

// This functor and the next three take only floating types.
struct Atan2 {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return math::Atan2(a, b);
  }
};

struct Hypot {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return math::Hypot(a, b);
  }
};

struct Copysign {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return math::Copysign(a, b);
  }
};

// Treats equal operands separately, because the difference of two infinities is NaN.
struct Logaddexp {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    const T gap = a == b ? T{0} : math::Fabs(a - b);
    return Maximum()(a, b) + math::Log1p(math::Exp(-gap));
  }
};

// Takes floating storage types. The bits of neighbouring values of one sign differ by one.
struct Nextafter {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
    const MathOf<T> from = Widen(a), to = Widen(b);
    const Bits bits = __builtin_bit_cast(Bits, a);
    const Bits outward = static_cast<Bits>(bits + 1), inward = static_cast<Bits>(bits - 1);
    const Bits from_zero = to > 0 ? Bits{1} : static_cast<Bits>(kSign | 1);
    const Bits moved = (from < to) == (from > 0) ? outward : inward;
    const T next = __builtin_bit_cast(T, from == 0 ? from_zero : moved);
    return IsNan(from) ? a : (from == to) | IsNan(to) ? b : next;
  }
};
template <>
inline constexpr bool kTakesStorage<Nextafter> = true;

// The bitwise functors take integers and bool.
struct BitwiseAnd {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

struct BitwiseOr {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

struct BitwiseXor {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// Takes integers only. As an unsigned number, a negative count exceeds the width, too.
template <typename T>
TENSORD_HD inline bool IsPastWidth(T count) {
  return static_cast<std::make_unsigned_t<T>>(count) >= 8 * sizeof(T);
}

struct ShiftLeft {
  template <typename T>
  TENSORD_HD T operator()(T a, T count) const {
    const bool past = IsPastWidth(count);
    const T shift = past ? T{0} : count;
    return past ? T{0} : static_cast<T>(static_cast<Wrapping<T>>(a) << shift);
  }
};

struct ShiftRight {
  template <typename T>
  TENSORD_HD T operator()(T a, T count) const {
    constexpr T kLast = 8 * sizeof(T) - 1;
    const bool past = IsPastWidth(count);
    const T shifted = static_cast<T>(a >> (past ? kLast : count));
    if constexpr (std::is_signed_v<T>) {
      return shifted;  // the last shift leaves only copies of the sign
    } else {
      return past ? T{0} : shifted;
    }
  }
};

// ---------------------------------------------------------------- comparisons, (T, T) -> bool

struct Eq {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Lt {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <typename T>
  TENSORD_HD bool operator()(T a, T b) const {
    return a >= b;
  }
};

// ---------------------------------------------------------------- signed and unsigned integers

// True if F gives the same bits for a signed integer type and for the unsigned type of its size.
// The backends then compile one kernel for both.
template <typename F>
inline constexpr bool kIgnoresSign = false;
template <>
inline constexpr bool kIgnoresSign<Neg> = true;
template <>
inline constexpr bool kIgnoresSign<Add> = true;
template <>
inline constexpr bool kIgnoresSign<Sub> = true;
template <>
inline constexpr bool kIgnoresSign<Mul> = true;
template <>
inline constexpr bool kIgnoresSign<BitwiseAnd> = true;
template <>
inline constexpr bool kIgnoresSign<BitwiseOr> = true;
template <>
inline constexpr bool kIgnoresSign<BitwiseXor> = true;
template <>
inline constexpr bool kIgnoresSign<ShiftLeft> = true;
template <>
inline constexpr bool kIgnoresSign<Eq> = true;
template <>
inline constexpr bool kIgnoresSign<Ne> = true;

// The signed type of the same size. If T isn't an unsigned integer, this is T itself.
template <typename T>
struct SignedTypeOf {
  using type = T;
};
template <>
struct SignedTypeOf<uint8_t> {
  using type = int8_t;
};
template <>
struct SignedTypeOf<uint16_t> {
  using type = int16_t;
};
template <>
struct SignedTypeOf<uint32_t> {
  using type = int32_t;
};
template <>
struct SignedTypeOf<uint64_t> {
  using type = int64_t;
};
template <typename T>
using SignedOf = typename SignedTypeOf<T>::type;

// The storage type for which F's kernel is compiled, for elements of type Storage.
template <typename F, typename Storage>
using KernelType = std::conditional_t<kIgnoresSign<F>, SignedOf<Storage>, Storage>;

template <typename Storage>
inline constexpr bool kIsWhole = kIsInteger<Storage> || std::is_same_v<Storage, Bool>;

// True if a cast from From to To adds bits.
template <typename From, typename To>
inline constexpr bool kAddsBits = sizeof(To) > sizeof(From);

// The storage types for which the kernel of a cast is compiled. If both types are integers or bool,
// the sign of To doesn't matter, and the sign of From only if the cast adds bits.
template <typename From, typename To>
using CastKernelFrom =
    std::conditional_t<kIsWhole<To> && !kAddsBits<From, To>, SignedOf<From>, From>;
template <typename From, typename To>
using CastKernelTo = std::conditional_t<kIsWhole<From>, SignedOf<To>, To>;

// ---------------------------------------------------------------- cast

// Converts between math types. A conversion from floating to integer truncates toward zero and
// saturates; NaN gives 0. A conversion between integers keeps the low bits. A conversion to bool
// gives x != 0.
template <typename To>
struct CastTo {
  template <typename From>
  TENSORD_HD To operator()(From x) const {
    if constexpr (std::is_same_v<To, bool>) {
      return x != From{0};
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      return Saturate(x);
    } else {
      return static_cast<To>(x);
    }
  }

 private:
  template <typename From>
  TENSORD_HD static To Saturate(From x) {
    constexpr To kMin = kLowestOf<To>;
    constexpr To kMax = kHighestOf<To>;
    // The largest value plus 1 is a power of two, so both bounds are exact in any floating type.
    // Only values in the range are converted. There is no branch, so that loops vectorise.
    constexpr From kLow = static_cast<From>(kMin);
    constexpr To kHalf = To{1} + (kMax - To{1}) / To{2};
    constexpr From kPastHigh = From{2} * static_cast<From>(kHalf);
    const bool in_range = (x >= kLow) & (x < kPastHigh);
    const To inside = static_cast<To>(in_range ? x : From{0});
    return x >= kPastHigh ? kMax : x < kLow ? kMin : inside;
  }
};

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
