// A device with the faults that a test asks for, which is otherwise as the one that it stands on.
#pragma once

#include <memory>

#include "tensord/server/device/device.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// Stands on `device`, whose buffers it hands out; `plan` outlives it. Once a fault other than an
// allocation's has struck, everything on it fails.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, FaultPlan* plan);

}  // namespace tensord::server
