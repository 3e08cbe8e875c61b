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
  // The alternative uint64_t is for integers above the range of int64_t.
  using Value = std::variant<bool, int64_t, uint64_t, double>;

  template <typename T>
  requires std::is_arithmetic_v<T> Scalar(T value)  // NOLINT(google-explicit-constructor)
      : value_(Widen(value)) {}

  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_) || is_large(); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  // Returns whether the value is an integer above the range of int64_t.
  bool is_large() const { return std::holds_alternative<uint64_t>(value_); }
  const Value& value() const { return value_; }

 private:
  template <typename T>
  static Value Widen(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t)) {
        if (value > static_cast<T>(std::numeric_limits<int64_t>::max())) {
          return static_cast<uint64_t>(value);
        }
      }
      return static_cast<int64_t>(value);
    }
  }

  Value value_;
};

}  // namespace tensord
