#include "tensord/client/cli/listings.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using Json = nlohmann::ordered_json;

// Enough to tell devices apart. They begin with "GPU-" or "CPU-".
std::string ShortUuid(absl::string_view uuid) {
  const size_t start = uuid.substr(1, 3) == "PU-" ? 4 : 0;
  return Printable(uuid.substr(start, 8));
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

Table WideDeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal) {
  Table table({{"device"},
               {"model", Align::kLeft, 20},
               {"uuid"},
               {"computes with"},
               {"memory used / limit", Align::kRight},
               {"peak", Align::kRight},
               {"total", Align::kRight},
               {"used"}});
  for (const DeviceInfo& device : devices) {
    table.AddRow({terminal.Paint(Style::kBold, device.name.ToString()), Printable(device.model),
                  ShortUuid(device.uuid), ComputeText(device), UsedOfLimit(device.memory),
                  FormatBytes(device.memory.peak_bytes), FormatBytes(device.memory.total_bytes),
                  Bar(device.memory, 10, terminal)});
  }
  return table;
}

Table NarrowDeviceTable(absl::Span<const DeviceInfo> devices, const Terminal& terminal) {
  Table table({{"device"},
               {"model\nuuid      computes with", Align::kLeft, 12},
               {"memory used / limit\npeak, total", Align::kRight, 10},
               {"used", Align::kLeft, 6}});
  for (const DeviceInfo& device : devices) {
    if (&device != devices.data()) table.AddRule();
    const MemoryInfo& memory = device.memory;
    table.AddRow({terminal.Paint(Style::kBold, device.name.ToString()),
                  absl::StrCat(Printable(device.model), "\n", PadRight(ShortUuid(device.uuid), 8),
                               "  ", ComputeText(device)),
                  absl::StrCat(UsedOfLimit(memory), "\n", FormatBytes(memory.peak_bytes), ", ",
                               FormatBytes(memory.total_bytes)),
                  Bar(memory, 8, terminal)});
  }
  return table;
}

// What is out of the ordinary about a device; empty where nothing is.
std::string StateLines(const DeviceInfo& device, const Terminal& terminal) {
  std::string text;
  const std::string name = device.name.ToString();
  if (device.state == DeviceState::kLost || device.state == DeviceState::kResetting) {
    text = absl::StrCat(name, " is ", DeviceStateWord(device.state), ": ",
                        Printable(device.state_reason));
  } else if (device.restarts > 0) {
    text = absl::StrCat(name, " has come back from ", device.restarts,
                        device.restarts == 1 ? " fault" : " faults");
  }
  std::string lines;
  if (text.empty()) return lines;
  for (const std::string& line : Wrap(text, terminal.width)) {
    const bool serving = device.state == DeviceState::kServing;
    absl::StrAppend(&lines, serving ? line : terminal.Paint(Style::kRed, line), "\n");
  }
  return lines;
}

// What isn't UTF-8 would make the library throw.
std::string Dump(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

Json SpecJson(const TensorSpec& spec) {
  Json shape = Json::array();
  for (int64_t dim : spec.shape.dims()) shape.push_back(dim);
  return {{"dtype", std::string(DTypeName(spec.dtype))}, {"shape", shape}};
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
  const Table wide = WideDeviceTable(devices, terminal);
  std::string text = wide.NaturalWidth() <= terminal.width
                         ? wide.Render(terminal)
                         : NarrowDeviceTable(devices, terminal).Render(terminal);
  for (const DeviceInfo& device : devices) absl::StrAppend(&text, StateLines(device, terminal));
  return text;
}

std::string TensorTable(absl::Span<const TensorInfo> tensors, const Terminal& terminal) {
  Table table({{"session", Align::kRight},
               {"handle", Align::kRight},
               {"dtype"},
               {"shape", Align::kLeft, 12},
               {"device"},
               {"size", Align::kRight}},
              Frame::kNone);
  struct Total {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  for (const TensorInfo& tensor : tensors) {
    const std::string device = Printable(tensor.device);
    table.AddRow({absl::StrCat(tensor.session_number), absl::StrCat(tensor.handle),
                  std::string(DTypeName(tensor.spec.dtype)), tensor.spec.shape.ToString(), device,
                  FormatBytes(tensor.size_bytes)});
    Total& total = totals[device];
    ++total.tensors;
    total.bytes += tensor.size_bytes;
  }
  Table sums({{"device"}, {"tensors", Align::kRight}, {"size together", Align::kRight}},
             Frame::kNone);
  for (const auto& [device, total] : totals) {
    sums.AddRow({device, FormatCount(total.tensors), FormatBytes(total.bytes)});
  }
  return absl::StrCat(table.Render(terminal), "\n", sums.Render(terminal));
}

std::string DevicesJson(const std::string& address, const ServerInfo& server,
                        absl::Span<const DeviceInfo> devices) {
  Json list = Json::array();
  for (const DeviceInfo& device : devices) {
    list.push_back({{"name", device.name.ToString()},
                    {"kind", std::string(DeviceKindName(device.name.kind))},
                    {"model", device.model},
                    {"uuid", device.uuid},
                    {"compute_capability", device.compute_capability},
                    {"threads", device.threads},
                    {"memory_used_bytes", device.memory.used_bytes},
                    {"memory_peak_bytes", device.memory.peak_bytes},
                    {"memory_limit_bytes", device.memory.limit_bytes},
                    {"memory_total_bytes", device.memory.total_bytes},
                    {"state", DeviceStateWord(device.state)},
                    {"state_reason", device.state_reason},
                    {"restarts", device.restarts}});
  }
  return Dump({{"server", address},
               {"host_name", server.host_name},
               {"version", server.version},
               {"devices", list}});
}

std::string TensorsJson(absl::Span<const TensorInfo> tensors) {
  Json list = Json::array();
  for (const TensorInfo& tensor : tensors) {
    Json entry = {{"session_number", tensor.session_number}, {"handle", tensor.handle}};
    entry.update(SpecJson(tensor.spec));
    entry["device"] = tensor.device;
    entry["size_bytes"] = tensor.size_bytes;
    list.push_back(std::move(entry));
  }
  return Dump({{"tensors", list}});
}

}  // namespace tensord::cli
