// Names that users try for a GPU. Here GPUs are devices of the kind "cuda".
#pragma once

#include "absl/strings/string_view.h"
#include "tensord/common/device_name.h"

namespace tensord {

// Returns whether `kind` is another name for a GPU, such as "gpu" or "mps".
bool IsOtherNameForGpu(absl::string_view kind);

// Returns the end of an error that names a device that a server doesn't have. If its kind is another
// name for a GPU, returns "; GPUs are cuda devices, such as cuda:0". Otherwise returns "".
absl::string_view GpuNameHint(DeviceKind kind);

}  // namespace tensord
