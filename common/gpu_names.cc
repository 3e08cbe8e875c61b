#include "tensord/common/gpu_names.h"

#include <algorithm>
#include <iterator>

namespace tensord {

bool IsOtherNameForGpu(absl::string_view kind) {
  constexpr absl::string_view kNames[] = {"gpu", "mps", "hip", "rocm", "nvidia"};
  return std::find(std::begin(kNames), std::end(kNames), kind) != std::end(kNames);
}

absl::string_view GpuNameHint(DeviceKind kind) {
  return IsOtherNameForGpu(kind.name()) ? "; GPUs are cuda devices, such as cuda:0" : "";
}

}  // namespace tensord
