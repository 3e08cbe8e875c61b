// Wraps a device and adds the faults that a test orders.
#pragma once

#include <memory>

#include "tensord/server/device/device.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// Wraps `device`, and returns its buffers. `plan` must outlive the result. After a fault other than
// that of an allocation, all calls fail.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, FaultPlan* plan);

}  // namespace tensord::server
