// Devices, tensors and sessions as tables and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"
#include "tensord/client/device.h"
#include "tensord/client/internal/session_admin.h"

namespace tensord::cli {

// Returns a framed table with a row per device: name, model, UUID, compute capability or threads,
// memory, a bar. If the terminal is too narrow, a device has two lines.
std::string DeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal);

// A server's answer.
struct ServerListing {
  std::string name;     // "gpu-a", the prefix of its devices' names; empty for a single server
  std::string address;  // "gpu-a:50051"
  absl::Status status;  // why it is lost; `info` and `devices` are then empty
  ServerInfo info;
  std::vector<DeviceInfo> devices;
};

// Returns such a table for several servers. A lost server has a row, with the reason below it.
std::string ClusterDeviceTable(absl::Span<const ServerListing> servers, const Terminal& terminal);

// Returns "gpu-b is lost: REASON" for each lost server; empty if there is none.
std::string LostServers(absl::Span<const ServerListing> servers, const Terminal& terminal);

// Returns a table with a row per tensor, and the totals of each device. If a tensor has failed, the
// table has a column with the errors. If the tensors have principals, it has a column with their
// names.
std::string TensorTable(absl::Span<const TensorInfo> tensors, const Terminal& terminal);

// Returns a table with a row per session.
std::string SessionTable(absl::Span<const internal::SessionInfo> sessions,
                         const Terminal& terminal);

// Return JSON with two spaces of indentation and a newline at the end. It has the list "servers",
// and a list of all their devices, tensors or sessions, each with the address of its "server". The
// keys don't depend on the number of servers. Devices have the same names as in the tables. Sizes
// are in bytes.
std::string DevicesJson(absl::Span<const ServerListing> servers);
// `tensors` has one list per server, in the order of `servers`.
std::string TensorsJson(absl::Span<const ServerListing> servers,
                        absl::Span<const std::vector<TensorInfo>> tensors);
// Lists the sessions of one server.
std::string SessionsJson(const ServerListing& server,
                         absl::Span<const internal::SessionInfo> sessions);

// "compute 9.0" or "2 threads".
std::string ComputeText(const DeviceInfo& device);

// "gpu-box, tensord 1.2.3, up 3 min".
std::string ServerLine(const ServerInfo& server);

}  // namespace tensord::cli
