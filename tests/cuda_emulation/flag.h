// A flag that is set once and can be waited for.
#pragma once

#include <memory>

#include "tensord/common/util/mutex.h"

namespace tensord::cuda_emulation {

// Thread-safe.
class Flag {
 public:
  void Set() {
    MutexLock lock(&mu_);
    set_ = true;
    changed_.SignalAll();
  }
  bool IsSet() {
    MutexLock lock(&mu_);
    return set_;
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!set_) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
};
using FlagRef = std::shared_ptr<Flag>;

}  // namespace tensord::cuda_emulation
