// Records which slots of a ring are filled, and which slot is next.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// If `slot` isn't the expected slot with `bytes` bytes, returns INVALID_ARGUMENT.
inline absl::Status CheckSlot(const v1::SharedSlot& slot, uint32_t expected, int64_t bytes) {
  if (slot.slot() == expected && slot.bytes() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected slot ", expected, " with ", bytes,
                                                 " bytes, got slot ", slot.slot(), " with ",
                                                 slot.bytes(), " bytes"));
}

// The slots of a transfer. One side fills them in order, and the other side returns them in the
// same order. Not thread-safe.
class RingSlots {
 public:
  explicit RingSlots(uint32_t slots = 0) : slots_(slots) {}

  // Returns the number of slots that are filled and not yet returned.
  uint32_t out() const { return out_; }
  bool any_free() const { return out_ < slots_; }
  // Returns the slot to fill next, if any is free.
  uint32_t next() const { return next_; }
  // Reports that slot next() has been filled.
  void Filled() {
    next_ = (next_ + 1) % slots_;
    ++out_;
  }
  // Reports that the oldest filled slot has been returned.
  void Returned() { --out_; }
  // Handles the other side's message that `slot` has been returned. If `slot` isn't the oldest
  // filled slot, returns INVALID_ARGUMENT.
  absl::Status HandleReturn(const v1::SharedSlot& slot) {
    if (out_ == 0) return absl::InvalidArgumentError("a slot was returned that isn't filled");
    const absl::Status expected = CheckSlot(slot, (next_ + slots_ - out_) % slots_, 0);
    if (expected.ok()) --out_;
    return expected;
  }

 private:
  uint32_t slots_;
  uint32_t next_ = 0;
  uint32_t out_ = 0;
};

}  // namespace tensord::server
