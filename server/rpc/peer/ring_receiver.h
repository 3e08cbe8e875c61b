// The destination's end of a ring of shared memory, which a source fills for one fetch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/shared_mapping.h"
#include "tensord/server/rpc/bulk/slot_turns.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Not thread-safe.
class RingReceiver {
 public:
  // Maps the ring that the source offers, if that is possible: mapped() says so. May block.
  void Map(const v1::SharedRing& ring) {
    auto mapping = SharedMapping::Map({.socket_name = ring.socket_name(),
                                       .secret = ring.secret(),
                                       .slot_bytes = ring.slot_bytes(),
                                       .slots = ring.slots()},
                                      SharedMapping::Access::kRead, kMaxRingBytes);
    if (!mapping.ok()) return;
    mapping_ = *std::move(mapping);
    turns_ = SlotTurns(mapping_->slots());
  }
  bool mapped() const { return mapping_ != nullptr; }

  // Returns INTERNAL unless the source may fill this slot now.
  absl::Status CheckSlot(const v1::SharedSlot& slot) const {
    const bool due = mapped() && turns_.any_free() && slot.slot() == turns_.next() &&
                     slot.bytes() > 0 && slot.bytes() <= mapping_->slot_bytes();
    return due ? absl::OkStatus() : absl::InternalError("the source fills a slot that isn't due");
  }
  // The memory of the slot that CheckSlot() has accepted.
  const uint8_t* slot() const { return mapping_->slot(turns_.next()); }

  // The slot has been copied out. Its return to the source waits.
  void Emptied() { turns_.Filled(); }
  // A message has gone to the source: it returns the oldest slot that waits for that, if any.
  void MessageSent() {
    if (turns_.out() > 0) turns_.GivenBack();
  }

 private:
  static constexpr int64_t kMaxRingBytes = 64 << 20;  // more than any source offers

  std::unique_ptr<SharedMapping> mapping_;
  SlotTurns turns_;
};

}  // namespace tensord::server
