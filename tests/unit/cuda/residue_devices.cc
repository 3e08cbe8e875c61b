#include "tensord/tests/unit/engine/residue_devices.h"

#include "tensord/server/device/cuda/cuda_device.h"

namespace tensord::server {

std::vector<std::unique_ptr<Device>> MakeResidueDevices() {
  std::vector<std::unique_ptr<Device>> devices;
  std::string reason;
  if (CudaDeviceCount(&reason) == 0) return devices;
  for (int i = 0; i < 2; ++i) {
    devices.push_back(*MakeCudaDevice({DeviceKind::kCuda, i}, 0, int64_t{1} << 30));
  }
  return devices;
}

}  // namespace tensord::server
