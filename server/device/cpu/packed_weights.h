// Copies of weights in the layout with which oneDNN multiplies fastest.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/server/device/cpu/packed_layout.h"
#include "tensord/server/device/device_memory_limit.h"

namespace tensord::server::cpu {

// Thread-safe, except Use(), which must be called on the executor thread. A buffer is packed at its
// third use if the device's limit has room for the copy. If there is no room, a later product
// tries again. The copy counts as used memory. It is freed with the buffer, or when an allocation
// needs the room.
class PackedWeights {
 public:
  PackedWeights(DeviceMemoryLimit* memory_limit, MemoryPool* pool)
      : memory_limit_(memory_limit), pool_(pool) {}

  class Copy;

  // Counts a use of `weight` by an op that reads this layout, and packs the weight if that is due.
  // Returns the copy. If there is no copy in this layout, returns null. The device must call
  // Erase() before the buffer is destroyed or written.
  std::shared_ptr<const Copy> Use(const Buffer* weight,
                                  const std::shared_ptr<const PackedLayout>& layout);

  // Drops the copy of `weight` and its count.
  void Erase(const Buffer* weight);

  // Frees the least recently used copies until `bytes` are freed or no copy is left. A copy that a
  // product uses is freed after the product. Returns false if there was no copy.
  bool Release(int64_t bytes);

  static const void* DataOf(const Copy& copy);

 private:
  struct Entry {
    int uses = 0;
    std::shared_ptr<const Copy> copy;
    std::list<const Buffer*>::iterator place;  // the place in recent_; valid if `copy` isn't null
  };

  std::shared_ptr<const Copy> MakeCopy(const Buffer* weight,
                                       const std::shared_ptr<const PackedLayout>& layout);

  DeviceMemoryLimit* const memory_limit_;
  MemoryPool* const pool_;
  Mutex mu_;
  absl::flat_hash_map<const Buffer*, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // Buffers with copies, the most recently used first.
  std::list<const Buffer*> recent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cpu
