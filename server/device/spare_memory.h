// Memory that is kept only to be faster, and given up when somebody needs the room.
#pragma once

#include <vector>

#include "tensord/common/mutex.h"

namespace tensord::server {

class MemoryAccount;

// Whoever keeps such memory, known to the device that it is of (Device::spares).
class SpareMemory {
 public:
  virtual ~SpareMemory() = default;

  // Any thread, with the list's lock held: brief, takes no memory, and changes no list. Lets go of
  // what isn't in use at this moment, unless `account` is given and would gain nothing by it. False
  // where nothing went.
  virtual bool GiveUp(const MemoryAccount* account) = 0;
};

// Thread-safe. Holds nobody: who is in it takes itself out before it goes.
class SpareMemoryList {
 public:
  void Add(SpareMemory* spare);
  void Remove(SpareMemory* spare);

  // Has all of them give up what they can: for the device's sake, or for what counts against a
  // limit of `account`. False where nothing went, so that asking for memory again is of no use.
  bool GiveUp(const MemoryAccount* account);

 private:
  Mutex mu_;
  std::vector<SpareMemory*> spares_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
