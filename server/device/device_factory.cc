#include "tensord/server/device/device_factory.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/fault/faulty_device.h"
#include "tensord/server/device/restartable_device.h"

namespace tensord::server {
namespace {

using Requests = std::vector<DeviceRequest>;

Requests EveryPhysicalDevice(absl::Span<const Backend> backends) {
  Requests requests;
  for (const Backend& backend : backends) {
    std::string reason;
    const int count = backend.count(&reason);
    for (int i = 0; i < count; ++i) requests.push_back({backend.kind, i});
  }
  return requests;
}

// Returns the request's backend. Returns an error if the backend doesn't have the physical device.
absl::StatusOr<const Backend*> FindBackend(absl::Span<const Backend> backends,
                                           const DeviceRequest& request) {
  const auto backend =
      std::find_if(backends.begin(), backends.end(),
                   [&](const Backend& candidate) { return candidate.kind == request.kind; });
  if (backend == backends.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this server has no devices of the kind \"", request.kind.name(), "\"; the kinds are ",
        absl::StrJoin(backends, ", ", [](std::string* out, const Backend& known) {
          absl::StrAppend(out, known.kind.name());
        })));
  }
  std::string reason;
  const int count = backend->count(&reason);
  const DeviceName name = {request.kind, request.physical_index};
  if (count == 0) {
    return absl::UnavailableError(
        absl::StrCat(name.ToString(), " was requested but isn't available: ", reason));
  }
  if (request.physical_index >= count) {
    return absl::UnavailableError(
        absl::StrCat(name.ToString(), " was requested, but this host has ", count,
                     " of this kind: ", request.kind.name(), ":0",
                     count > 1 ? absl::StrCat(" to ", request.kind.name(), ":", count - 1) : ""));
  }
  return &*backend;
}

// Returns a request's own limit, or its share of what the other requests leave of the physical
// device's memory.
absl::StatusOr<int64_t> LimitOf(const Backend& backend, const DeviceRequest& request,
                                const Requests& requests) {
  TENSORD_ASSIGN_OR_RETURN(const int64_t total, backend.total_memory(request.physical_index));
  const int64_t reserved = backend.reserved_memory ? backend.reserved_memory(total) : 0;
  int64_t asked = 0, sharing = 0;
  for (const DeviceRequest& each : requests) {
    if (each.kind != request.kind || each.physical_index != request.physical_index) continue;
    asked += each.limit_bytes;
    if (each.limit_bytes == 0) ++sharing;
  }
  const int64_t room = total - reserved;
  if (room <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", backend.physical_name(request.physical_index), " has no room for a device: of ",
        total, " bytes, ", reserved,
        " are reserved for other uses; give the daemon more memory, or raise its limit of address "
        "space (ulimit -v)"));
  }
  if (asked > room || (sharing > 0 && asked == room)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the limits in --devices add up to ", asked, " bytes, which is too much: the ",
        backend.physical_name(request.physical_index), " has ", total, " bytes, of which ",
        reserved,
        " are reserved for other uses (server/LIMITS.md, \"Where the memory goes\"); use ",
        sharing > 0 ? "less than " : "at most ", room,
        " bytes in all, or omit the limits to use the defaults"));
  }
  if (request.limit_bytes > 0) return request.limit_bytes;
  return std::max<int64_t>(1, (room - asked) / sharing);
}

// Returns the number of threads of device `index` of `devices` devices that share `threads`
// threads. The first devices get the remainder of the division.
int ThreadsOf(int index, int devices, int threads) {
  return std::max(1, threads / devices + (index < threads % devices ? 1 : 0));
}

absl::StatusOr<std::unique_ptr<Device>> MakeFaulty(const Backend& backend,
                                                   const DeviceOptions& options,
                                                   FaultPlans* faults) {
  if (faults == nullptr) {
    return absl::FailedPreconditionError("a faulty device needs --fault-socket");
  }
  FaultPlan* const plan = &faults->Add(options.name);
  return RestartableDevice::Create(
      {[plan, options, make = backend.make]() -> absl::StatusOr<std::unique_ptr<Device>> {
        TENSORD_RETURN_IF_ERROR(plan->Make());
        TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, make(options));
        return MakeFaultyDevice(std::move(device), plan);
      }});
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const Backend& backend,
                                                   const DeviceOptions& options) {
  if (!backend.reset) return backend.make(options);
  const int index = options.physical_index;
  return RestartableDevice::Create({[options, make = backend.make] { return make(options); },
                                    backend.physical_name(index),
                                    [reset = backend.reset, index] { return reset(index); }});
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(absl::Span<const Backend> backends,
                                                                 const Requests& asked,
                                                                 int host_threads,
                                                                 FaultPlans* faults) {
  const Requests requests = asked.empty() ? EveryPhysicalDevice(backends) : asked;
  std::vector<const Backend*> backend_of;
  absl::flat_hash_map<DeviceKind, int> devices_of;
  for (const DeviceRequest& request : requests) {
    TENSORD_ASSIGN_OR_RETURN(backend_of.emplace_back(), FindBackend(backends, request));
    ++devices_of[request.kind];
  }
  std::vector<std::unique_ptr<Device>> devices;
  absl::flat_hash_map<DeviceKind, int> next_index;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Backend& backend = *backend_of[i];
    DeviceOptions options;
    options.name = {backend.kind, next_index[backend.kind]++};
    options.physical_index = requests[i].physical_index;
    TENSORD_ASSIGN_OR_RETURN(options.limit_bytes, LimitOf(backend, requests[i], requests));
    if (backend.host_threads) {
      const int threads = host_threads > 0 ? host_threads : backend.host_threads();
      options.threads = ThreadsOf(options.name.index, devices_of[backend.kind], threads);
    }
    TENSORD_ASSIGN_OR_RETURN(
        std::unique_ptr<Device> device,
        requests[i].faulty ? MakeFaulty(backend, options, faults) : MakeDevice(backend, options));
    devices.push_back(std::move(device));
  }
  return devices;
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(const Requests& requests,
                                                                 int host_threads,
                                                                 FaultPlans* faults) {
  return MakeDevices(BuiltInBackends(), requests, host_threads, faults);
}

}  // namespace tensord::server
