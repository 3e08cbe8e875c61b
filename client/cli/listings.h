// Devices and tensors as tables and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"
#include "tensord/client/device.h"

namespace tensord::cli {

// A frame around a row per device: name, model, UUID, what it computes with, memory, a bar. Where
// the terminal is too narrow for that, two lines per device.
std::string DeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal);

// A row per tensor, and the totals of each device.
std::string TensorTable(absl::Span<const TensorInfo> tensors, const Terminal& terminal);

// JSON objects and arrays, two spaces of indentation, a newline at the end. Sizes are in bytes.
std::string DevicesJson(const std::string& address, const ServerInfo& server,
                        absl::Span<const DeviceInfo> devices);
std::string TensorsJson(absl::Span<const TensorInfo> tensors);

// "compute 9.0" or "2 threads".
std::string ComputeText(const DeviceInfo& device);

// "gpu-box, tensord 0.1.0, up 3 min".
std::string ServerLine(const ServerInfo& server);

}  // namespace tensord::cli
