// A scalar in an expression: the 2.0 of `x * 2.0`.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <variant>

namespace tensord {

// A Scalar holds a bool, an int64 or a double. In an op with a tensor, it is converted to the
// tensor's dtype, unless the Scalar is of a higher kind (bool < integer < floating), as in PyTorch
// (ops.h).
class Scalar {
 public:
  // An unsigned integer that int64 can't hold becomes a double.
  template <typename T>
  requires std::is_arithmetic_v<T> Scalar(T value)
      : value_(Widen(value)) {}  // NOLINT(google-explicit-constructor)

  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  const std::variant<bool, int64_t, double>& value() const { return value_; }

 private:
  template <typename T>
  static std::variant<bool, int64_t, double> Widen(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t)) {
        if (value > static_cast<T>(std::numeric_limits<int64_t>::max())) {
          return static_cast<double>(value);
        }
      }
      return static_cast<int64_t>(value);
    }
  }

  std::variant<bool, int64_t, double> value_;
};

}  // namespace tensord
