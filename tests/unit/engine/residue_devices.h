// The devices that residue_test.cc checks.
#pragma once

#include <memory>
#include <vector>

#include "tensord/server/device/device.h"

namespace tensord::server {

// Returns two devices of one kind, :0 and :1, that keep freed memory for reuse. If there are none
// on this machine, returns no device.
std::vector<std::unique_ptr<Device>> MakeResidueDevices();

}  // namespace tensord::server
