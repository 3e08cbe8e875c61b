#include "tensord/client/cli/listings.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns the first eight characters after "GPU-" or "CPU-", which are enough to distinguish
// devices.
std::string ShortUuid(absl::string_view uuid) {
  if (!absl::ConsumePrefix(&uuid, "GPU-")) absl::ConsumePrefix(&uuid, "CPU-");
  return Printable(uuid.substr(0, 8));
}

double UsedFraction(const MemoryInfo& memory) {
  if (memory.limit_bytes <= 0) return 0;
  return static_cast<double>(memory.used_bytes) / static_cast<double>(memory.limit_bytes);
}

std::string Bar(const MemoryInfo& memory, int width, const Terminal& terminal) {
  const double fraction = UsedFraction(memory);
  const Style style = fraction >= 0.95   ? Style::kRed
                      : fraction >= 0.75 ? Style::kYellow
                                         : Style::kGreen;
  return absl::StrCat(terminal.Paint(style, UsageBar(fraction, width)),
                      absl::StrFormat(" %3.0f %%", 100 * fraction));
}

std::string UsedOfLimit(const MemoryInfo& memory) {
  return absl::StrCat(FormatBytes(memory.used_bytes), " / ", FormatBytes(memory.limit_bytes));
}

// A row of a table: a device, or a lost server.
struct DeviceRow {
  std::string server;                  // empty for a single server
  const DeviceInfo* device = nullptr;  // nullptr: a lost server

  std::string Name(absl::string_view between) const {
    if (device == nullptr) return server;
    return absl::StrCat(server, server.empty() ? "" : between, device->name.ToString());
  }
};

std::vector<DeviceRow> Rows(absl::Span<const DeviceInfo> devices) {
  std::vector<DeviceRow> rows;
  for (const DeviceInfo& device : devices) rows.push_back({"", &device});
  return rows;
}

// Returns whether a device reports what other processes do with it.
bool AnyHardwareUse(absl::Span<const DeviceRow> rows) {
  return absl::c_any_of(rows, [](const DeviceRow& row) {
    return row.device != nullptr && (row.device->utilization_percent || row.device->others_bytes);
  });
}

std::string UtilizationText(const DeviceInfo& device) {
  return device.utilization_percent ? absl::StrCat(*device.utilization_percent, " %") : "-";
}

std::string OthersText(const DeviceInfo& device) {
  return device.others_bytes ? FormatBytes(*device.others_bytes) : "-";
}

Table WideDeviceTable(absl::Span<const DeviceRow> rows, const Terminal& terminal) {
  std::vector<Column> columns = {{"device"},
                                 {"model", Align::kLeft, 20},
                                 {"uuid"},
                                 {"computes with"},
                                 {"memory used / limit", Align::kRight},
                                 {"peak", Align::kRight},
                                 {"total", Align::kRight},
                                 {"used"}};
  const bool shows_use = AnyHardwareUse(rows);
  if (shows_use) {
    columns.push_back({"other processes", Align::kRight});
    columns.push_back({"utilization", Align::kRight});
  }
  Table table(std::move(columns));
  for (const DeviceRow& row : rows) {
    if (row.device == nullptr) {
      table.AddRow(
          {terminal.Paint(Style::kBold, row.Name("/")), terminal.Paint(Style::kRed, "lost")});
      continue;
    }
    const DeviceInfo& device = *row.device;
    std::vector<std::string> cells = {terminal.Paint(Style::kBold, row.Name("/")),
                                      Printable(device.model),
                                      ShortUuid(device.uuid),
                                      ComputeText(device),
                                      UsedOfLimit(device.memory),
                                      FormatBytes(device.memory.peak_bytes),
                                      FormatBytes(device.memory.total_bytes),
                                      Bar(device.memory, 10, terminal)};
    if (shows_use) {
      cells.push_back(OthersText(device));
      cells.push_back(UtilizationText(device));
    }
    table.AddRow(std::move(cells));
  }
  return table;
}

