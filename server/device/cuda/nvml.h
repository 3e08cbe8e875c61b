// The NVIDIA Management Library (NVML), which comes with the driver. It reports what all processes
// of the machine do with a GPU.
#pragma once

#include <string>

#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

// Thread-safe. The library is loaded by the constructor, which may take 100 ms, and never unloaded.
class Nvml {
 public:
  // `library` is the file name or path of the library. If it can't be loaded or initialized,
  // Query() returns no figures.
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the figures of the GPU with this UUID ("GPU-01234567-…"). Leaves out each figure that
  // the driver doesn't report. Takes about a millisecond.
  HardwareUse Query(const std::string& uuid) const;

 private:
  struct Functions;
  const Functions* functions_ = nullptr;  // null if the library can't be used
};

// Returns the Nvml of this process. Makes it at the first call.
const Nvml& ProcessNvml();

}  // namespace tensord::server::cuda
