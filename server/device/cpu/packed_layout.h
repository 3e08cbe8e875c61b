// A layout of weights with which a library computes faster than with the plain one.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tensord::server::cpu {

class PackedLayout {
 public:
  virtual ~PackedLayout() = default;

  // Returns the size of a packed weight.
  virtual int64_t bytes() const = 0;
  // Returns whether weights that are packed for `other` can be read with this layout.
  virtual bool IsSame(const PackedLayout& other) const = 0;
  // Copies a dense, row-major weight into this layout. One thread at a time may call it: the
  // executor thread, if the device has several threads. If the op must stop (../stop_token.h),
  // returns CANCELLED.
  virtual absl::Status Pack(const void* weight, void* packed) const = 0;
};

}  // namespace tensord::server::cpu