Table NarrowDeviceTable(absl::Span<const DeviceRow> rows, const Terminal& terminal) {
  const bool shows_use = AnyHardwareUse(rows);
  Table table(
      {{"device"},
       {absl::StrCat("model\nuuid      computes with", shows_use ? "\nutilization" : ""),
        Align::kLeft, 12},
       {absl::StrCat("memory used / limit\npeak, total", shows_use ? "\nother processes" : ""),
        Align::kRight, 10},
       {"used", Align::kLeft, 6}});
  for (const DeviceRow& row : rows) {
    if (&row != rows.data()) table.AddRule();
    if (row.device == nullptr) {
      table.AddRow(
          {terminal.Paint(Style::kBold, row.Name("/\n")), terminal.Paint(Style::kRed, "lost")});
      continue;
    }
    const DeviceInfo& device = *row.device;
    const MemoryInfo& memory = device.memory;
    table.AddRow({terminal.Paint(Style::kBold, row.Name("/\n")),
                  absl::StrCat(Printable(device.model), "\n", PadRight(ShortUuid(device.uuid), 8),
                               "  ", ComputeText(device), shows_use ? "\n" : "",
                               shows_use ? UtilizationText(device) : ""),
                  absl::StrCat(UsedOfLimit(memory), "\n", FormatBytes(memory.peak_bytes), ", ",
                               FormatBytes(memory.total_bytes), shows_use ? "\n" : "",
                               shows_use ? OthersText(device) : ""),
                  Bar(memory, 8, terminal)});
  }
  return table;
}

std::string RenderDevices(absl::Span<const DeviceRow> rows, const Terminal& terminal) {
  const Table wide = WideDeviceTable(rows, terminal);
  return wide.NaturalWidth() <= terminal.width ? wide.Render(terminal)
                                               : NarrowDeviceTable(rows, terminal).Render(terminal);
}

// Returns lines about a device that is lost, is resetting or was reset; otherwise "".
std::string StateLines(const std::string& name, const DeviceInfo& device,
                       const Terminal& terminal) {
  std::string text;
  if (device.state == DeviceState::kLost || device.state == DeviceState::kResetting) {
    text = absl::StrCat(name, " is ", DeviceStateName(device.state), ": ",
                        Printable(device.state_reason));
  } else if (device.restarts > 0) {
    text = absl::StrCat(name, " was reset after ", device.restarts,
                        device.restarts == 1 ? " failure" : " failures");
  }
  std::string lines;
  if (text.empty()) return lines;
  for (const std::string& line : Wrap(text, terminal.width)) {
    const bool serving = device.state == DeviceState::kServing;
    absl::StrAppend(&lines, serving ? line : terminal.Paint(Style::kRed, line), "\n");
  }
  return lines;
}

// Replaces invalid UTF-8, for which the library would throw.
std::string Dump(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

Json SpecJson(const TensorSpec& spec) {
  Json shape = Json::array();
  for (int64_t dim : spec.shape.dims()) shape.push_back(dim);
  return {{"dtype", std::string(DTypeName(spec.dtype))}, {"shape", shape}};
}

// The name is the same as in the table.
Json DeviceJson(const DeviceInfo& device, const ServerListing& server) {
  const std::string name = device.name.ToString();
  Json json = {{"server", server.address},
               {"name", server.name.empty() ? name : absl::StrCat(server.name, "/", name)},
               {"kind", std::string(device.name.kind.name())},
               {"model", device.model},
               {"uuid", device.uuid},
               {"compute_capability", device.compute_capability},
               {"threads", device.threads},
               {"memory_used_bytes", device.memory.used_bytes},
               {"memory_peak_bytes", device.memory.peak_bytes},
               {"memory_limit_bytes", device.memory.limit_bytes},
               {"memory_total_bytes", device.memory.total_bytes},
               {"state", DeviceStateName(device.state)},
               {"state_reason", device.state_reason},
               {"restarts", device.restarts},
               {"utilization_percent", nullptr},
               {"memory_used_by_others_bytes", nullptr}};
  if (device.utilization_percent) json["utilization_percent"] = *device.utilization_percent;
  if (device.others_bytes) json["memory_used_by_others_bytes"] = *device.others_bytes;
  return json;
}

Json ServerJson(const ServerListing& server) {
  return {{"name", server.name.empty() ? server.address : server.name},
          {"server", server.address},
          {"lost", !server.status.ok()},
          {"lost_reason", std::string(server.status.message())}};
}

Json ServersJson(absl::Span<const ServerListing> servers) {
  Json list = Json::array();
  for (const ServerListing& server : servers) list.push_back(ServerJson(server));
  return list;
}

}  // namespace

