// Memory that is kept only for speed, and is freed if an allocation would fail otherwise.
#pragma once

#include <vector>

#include "tensord/common/util/mutex.h"

namespace tensord::server {

class MemoryAccount;

// Owns spare memory. An owner adds itself to the list of the memory's device (Device::spares).
class SpareMemory {
 public:
  virtual ~SpareMemory() = default;

  // Frees the memory that is not in use at this moment. If `account` is not null, frees memory only
  // if that makes room below a limit of `account`. Returns false if nothing was freed. It is called
  // on any thread, with the list's lock held. Must return within microseconds, and must neither
  // allocate memory of the device nor call the list.
  virtual bool FreeUnused(const MemoryAccount* account) = 0;
};

// Thread-safe. Does not own its entries: each must call Remove() before it is destroyed.
class SpareMemoryList {
 public:
  void Add(SpareMemory* spare);
  void Remove(SpareMemory* spare);

  // Calls FreeUnused(account) of all entries. `account` is null if the device itself is out of
  // memory. If nothing was freed, returns false. Another attempt to allocate would then fail, too.
  bool FreeUnused(const MemoryAccount* account);

 private:
  Mutex mu_;
  std::vector<SpareMemory*> spares_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
