// The destination's side of a ring of shared memory, which the source fills during one fetch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/shared_mapping.h"
#include "tensord/server/rpc/bulk/ring_slots.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Not thread-safe.
class RingReceiver {
 public:
  // Tries to map the ring that the source offers. mapped() says whether that succeeded. May block.
  void Map(const v1::SharedRing& ring) {
    auto mapping = SharedMapping::Map({.socket_name = ring.socket_name(),
                                       .secret = ring.secret(),
                                       .slot_bytes = ring.slot_bytes(),
                                       .slots = ring.slots()},
                                      SharedMapping::Access::kRead, kMaxRingBytes);
    if (!mapping.ok()) return;
    mapping_ = *std::move(mapping);
    slots_ = RingSlots(mapping_->slots());
  }
  bool mapped() const { return mapping_ != nullptr; }
  // Returns whether the source has withdrawn the ring. Bytes that were copied out of a slot are
  // valid only if this returns false afterwards.
  bool withdrawn() const { return mapped() && mapping_->withdrawn(); }

  // If the source must not fill this slot now, returns INTERNAL.
  absl::Status CheckSlot(const v1::SharedSlot& slot) const {
    const bool due = mapped() && slots_.any_free() && slot.slot() == slots_.next() &&
                     slot.bytes() > 0 && slot.bytes() <= mapping_->slot_bytes();
    return due ? absl::OkStatus() : absl::InternalError("the source fills a slot that isn't due");
  }
  // Returns the memory of the slot that CheckSlot() has accepted.
  const uint8_t* slot() const { return mapping_->slot(slots_.next()); }

  // Records that the slot's bytes have been copied. The slot must still be returned to the source.
  void MarkCopied() { slots_.Filled(); }
  // Records that a message has been sent to the source. If slots wait for their return, the message
  // returned the oldest one.
  void MessageSent() {
    if (slots_.out() > 0) slots_.Returned();
  }

 private:
  static constexpr int64_t kMaxRingBytes = 64 << 20;  // more than any source offers

  std::unique_ptr<SharedMapping> mapping_;
  RingSlots slots_;
};

}  // namespace tensord::server
