// The name of a device: "cpu:0", "cuda:1".
#pragma once

#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tensord {

// The kind of a device: "cpu", "cuda", or another one that a server has a backend for. A value
// type.
class DeviceKind {
 public:
  static constexpr size_t kMaxNameBytes = 15;
  static const DeviceKind kCpu;
  static const DeviceKind kCuda;

  // Makes no kind: name() is empty.
  constexpr DeviceKind() = default;
  // `name` must be valid: see IsValidName().
  explicit constexpr DeviceKind(absl::string_view name) {
    for (size_t i = 0; i < name.size() && i < kMaxNameBytes; ++i) name_[i] = name[i];
  }

  // Returns whether `name` consists of 1 to 15 lowercase letters.
  static bool IsValidName(absl::string_view name);

  // Returns "cuda". For no kind, returns "".
  constexpr absl::string_view name() const { return name_; }

  friend bool operator==(const DeviceKind& a, const DeviceKind& b) {
    return std::memcmp(a.name_, b.name_, sizeof(name_)) == 0;
  }
  template <typename H>
  friend H AbslHashValue(H h, const DeviceKind& kind) {
    return H::combine(std::move(h), kind.name());
  }

 private:
  char name_[kMaxNameBytes + 1] = {};
};

inline constexpr DeviceKind DeviceKind::kCpu{"cpu"};
inline constexpr DeviceKind DeviceKind::kCuda{"cuda"};

// A logical device of a server. A value type.
struct DeviceName {
  DeviceKind kind;
  int index = 0;

  std::string ToString() const { return absl::StrCat(kind.name(), ":", index); }

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const DeviceName& d) {
    return H::combine(std::move(h), d.kind, d.index);
  }
};

// Returns the end of an error that has listed a server's devices: ", and no cuda device: no NVIDIA
// driver found".
inline std::string NoDeviceOfKind(DeviceKind kind, absl::string_view reason) {
  return absl::StrCat(", and no ", kind.name(), " device: ", reason);
}

// Parses "cuda:0", or "cuda", which means cuda:0. Accepts any valid kind. If `text` is malformed,
// returns INVALID_ARGUMENT with the accepted forms.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text);

}  // namespace tensord