std::string ComputeText(const DeviceInfo& device) {
  if (!device.compute_capability.empty()) {
    return absl::StrCat("compute ", Printable(device.compute_capability));
  }
  return absl::StrCat(device.threads, device.threads == 1 ? " thread" : " threads");
}

std::string ServerLine(const ServerInfo& server) {
  return absl::StrCat(Printable(server.host_name), ", tensord ", Printable(server.version), ", up ",
                      FormatUptime(server.uptime));
}

std::string DeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal) {
  std::string text = RenderDevices(Rows(devices), terminal);
  for (const DeviceInfo& device : devices) {
    absl::StrAppend(&text, StateLines(device.name.ToString(), device, terminal));
  }
  return text;
}

std::string LostServers(absl::Span<const ServerListing> servers, const Terminal& terminal) {
  std::string lines;
  for (const ServerListing& server : servers) {
    if (server.status.ok()) continue;
    const std::string text = absl::StrCat(Printable(server.name),
                                          " is lost: ", ConnectionFailure(server.status.message()));
    for (const std::string& line : Wrap(text, terminal.width)) {
      absl::StrAppend(&lines, terminal.Paint(Style::kRed, line), "\n");
    }
  }
  return lines;
}

std::string ClusterDeviceTable(absl::Span<const ServerListing> servers, const Terminal& terminal) {
  std::vector<DeviceRow> rows;
  std::string states;
  for (const ServerListing& server : servers) {
    const std::string name = Printable(server.name);
    if (!server.status.ok()) rows.push_back({name, nullptr});
    for (const DeviceInfo& device : server.devices) {
      rows.push_back({name, &device});
      absl::StrAppend(&states, StateLines(rows.back().Name("/"), device, terminal));
    }
  }
  return absl::StrCat(RenderDevices(rows, terminal), states, LostServers(servers, terminal));
}

