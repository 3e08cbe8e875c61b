// Builds keys for caches of prepared ops and kernels. Two keys are equal if and only if the same
// parts were appended.
#pragma once

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/common/attributes.h"

namespace tensord {

template <typename T>
void AppendKey(T value, std::string* key) {
  static_assert(std::is_trivially_copyable_v<T>);
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void AppendKeyText(absl::string_view text, std::string* key) {
  AppendKey(text.size(), key);
  key->append(text.data(), text.size());
}

inline void AppendKey(const AttrValue& value, std::string* key) {
  struct Appender {
    std::string* key;
    void operator()(bool value) const { AppendKey(value, key); }
    void operator()(int64_t value) const { AppendKey(value, key); }
    void operator()(double value) const { AppendKey(value, key); }
    void operator()(DType value) const { AppendKey(value, key); }
    void operator()(const std::string& value) const { AppendKeyText(value, key); }
    void operator()(const Bytes& value) const { AppendKeyText(value.data, key); }
    void operator()(const std::vector<int64_t>& values) const {
      AppendKey(values.size(), key);
      for (int64_t value : values) AppendKey(value, key);
    }
  };
  AppendKey(value.index(), key);
  std::visit(Appender{key}, value);
}

// Appends the attributes in the order in which they were set.
inline void AppendKey(const Attributes& attrs, std::string* key) {
  for (const auto& [name, value] : attrs) {
    AppendKeyText(name, key);
    AppendKey(value, key);
  }
}

}  // namespace tensord
