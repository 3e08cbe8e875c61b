// Handles of objects. A handle value is never reused, so a handle to a destroyed object is always
// detected. It isn't a valid address, so code that dereferences it faults.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::cuda_emulation {

// Returns a handle value that has not been used before. Thread-safe.
uintptr_t NewHandleValue();

// The live objects of one kind. A reset of the device Object::device() destroys the object.
// Thread-safe.
template <typename Handle, typename Object>
class HandleTable {
 public:
  // Reports call an object `kind`, such as "a stream".
  explicit HandleTable(const char* kind) : kind_(kind) {}

  Handle Add(std::shared_ptr<Object> object) {
    const auto handle = reinterpret_cast<Handle>(NewHandleValue());
    MutexLock lock(&mu_);
    live_[handle] = std::move(object);
    return handle;
  }

  // Returns the object. If there is none, prints a report that names `call`, and returns null.
  std::shared_ptr<Object> Find(Handle handle, absl::string_view call) {
    MutexLock lock(&mu_);
    const auto it = live_.find(handle);
    if (it != live_.end()) return it->second;
    Refuse(handle, call);
    return nullptr;
  }

  // Does the same as Find(), and makes the handle invalid.
  std::shared_ptr<Object> Remove(Handle handle, absl::string_view call) {
    MutexLock lock(&mu_);
    auto node = live_.extract(handle);
    if (node.empty()) Refuse(handle, call);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

  std::vector<std::shared_ptr<Object>> ObjectsOf(int device) {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<Object>> objects;
    for (const auto& [handle, object] : live_) {
      if (object->device() == device) objects.push_back(object);
    }
    return objects;
  }

  // cudaDeviceReset(): makes the handles of the device's objects invalid, and returns the objects.
  std::vector<std::shared_ptr<Object>> RemoveAllOf(int device) {
    MutexLock lock(&mu_);
    std::vector<std::shared_ptr<Object>> objects;
    for (auto it = live_.begin(); it != live_.end();) {
      if (it->second->device() != device) {
        ++it;
        continue;
      }
      was_reset_[it->first] = device;
      objects.push_back(std::move(it->second));
      it = live_.erase(it);
    }
    return objects;
  }

  size_t size() {
    MutexLock lock(&mu_);
    return live_.size();
  }

 private:
  void Refuse(Handle handle, absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = was_reset_.find(handle);
    Report(it != was_reset_.end()
               ? absl::StrCat(call, ": ", kind_, " from before the reset of device ", it->second)
               : absl::StrCat(call, ": ", kind_, " that was destroyed or never created"));
  }

  const char* const kind_;
  Mutex mu_;
  std::map<Handle, std::shared_ptr<Object>> live_ ABSL_GUARDED_BY(mu_);
  std::map<Handle, int> was_reset_ ABSL_GUARDED_BY(mu_);  // handle → device that was reset
};

}  // namespace tensord::cuda_emulation
