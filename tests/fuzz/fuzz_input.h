// Converts a fuzzer's bytes to numbers, choices and strings. At the end of the bytes, all functions
// return their smallest value, so that any bytes are a complete input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tensord::fuzz {

class FuzzInput {
 public:
  // `data` must outlive this object.
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t remaining() const { return size_; }

  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  bool Bool() { return (Byte() & 1) != 0; }
  // If the bytes are random, returns true about once in `n` calls. n must be at most 256.
  bool OneIn(int n) { return size_ > 0 && Byte() % n == 0; }
  // Returns a number in [lower, upper].
  int Range(int lower, int upper) {
    const auto span = static_cast<uint32_t>(upper - lower) + 1;
    uint32_t value = Byte();
    if (span > 256) value = value << 8 | Byte();
    return lower + static_cast<int>(value % span);
  }
  template <typename T>
  T Raw() {
    T value{};
    const size_t taken = std::min(sizeof(T), size_);
    if (taken > 0) std::memcpy(&value, data_, taken);
    data_ += taken;
    size_ -= taken;
    return value;
  }
  std::string Bytes(size_t count) {
    count = std::min(count, size_);
    std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }
  template <typename T, size_t kCount>
  T Pick(const T (&values)[kCount]) {
    return values[Range(0, static_cast<int>(kCount) - 1)];
  }
  // Returns a number from -4 to 8, or occasionally an arbitrary number.
  int64_t Number() { return OneIn(8) ? Raw<int64_t>() : Range(-4, 8); }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace tensord::fuzz
