// Whose turn it is in a ring of slots.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// INVALID_ARGUMENT unless a message is of this slot, with as much in it.
inline absl::Status CheckSlot(const v1::SharedSlot& slot, uint32_t due, int64_t bytes) {
  if (slot.slot() == due && slot.bytes() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("slot ", due, " with ", bytes,
                                                 " bytes is due, not slot ", slot.slot(), " with ",
                                                 slot.bytes()));
}

// The slots of a transfer that are filled and given back in turn. Not thread-safe.
class SlotTurns {
 public:
  explicit SlotTurns(uint32_t slots = 0) : slots_(slots) {}

  // Filled, and not yet given back.
  uint32_t out() const { return out_; }
  bool any_free() const { return out_ < slots_; }
  // The one to be filled next, where any is free.
  uint32_t next() const { return next_; }
  void Filled() {
    next_ = (next_ + 1) % slots_;
    ++out_;
  }
  void GivenBack() { --out_; }
  // The same by what the other side says: it has to be the oldest that is out.
  absl::Status GiveBack(const v1::SharedSlot& slot) {
    if (out_ == 0) return absl::InvalidArgumentError("no slot is to be given back");
    const absl::Status due = CheckSlot(slot, (next_ + slots_ - out_) % slots_, 0);
    if (due.ok()) --out_;
    return due;
  }

 private:
  uint32_t slots_;
  uint32_t next_ = 0;
  uint32_t out_ = 0;
};

}  // namespace tensord::server
