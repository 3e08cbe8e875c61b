// Wraps a device and adds the faults that a test orders.
#pragma once

#include <memory>

#include "tensord/server/device/device.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// Wraps `device` in a device with the faults of `plan`, which must outlive the result. The buffers
// are those of `device`. After a fault other than a failed allocation, all calls fail.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, FaultPlan* plan);

}  // namespace tensord::server