std::string TensorTable(absl::Span<const TensorInfo> tensors, const Terminal& terminal) {
  std::vector<Column> columns = {{"session", Align::kRight},
                                 {"handle", Align::kRight},
                                 {"dtype"},
                                 {"shape", Align::kLeft, 12},
                                 {"device"},
                                 {"size", Align::kRight}};
  const bool has_principals =
      absl::c_any_of(tensors, [](const auto& t) { return !t.principal.empty(); });
  if (has_principals) columns.insert(columns.begin(), {"principal", Align::kLeft, 12});
  const bool any_failed = absl::c_any_of(tensors, [](const auto& t) { return !t.status.ok(); });
  if (any_failed) columns.push_back({"error", Align::kLeft, 12});
  Table table(std::move(columns), Frame::kNone);
  struct Total {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  for (const TensorInfo& tensor : tensors) {
    const std::string device = tensor.device.empty() ? "-" : Printable(tensor.device);
    const bool has_spec = tensor.spec.dtype != DType::kUnspecified;
    std::vector<std::string> row = {absl::StrCat(tensor.session_number),
                                    absl::StrCat(tensor.handle),
                                    has_spec ? std::string(DTypeName(tensor.spec.dtype)) : "-",
                                    has_spec ? tensor.spec.shape.ToString() : "-",
                                    device,
                                    FormatBytes(tensor.size_bytes)};
    if (has_principals) row.insert(row.begin(), Printable(tensor.principal));
    if (any_failed) row.push_back(terminal.Paint(Style::kRed, Printable(tensor.status.message())));
    table.AddRow(std::move(row));
    Total& total = totals[device];
    ++total.tensors;
    total.bytes += tensor.size_bytes;
  }
  Table sums({{"device"}, {"tensors", Align::kRight}, {"total size", Align::kRight}}, Frame::kNone);
  for (const auto& [device, total] : totals) {
    sums.AddRow({device, FormatCount(total.tensors), FormatBytes(total.bytes)});
  }
  return absl::StrCat(table.Render(terminal), "\n", sums.Render(terminal));
}

std::string SessionTable(absl::Span<const internal::SessionInfo> sessions,
                         const Terminal& terminal) {
  Table table({{"session", Align::kRight},
               {"principal", Align::kLeft, 12},
               {"client", Align::kLeft, 12},
               {"age", Align::kRight},
               {"idle", Align::kRight},
               {"lease", Align::kRight},
               {"handles", Align::kRight},
               {"ops in flight", Align::kRight},
               {"memory", Align::kLeft, 12}},
              Frame::kNone);
  for (const internal::SessionInfo& session : sessions) {
    std::vector<std::string> memory;
    for (const auto& [device, bytes] : session.memory) {
      memory.push_back(absl::StrCat(Printable(device), " ", FormatBytes(bytes)));
    }
    table.AddRow(
        {absl::StrCat(session.number), Printable(session.principal), Printable(session.client_name),
         FormatUptime(session.age), session.in_use ? "in use" : FormatUptime(session.idle),
         FormatUptime(session.lease), FormatCount(session.handles),
         FormatCount(session.ops_in_flight), memory.empty() ? "-" : absl::StrJoin(memory, ", ")});
  }
  return table.Render(terminal);
}

std::string DevicesJson(absl::Span<const ServerListing> servers) {
  Json devices = Json::array();
  Json list = ServersJson(servers);
  for (size_t i = 0; i < servers.size(); ++i) {
    list[i]["host_name"] = servers[i].info.host_name;
    list[i]["version"] = servers[i].info.version;
    for (const DeviceInfo& device : servers[i].devices) {
      devices.push_back(DeviceJson(device, servers[i]));
    }
  }
  return Dump({{"servers", list}, {"devices", devices}});
}

std::string TensorsJson(absl::Span<const ServerListing> servers,
                        absl::Span<const std::vector<TensorInfo>> tensors) {
  Json list = Json::array();
  for (size_t i = 0; i < servers.size(); ++i) {
    for (const TensorInfo& tensor : tensors[i]) {
      Json entry = {{"server", servers[i].address},
                    {"session_number", tensor.session_number},
                    {"handle", tensor.handle}};
      if (!tensor.principal.empty()) entry["principal"] = tensor.principal;
      entry.update(SpecJson(tensor.spec));
      entry["device"] = tensor.device;
      entry["size_bytes"] = tensor.size_bytes;
      entry["error_code"] =
          tensor.status.ok() ? "" : absl::StatusCodeToString(tensor.status.code());
      entry["error"] = std::string(tensor.status.message());
      list.push_back(std::move(entry));
    }
  }
  return Dump({{"servers", ServersJson(servers)}, {"tensors", list}});
}

std::string SessionsJson(const ServerListing& server,
                         absl::Span<const internal::SessionInfo> sessions) {
  Json list = Json::array();
  for (const internal::SessionInfo& session : sessions) {
    Json memory = Json::array();
    for (const auto& [device, bytes] : session.memory) {
      memory.push_back({{"device", device}, {"used_bytes", bytes}});
    }
    list.push_back({{"server", server.address},
                    {"session_number", session.number},
                    {"principal", session.principal},
                    {"client_name", session.client_name},
                    {"age_seconds", absl::ToInt64Seconds(session.age)},
                    {"in_use", session.in_use},
                    {"idle_seconds", absl::ToInt64Seconds(session.idle)},
                    {"lease_seconds", absl::ToInt64Seconds(session.lease)},
                    {"handles", session.handles},
                    {"ops_in_flight", session.ops_in_flight},
                    {"memory", memory}});
  }
  return Dump({{"servers", ServersJson({server})}, {"sessions", list}});
}

}  // namespace tensord::cli
