// Makes CUDA devices whose memory a checker can watch.
#pragma once

#include <memory>

#include "tensord/server/device/cuda/cuda_device.h"

namespace tensord::server {

// Does the same as MakeCudaDevice(), but the driver frees each block at once. The emulation and
// compute-sanitizer then detect accesses before an allocation or after a free.
inline absl::StatusOr<std::unique_ptr<Device>> MakeCheckedCudaDevice(DeviceName name,
                                                                     int physical_index,
                                                                     int64_t limit_bytes) {
  return MakeCudaDevice(name, physical_index, limit_bytes, SmallBlocks::kFree);
}

}  // namespace tensord::server
