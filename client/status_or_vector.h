// absl::StatusOr of a vector, safe in a range-based for.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tensord {

// Works as absl::StatusOr<std::vector<T>> does, but `*` and value() of a temporary return the
// vector itself, not a reference into the temporary. So a loop over the result of a call is valid:
//
//   for (const DeviceInfo& device : *client.ListDevices()) …
//
// With absl::StatusOr, C++20 ends the lifetime of the call's result before the loop begins.
template <typename T>
class StatusOrVector : public absl::StatusOr<std::vector<T>> {
  using Base = absl::StatusOr<std::vector<T>>;

 public:
  using Base::Base;
  StatusOrVector(Base base) : Base(std::move(base)) {}  // NOLINT: implicit, as in absl::StatusOr

  using Base::operator*;
  std::vector<T> operator*() && { return *static_cast<Base&&>(*this); }
  using Base::value;
  std::vector<T> value() && { return static_cast<Base&&>(*this).value(); }
};

}  // namespace tensord
