// The functors of the elementwise ops. The kernels of the CPU and of CUDA share them. Their names
// are those of the list of elementwise ops (common/ops/elementwise_list.h). The list also says
// which op takes which dtypes.
//
// Functors work on math types: bool, the integers, float and double. The storage type differs from
// the math type for float16 and bfloat16, which are computed in float, and for bool. A bool is
// stored as a byte, which may have any non-zero value for true. MathOf, Widen and Narrow convert
// between the two types.
//
// The host's kernel files are compiled several times, once for each instruction set. Each time,
// TENSORD_ISA_NAMESPACE has another value, so that the linker never mixes two versions of one
// function.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensord/common/float16.h"

#ifndef TENSORD_ISA_NAMESPACE
#define TENSORD_ISA_NAMESPACE portable
#endif

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

template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Variables, because device code may use variables but must not call std::numeric_limits.
template <typename T>
inline constexpr T kLowestOf = std::numeric_limits<T>::lowest();
template <typename T>
inline constexpr T kHighestOf = std::numeric_limits<T>::max();

template <typename T>
TENSORD_HD inline bool IsNan(T value) {
  return value != value;  // always false for integers
}

// ---------------------------------------------------------------- libm by operand type

namespace math {

// These call the global C functions, because a host kernel may declare vector variants of those.
TENSORD_HD inline float Exp(float x) { return ::expf(x); }
TENSORD_HD inline double Exp(double x) { return ::exp(x); }
TENSORD_HD inline float Log(float x) { return ::logf(x); }
TENSORD_HD inline double Log(double x) { return ::log(x); }
TENSORD_HD inline float Log1p(float x) { return ::log1pf(x); }
TENSORD_HD inline double Log1p(double x) { return ::log1p(x); }
TENSORD_HD inline float Tanh(float x) { return ::tanhf(x); }
TENSORD_HD inline double Tanh(double x) { return ::tanh(x); }
TENSORD_HD inline float Erf(float x) { return ::erff(x); }
TENSORD_HD inline double Erf(double x) { return ::erf(x); }
TENSORD_HD inline float Pow(float x, float y) { return ::powf(x, y); }
TENSORD_HD inline double Pow(double x, double y) { return ::pow(x, y); }
TENSORD_HD inline float Sqrt(float x) { return ::sqrtf(x); }
TENSORD_HD inline double Sqrt(double x) { return ::sqrt(x); }
TENSORD_HD inline float Fabs(float x) { return ::fabsf(x); }
TENSORD_HD inline double Fabs(double x) { return ::fabs(x); }

}  // namespace math

// ---------------------------------------------------------------- unary, T -> T

// Any numeric type.
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

// Any numeric type. The smallest integer has no positive counterpart and stays unchanged.
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

// Any numeric type. A NaN stays a NaN.
struct Relu {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return x <= T{0} ? T{0} : x;
  }
};

// Floating types only, up to the end of this section.
struct Exp {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Exp(x);
  }
};

struct Log {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Log(x);
  }
};

struct Log1p {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Log1p(x);
  }
};

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

struct Tanh {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    return math::Tanh(x);
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

// x * Phi(x), where erf computes the normal distribution function Phi (Hendrycks and Gimpel, 2016).
struct Gelu {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    constexpr T kSqrtHalf = static_cast<T>(0.70710678118654752440);
    return T(0.5) * x * (T{1} + math::Erf(x * kSqrtHalf));
  }
};

// The approximation by tanh of the same paper.
struct GeluTanh {
  template <typename T>
  TENSORD_HD T operator()(T x) const {
    constexpr T kSqrtTwoOverPi = static_cast<T>(0.79788456080286535588);
    constexpr T kCubic = static_cast<T>(0.044715);
    return T(0.5) * x * (T{1} + math::Tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x)));
  }
};

// ---------------------------------------------------------------- binary, (T, T) -> T

// Any type. The sum of two bools is their logical OR.
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

// Any numeric type.
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

// Any type. The product of two bools is their logical AND.
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

// Floating types only.
struct Div {
  template <typename T>
  TENSORD_HD T operator()(T a, T b) const {
    return a / b;
  }
};

// Any numeric type. For integers, the product of b factors a, which wraps around. If b is negative,
// the result is 1 for a = 1, +-1 for a = -1, and 0 for all other a.
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

// Any type. If an operand is NaN, the result is NaN.
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

// Any type. If an operand is NaN, the result is NaN.
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

// ---------------------------------------------------------------- cast

// Converts between math types. Floating to integer truncates toward zero and saturates; NaN gives
// 0. Integer to integer keeps the low bits. Any type to bool gives x != 0.
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
    constexpr From kPastHigh = From{2} * static_cast<From>(To{1} + (kMax - To{1}) / To{2});
    const bool in_range = (x >= kLow) & (x < kPastHigh);
    const To inside = static_cast<To>(in_range ? x : From{0});
    return x >= kPastHigh ? kMax : x < kLow ? kMin : inside;
  }
};

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
