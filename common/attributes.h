// The attributes of an op: named, typed constants such as axes or an activation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "tensord/common/dtype.h"

namespace tensord {

// A value of an attribute. `Bytes` are the elements of a constant.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes& a, const Bytes& b) { return a.data == b.data; }
};
using AttrValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType, Bytes>;

// The type of an attribute: the alternatives of AttrValue in their order, and kScalar for a bool,
// an int or a float.
enum class AttrType : uint8_t { kBool, kInt, kFloat, kString, kInts, kDType, kBytes, kScalar };

// Return "bool", "int", "float", "string", "ints", "dtype", "bytes" or "scalar".
absl::string_view AttrTypeName(AttrType type);
absl::string_view AttrTypeName(const AttrValue& value);  // of the alternative that the value holds

// Returns the value as a T. If it is null or has another type, ends the process.
template <typename T>
const T& TypedValue(absl::string_view name, const AttrValue* value);

// Lookups of values with a known type, for a class that has a function Find(). If an attribute is
// missing or has another type, they end the process. Call them only for attributes that the op's
// schema has checked.
template <typename Map>
class TypedLookups {
 public:
  bool Bool(absl::string_view name) const { return Get<bool>(name); }
  int64_t Int(absl::string_view name) const { return Get<int64_t>(name); }
  double Float(absl::string_view name) const { return Get<double>(name); }
  const std::string& String(absl::string_view name) const { return Get<std::string>(name); }
  const std::vector<int64_t>& Ints(absl::string_view name) const {
    return Get<std::vector<int64_t>>(name);
  }
  DType Type(absl::string_view name) const { return Get<DType>(name); }
  const std::string& Data(absl::string_view name) const { return Get<Bytes>(name).data; }

 private:
  template <typename T>
  const T& Get(absl::string_view name) const {
    return TypedValue<T>(name, static_cast<const Map*>(this)->Find(name));
  }
};

// A small map. A lookup scans all entries: ops have at most half a dozen attributes.
class Attributes : public TypedLookups<Attributes> {
 public:
  // An attribute of an initializer list. The constructor moves its value.
  struct Item {
    absl::string_view name;
    mutable AttrValue value;
  };

  Attributes() = default;
  Attributes(std::initializer_list<Item> list) {
    for (const Item& item : list) Set(item.name, std::move(item.value));
  }

  // Returns nullptr if there is no such attribute.
  const AttrValue* Find(absl::string_view name) const;
  void Set(absl::string_view name, AttrValue value);

  // Returns an estimate of the memory that names and values have allocated.
  size_t AllocatedBytes() const;

  // Compares names and values, in the order in which they were set.
  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.entries_ == b.entries_;
  }

  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  using Entry = std::pair<std::string, AttrValue>;
  static constexpr size_t kInlineEntries = 2;

  absl::InlinedVector<Entry, kInlineEntries> entries_;
};

}  // namespace tensord
