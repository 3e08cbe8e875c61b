// Devices and tensors as tables and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"
#include "tensord/client/device.h"

namespace tensord::cli {

// A frame around a row per device: name, model, UUID, what it computes with, memory, a bar. Where
// the terminal is too narrow for that, two lines per device.
std::string DeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal);

// One of several servers, as it has answered.
struct ServerListing {
  std::string name;     // "gpu-a", before its devices' names; empty where it is the only one
  std::string address;  // "gpu-a:50051"
  absl::Status status;  // why it is lost; the rest is then empty
  ServerInfo info;
  std::vector<DeviceInfo> devices;
};

// The same for several servers: one table, with a row for a server that is lost, and why below it.
std::string ClusterDeviceTable(absl::Span<const ServerListing> servers, const Terminal& terminal);

// "gpu-b is lost: REASON", a line or more each; empty where none is.
std::string LostServers(absl::Span<const ServerListing> servers, const Terminal& terminal);

// A row per tensor, and the totals of each device.
std::string TensorTable(absl::Span<const TensorInfo> tensors, const Terminal& terminal);

// JSON, two spaces of indentation, a newline at the end, with the same keys for one server and for
// several: "servers", a list, and beside it a list of all their devices, or tensors, each with the
// address of its "server". Names of devices are those that the tables show. Sizes are in bytes.
std::string DevicesJson(absl::Span<const ServerListing> servers);
// `tensors`: by server, in the order of `servers`.
std::string TensorsJson(absl::Span<const ServerListing> servers,
                        absl::Span<const std::vector<TensorInfo>> tensors);

// "compute 9.0" or "2 threads".
std::string ComputeText(const DeviceInfo& device);

// "gpu-box, tensord 0.1.0, up 3 min".
std::string ServerLine(const ServerInfo& server);

}  // namespace tensord::cli
