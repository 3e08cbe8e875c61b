// tensorctl devices: lists the devices of servers.
#include <ostream>

#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/listings.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

absl::StatusOr<int> RunDevicesOfAll(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, ConnectAll(context, "devices"));
  const std::vector<ServerListing> servers = ListServers(cluster);
  context.out << (context.flags.Has("json") ? DevicesJson(servers)
                                            : ClusterDeviceTable(servers, context.out_terminal));
  return AnyLost(servers) ? 1 : 0;
}

absl::StatusOr<int> RunDevices(CommandContext& context) {
  if (!context.servers.several.empty()) return RunDevicesOfAll(context);
  TENSORD_ASSIGN_OR_RETURN(const Client client, Connect(context, "devices"));
  TENSORD_ASSIGN_OR_RETURN(const ServerInfo server, client.GetServerInfo());
  TENSORD_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, client.ListDevices());
  if (context.flags.Has("json")) {
    context.out << DevicesJson({{.address = client.address(), .info = server, .devices = devices}});
  } else {
    context.out << client.address() << ": " << ServerLine(server) << "\n"
                << DeviceTable(devices, context.out_terminal);
  }
  return 0;
}

}  // namespace

CommandSpec DevicesCommand() {
  return {
      .name = "devices",
      .summary = "the devices of a server, with their memory",
      .description =
          "Shows each device with its model, the beginning of its UUID (the same for devices on "
          "the same hardware), its compute capability or its threads, and its memory: the bytes "
          "that tensors use, their limit, their peak since the server started, and the memory of "
          "the hardware. For GPUs, also shows the memory that other processes hold, and the "
          "utilization by all processes; \"-\" if the driver doesn't report it. With --servers, "
          "one table has the devices of all servers. A server that "
          "can't be reached has a row, too, and the exit status is then 1.\n"
          "JSON has the same keys for one server as for several: \"servers\", a list, and "
          "\"devices\", the list of all devices, each with the address of its \"server\".",
      .flags = {{"json", "", "print JSON, with sizes in bytes, for programs"}},
      .examples = {{"tensorctl devices", "Lists the devices of the server on this machine."},
                   {"tensorctl --servers gpu-a:50051,gpu-b:50051 devices",
                    "Lists the devices of two servers, named gpu-a/cuda:0 and so on."},
                   {"tensorctl devices --json | jq '.devices[].name'", "Lists only their names."},
                   {"watch -n 1 tensorctl devices", "Updates every second."}},
      .run = RunDevices,
  };
}

}  // namespace tensord::cli
