// Copies of weights in the layout with which oneDNN multiplies fastest.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/device_memory_limit.h"

namespace tensord::server::cpu {

// Thread-safe, except Use(): executor thread. A buffer is packed at its third product, if the
// device's limit has room for the copy, which counts as used memory. The copy is freed with the
// buffer, or when an allocation needs the room.
class PackedWeights {
 public:
  PackedWeights(DeviceMemoryLimit* memory_limit, MemoryPool* pool, OneDnn* onednn)
      : memory_limit_(memory_limit), pool_(pool), onednn_(onednn) {}

  class Copy;

  // Counts a product with `weight` and returns its packed copy, which this call may make. If there
  // is no copy in the layout of `product` (which has packed_b), returns null. The device must call
  // Forget() before the buffer is destroyed or written.
  std::shared_ptr<const Copy> Use(const Buffer* weight,
                                  const std::shared_ptr<OneDnnProduct>& product);

  void Forget(const Buffer* weight);

  // Frees the least recently used copies until `bytes` are freed or none is left. A copy in use is
  // freed after that use. Returns false if there was no copy.
  bool Release(int64_t bytes);

  static const void* DataOf(const Copy& copy);

 private:
  struct Entry {
    int uses = 0;
    std::shared_ptr<const Copy> copy;
    std::list<const Buffer*>::iterator turn;  // in turns_, where there is a copy
  };

  std::shared_ptr<const Copy> MakeCopy(const Buffer* weight,
                                       const std::shared_ptr<OneDnnProduct>& product);

  DeviceMemoryLimit* const memory_limit_;
  MemoryPool* const pool_;
  OneDnn* const onednn_;
  Mutex mu_;
  absl::flat_hash_map<const Buffer*, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<const Buffer*> turns_ ABSL_GUARDED_BY(mu_);  // with copies; the last used first
};

}  // namespace tensord::server::cpu
