// Memory pools, and how much of a device's memory is in use.
//
// As in CUDA, a pool keeps freed memory. The pool returns it to the device when the pool is
// trimmed. When a stream, event or device is synchronized, the pool returns the memory that exceeds
// its release threshold. Other pools and cudaMalloc() can't allocate memory that a pool keeps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::cuda_emulation {

// All functions are thread-safe.
class Pool {
 public:
  Pool(int device, uint64_t max_bytes) : device_(device), max_bytes_(max_bytes) {}
  // Returns the memory that the pool keeps to the device. No memory of the pool may be allocated.
  ~Pool();

  int device() const { return device_; }

  // Takes `bytes` of the memory that the pool keeps, and of the device if that isn't enough.
  // Returns false if the device has too little memory, or the pool would exceed its maximum size.
  bool Acquire(uint64_t bytes);
  // Frees `bytes` that Acquire() took. The pool keeps them, unless it has been destroyed.
  void Release(uint64_t bytes);

  void set_release_threshold(uint64_t bytes);
  // Returns freed memory to the device until the pool holds no more than `keep_bytes`, or only
  // memory that is allocated.
  void TrimTo(uint64_t keep_bytes);
  // Trims the pool to its release threshold.
  void OnSynchronize();
  // cudaMemPoolDestroy() calls this. From now on, the pool returns freed memory at once.
  void OnDestroy();

  void SetAccess(int device, bool accessible);
  bool IsAccessibleFrom(int device) const;

 private:
  const int device_;
  const uint64_t max_bytes_;  // 0: no limit
  // A mutex in memory_pool.cc guards the members below.
  uint64_t allocated_bytes_ = 0;
  uint64_t kept_bytes_ = 0;  // allocated_bytes_, plus freed memory that the pool keeps
  uint64_t release_threshold_ = 0;
  bool destroyed_ = false;
  uint32_t accessible_from_ = 0;  // a bit for each device
};

// Takes memory of a device for an allocation outside of pools. Returns false if the device has too
// little memory. Thread-safe.
bool AcquireDeviceMemory(int device, uint64_t bytes);
void ReleaseDeviceMemory(int device, uint64_t bytes);

// Call it after a stream, event or device was synchronized. Trims each pool of the device to its
// release threshold. Thread-safe.
void ReleaseUnusedMemory(int device);

}  // namespace tensord::cuda_emulation
