#include "tensord/common/attributes.h"

#include <cstdio>
#include <cstdlib>

namespace tensord {
namespace {

[[noreturn]] void AbortOnWrongType(absl::string_view name, const AttrValue* value) {
  const absl::string_view found = value == nullptr ? "missing" : AttrTypeName(*value);
  std::fprintf(stderr, "Attributes: \"%.*s\" doesn't have the requested type: %.*s\n",
               static_cast<int>(name.size()), name.data(), static_cast<int>(found.size()),
               found.data());
  std::abort();
}

}  // namespace

absl::string_view AttrTypeName(const AttrValue& value) {
  static constexpr absl::string_view kNames[] = {"bool", "int",   "float", "string",
                                                 "ints", "dtype", "bytes"};
  static_assert(std::size(kNames) == std::variant_size_v<AttrValue>);
  return value.valueless_by_exception() ? "nothing" : kNames[value.index()];
}

const AttrValue* Attributes::Find(absl::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::Set(absl::string_view name, AttrValue value) {
  for (auto& [key, old_value] : entries_) {
    if (key == name) {
      old_value = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::string(name), std::move(value));
}

template <typename T>
const T& Attributes::Get(absl::string_view name) const {
  const AttrValue* value = Find(name);
  const T* typed = value == nullptr ? nullptr : std::get_if<T>(value);
  if (typed == nullptr) AbortOnWrongType(name, value);
  return *typed;
}

template const bool& Attributes::Get<bool>(absl::string_view) const;
template const int64_t& Attributes::Get<int64_t>(absl::string_view) const;
template const double& Attributes::Get<double>(absl::string_view) const;
template const std::string& Attributes::Get<std::string>(absl::string_view) const;
template const std::vector<int64_t>& Attributes::Get<std::vector<int64_t>>(absl::string_view) const;
template const DType& Attributes::Get<DType>(absl::string_view) const;
template const Bytes& Attributes::Get<Bytes>(absl::string_view) const;

}  // namespace tensord
