// "cpu:0", "cuda:1": how a device is named.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tensord {

enum class DeviceKind : unsigned char { kUnspecified = 0, kCpu = 1, kCuda = 2 };

// "cpu" or "cuda".
absl::string_view DeviceKindName(DeviceKind kind);

// A logical device of a server. A value type.
struct DeviceName {
  DeviceKind kind = DeviceKind::kUnspecified;
  int index = 0;

  std::string ToString() const { return absl::StrCat(DeviceKindName(kind), ":", index); }

  friend bool operator==(const DeviceName& a, const DeviceName& b) {
    return a.kind == b.kind && a.index == b.index;
  }
  friend bool operator!=(const DeviceName& a, const DeviceName& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const DeviceName& d) {
    return H::combine(std::move(h), d.kind, d.index);
  }
};

// "cuda" and "cuda:0" both give cuda:0. INVALID_ARGUMENT with the accepted form otherwise.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text);

}  // namespace tensord
