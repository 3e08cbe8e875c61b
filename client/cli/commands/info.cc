// tensorctl info: prints what a server reports about itself.
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/text.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ProtocolText(const ServerInfo& server) {
  if (server.min_protocol_version == server.max_protocol_version) {
    return absl::StrCat(server.max_protocol_version);
  }
  return absl::StrCat(server.min_protocol_version, " to ", server.max_protocol_version);
}

std::string InfoText(const Client& client, const ServerInfo& server,
                     absl::Span<const DeviceInfo> devices, const Terminal& terminal) {
  Table table({{""}, {"", Align::kLeft, 20}}, Frame::kNone);
  const auto row = [&](absl::string_view name, const std::string& value) {
    std::string label = terminal.Paint(Style::kDim, name);
    const int width = terminal.width - 14;
    for (const std::string& line : Wrap(value, width)) {
      table.AddRow({label, line});
      label.clear();
    }
  };
  row("address", client.address());
  row("host", Printable(server.host_name));
  row("version", Printable(server.version));
  row("protocol", ProtocolText(server));
  row("epoch", Printable(server.epoch));
  row("identity", server.caller.empty() ? "(anonymous)" : Printable(server.caller));
  if (!server.peer_address.empty()) row("for peers", Printable(server.peer_address));
  row("up", FormatUptime(server.uptime));
  row("features", Printable(absl::StrJoin(server.features, ", ")));
  row("limits", absl::StrCat("largest message ", FormatBytes(server.max_message_bytes),
                             "; a session's lease ", FormatUptime(client.lease())));
  for (const DeviceInfo& device : devices) {
    row(device.name.ToString(),
        absl::StrCat(Printable(device.model), ", ", ComputeText(device), ", tensors up to ",
                     FormatBytes(device.memory.limit_bytes)));
  }
  for (const auto& [kind, reason] : server.unavailable_devices) {
    row(absl::StrCat("no ", Printable(kind)), Printable(reason));
  }
  return table.Render(terminal);
}

Json InfoJson(const std::string& name, const Client& client, const ServerInfo& server,
              absl::Span<const DeviceInfo> devices) {
  Json names = Json::array();
  for (const DeviceInfo& device : devices) names.push_back(device.name.ToString());
  return {{"name", name},
          {"server", client.address()},
          {"lost", false},
          {"lost_reason", ""},
          {"host_name", server.host_name},
          {"version", server.version},
          {"min_protocol_version", server.min_protocol_version},
          {"max_protocol_version", server.max_protocol_version},
          {"epoch", server.epoch},
          {"peer_address", server.peer_address},
          {"caller", server.caller},
          {"uptime_seconds", absl::ToInt64Seconds(server.uptime)},
          {"features", server.features},
          {"max_message_bytes", server.max_message_bytes},
          {"lease_seconds", absl::ToInt64Seconds(client.lease())},
          {"devices", names},
          {"unavailable_devices", server.unavailable_devices}};
}

std::string Dump(const Json& json) {
  // Replaces invalid UTF-8, for which the library would throw.
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

absl::StatusOr<int> RunInfoOfAll(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, ConnectAll(context, "info"));
  const std::vector<ClusterServer> servers = cluster.servers();
  const std::vector<ServerListing> listings = ListServers(cluster);
  Json list = Json::array();
  std::string text;
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerListing& server = listings[i];
    if (server.status.ok()) {
      list.push_back(InfoJson(server.name, servers[i].client, server.info, server.devices));
      absl::StrAppend(
          &text, InfoText(servers[i].client, server.info, server.devices, context.out_terminal));
    } else {
      list.push_back({{"name", server.name},
                      {"server", server.address},
                      {"lost", true},
                      {"lost_reason", std::string(server.status.message())}});
      absl::StrAppend(&text, LostServers({&server, 1}, context.out_terminal));
    }
    if (i + 1 < servers.size()) absl::StrAppend(&text, "\n");
  }
  context.out << (context.flags.Has("json") ? Dump({{"servers", list}}) : text);
  return AnyLost(listings) ? 1 : 0;
}

absl::StatusOr<int> RunInfo(CommandContext& context) {
  if (!context.servers.several.empty()) return RunInfoOfAll(context);
  TENSORD_ASSIGN_OR_RETURN(const Client client, Connect(context, "info"));
  TENSORD_ASSIGN_OR_RETURN(const ServerInfo server, client.GetServerInfo());
  TENSORD_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, client.ListDevices());
  context.out << (context.flags.Has("json")
                      ? Dump({{"servers",
                               Json::array({InfoJson(client.address(), client, server, devices)})}})
                      : InfoText(client, server, devices, context.out_terminal));
  return 0;
}

}  // namespace

CommandSpec InfoCommand() {
  return {
      .name = "info",
      .summary = "the version, protocol, limits and devices of a server",
      .description =
          "Shows the server's version and protocol versions, its epoch (new with every start: "
          "handles from an earlier epoch are gone), its uptime, its features, its limits, its "
          "devices, and, if it serves no GPU, the reason. If the server authenticates clients, "
          "also shows this client's identity. With --servers, shows one server after the other; if "
          "a server is lost, the exit status is 1. JSON has a list of \"servers\", also for one "
          "server.",
      .flags = {{"json", "", "print JSON for programs"}},
      .examples = {{"tensorctl --server gpu-box:50051 info", "Describes the server on gpu-box."}},
      .run = RunInfo,
  };
}

}  // namespace tensord::cli
