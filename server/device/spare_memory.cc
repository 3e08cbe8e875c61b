#include "tensord/server/device/spare_memory.h"

#include <algorithm>

namespace tensord::server {

void SpareMemoryList::Add(SpareMemory* spare) {
  MutexLock lock(&mu_);
  spares_.push_back(spare);
}

void SpareMemoryList::Remove(SpareMemory* spare) {
  MutexLock lock(&mu_);
  spares_.erase(std::find(spares_.begin(), spares_.end(), spare));
}

bool SpareMemoryList::FreeUnused(const MemoryAccount* account) {
  MutexLock lock(&mu_);
  bool any = false;
  for (SpareMemory* spare : spares_) any |= spare->FreeUnused(account);
  return any;
}

}  // namespace tensord::server
