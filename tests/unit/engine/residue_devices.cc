#include "tensord/tests/unit/engine/residue_devices.h"

#include "tensord/server/device/cpu/cpu_device.h"

namespace tensord::server {

std::vector<std::unique_ptr<Device>> MakeResidueDevices() {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) {
    devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, i}, int64_t{1} << 30, 1));
  }
  return devices;
}

}  // namespace tensord::server
