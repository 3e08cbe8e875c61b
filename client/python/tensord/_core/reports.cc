#include "tensord/client/python/tensord/_core/reports.h"

#include <utility>

namespace tensord::python {
namespace {

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

}  // namespace

nb::dict ToDict(const MemoryInfo& memory) {
  nb::dict dict;
  dict["total_bytes"] = memory.total_bytes;
  dict["limit_bytes"] = memory.limit_bytes;
  dict["used_bytes"] = memory.used_bytes;
  dict["peak_bytes"] = memory.peak_bytes;
  return dict;
}

nb::dict ToDict(const DeviceInfo& info) {
  nb::dict dict;
  dict["name"] = info.name.ToString();
  dict["model"] = info.model;
  dict["uuid"] = info.uuid;
  dict["compute_capability"] = info.compute_capability;
  dict["threads"] = info.threads;
  dict["memory"] = ToDict(info.memory);
  dict["state"] = DeviceStateName(info.state);
  dict["state_reason"] = info.state_reason;
  dict["restarts"] = info.restarts;
  dict["utilization_percent"] = info.utilization_percent;
  dict["others_bytes"] = info.others_bytes;
  return dict;
}

nb::dict ToDict(const ServerInfo& info) {
  nb::dict dict;
  dict["version"] = info.version;
  dict["min_protocol_version"] = info.min_protocol_version;
  dict["max_protocol_version"] = info.max_protocol_version;
  dict["features"] = info.features;
  dict["epoch"] = info.epoch;
  dict["host_name"] = info.host_name;
  dict["uptime_seconds"] = Seconds(info.uptime);
  dict["unavailable_devices"] = info.unavailable_devices;
  dict["peer_address"] = info.peer_address;
  dict["caller"] = info.caller;
  return dict;
}

nb::dict ToDict(const TensorInfo& info) {
  nb::dict dict;
  dict["handle"] = info.handle;
  dict["dtype"] = ToPython(info.spec.dtype);
  dict["shape"] = ToTuple(info.spec.shape);
  dict["device"] = info.device;
  dict["size_bytes"] = info.size_bytes;
  dict["session_number"] = info.session_number;
  dict["principal"] = info.principal;
  dict["error"] =
      info.status.ok() ? nb::object(nb::none()) : nb::cast(ForPython(info.status.message()));
  return dict;
}

nb::dict ToDict(const ClientStats& stats) {
  nb::dict dict;
  dict["commands_sent"] = stats.commands_sent;
  dict["messages_sent"] = stats.messages_sent;
  dict["reconnects"] = stats.reconnects;
  dict["bytes_uploaded"] = stats.bytes_uploaded;
  dict["bytes_downloaded"] = stats.bytes_downloaded;
  dict["bytes_shared"] = stats.bytes_shared;
  dict["copies_relayed"] = stats.copies_relayed;
  dict["copies_route_skipped"] = stats.copies_route_skipped;
  dict["waits"] = stats.waits;
  dict["waited_seconds"] = Seconds(stats.waited);
  const std::pair<const char*, WaitStats> kinds[] = {{"reads", stats.reads},
                                                     {"uploads", stats.uploads},
                                                     {"tensor_waits", stats.tensor_waits},
                                                     {"synchronizes", stats.synchronizes},
                                                     {"info_calls", stats.info_calls},
                                                     {"full_queue_waits", stats.full_queue_waits}};
  for (const auto& [name, wait] : kinds)
    dict[name] = nb::make_tuple(wait.count, Seconds(wait.time));
  return dict;
}

}  // namespace tensord::python
