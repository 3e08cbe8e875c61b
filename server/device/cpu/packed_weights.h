// Copies of weights in the layout that oneDNN multiplies fastest with, kept while they pay.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "tensord/common/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/device_memory_limit.h"

namespace tensord::server::cpu {

// Thread-safe, except that Use() is called by whoever launches the device's kernels, one thread at
// a time. A buffer that is multiplied with again and again is packed at its third use, where the
// device's limit has room for the copy, which counts as used memory. The copy goes with the buffer,
// or when somebody needs the room.
class PackedWeights {
 public:
  PackedWeights(DeviceMemoryLimit* memory_limit, MemoryPool* pool, OneDnn* onednn)
      : memory_limit_(memory_limit), pool_(pool), onednn_(onednn) {}

  class Copy;

  // Takes note of a product with `weight`, and returns its packed copy, made at this call perhaps;
  // null where there is none in the layout of `product` (one with packed_b). The device must call
  // Forget() before the buffer goes or is written to.
  std::shared_ptr<const Copy> Use(const Buffer* weight,
                                  const std::shared_ptr<OneDnnProduct>& product);

  void Forget(const Buffer* weight);

  // Gives up copies that were not used for longest, until `bytes` of them are gone or none is left;
  // a copy that is being multiplied with stays until that is done. False where there was none.
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
