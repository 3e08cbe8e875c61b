// Pools, and how much of a device's memory is taken.
//
// As CUDA's pools do, a pool keeps memory that is freed, and returns it to the device when it is
// trimmed, or, above the release threshold, when a stream, event or device is synchronized. What
// pools keep isn't available to others.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::cuda_emulation {

class Pool {
 public:
  Pool(int device, uint64_t max_bytes) : device_(device), max_bytes_(max_bytes) {}
  // Returns what it keeps. No memory of the pool is allocated.
  ~Pool();

  int device() const { return device_; }

  // Takes memory from what the pool keeps, otherwise from the device. Returns false if there is too
  // little. Thread-safe, as all functions.
  bool Take(uint64_t bytes);
  void GiveBack(uint64_t bytes);

  void set_release_threshold(uint64_t bytes);
  // Returns memory to the device until the pool keeps no more than is allocated, or `keep_bytes`.
  void TrimTo(uint64_t keep_bytes);
  // As TrimTo(), if more than the release threshold is kept.
  void OnSynchronize();
  // cudaMemPoolDestroy(): keeps nothing from now on.
  void OnDestroy();

  void SetAccess(int device, bool accessible);
  bool IsAccessibleFrom(int device) const;

 private:
  const int device_;
  const uint64_t max_bytes_;  // 0: no limit
  // The following are guarded by a mutex of the file.
  uint64_t allocated_bytes_ = 0;
  uint64_t kept_bytes_ = 0;  // with allocated_bytes_
  uint64_t release_threshold_ = 0;
  bool destroyed_ = false;
  uint32_t accessible_from_ = 0;  // a bit for each device
};

// Takes memory of a device that belongs to no pool. Returns false if there is too little.
bool TakeDeviceMemory(int device, uint64_t bytes);
void GiveBackDeviceMemory(int device, uint64_t bytes);

// A call has synchronized with work of the device: its pools return what their release thresholds
// don't let them keep.
void ReleaseUnusedMemory(int device);

}  // namespace tensord::cuda_emulation
