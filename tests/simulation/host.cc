#include "tensord/tests/simulation/host.h"

#include <cstdlib>
#include <utility>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/fault/faulty_device.h"
#include "tensord/tests/simulation/clock.h"

namespace tensord::simulation {

using server::DeviceSlot;
using server::Executor;

Host::Host(const HostOptions& options, Trace* trace) : options_(options), trace_(trace) {
  for (int i = 0; i < kDevices; ++i) {
    plans_.push_back(std::make_unique<server::FaultPlan>(DeviceName{DeviceKind::kCpu, i}));
  }
}

void Host::Start() {
  std::vector<std::unique_ptr<server::Device>> devices;
  for (int i = 0; i < kDevices; ++i) {
    auto device =
        server::MakeCpuDevice({DeviceKind::kCpu, i}, options_.device_bytes, /*threads=*/1);
    if (!device.ok()) std::abort();
    devices.push_back(server::MakeFaultyDevice(*std::move(device), plans_[i].get()));
  }
  principals_ = std::make_unique<server::PrincipalTable>(options_.limits);
  engine_ = std::make_unique<server::Engine>(std::move(devices), options_.fusion, /*graphs=*/true,
                                             Executor::Threading::kCallerThread);
  sessions_ =
      std::make_unique<server::SessionTable>(options_.limits, engine_->slots(), &Clock::Now);
  context_ = std::make_unique<server::ServiceContext>();
  context_->engine = engine_.get();
  context_->sessions = sessions_.get();
  context_->workers = nullptr;
  context_->limits = options_.limits;
}

void Host::Stop() {
  if (engine_ == nullptr) return;
  sessions_.reset();
  for (bool had_work = true; had_work;) {
    had_work = false;
    for (DeviceSlot* slot : engine_->slots()) had_work |= slot->executor->Drain();
  }
  for (int i = 0; i < kDevices; ++i) {
    if (UsedBytes(i) != 0) trace_->Fail("a server ends with ", UsedBytes(i), " bytes in use");
  }
  for (const auto& [number, principal] : seen_) {
    const int64_t bytes = principal->budget(PrincipalLimit::kHostBytes).used();
    if (bytes != 0) trace_->Fail("a server ends with ", bytes, " bytes of host memory charged");
  }
  seen_.clear();
  context_.reset();
  engine_.reset();
  principals_.reset();
}

server::PrincipalRef Host::Principal(int number) {
  server::PrincipalRef& principal = seen_[number];
  if (principal == nullptr) {
    principal =
        principals_->Get(server::Principal::Kind::kToken, absl::StrCat("principal ", number));
  }
  return principal;
}

int64_t Host::UsedBytes(int device) const {
  return engine_->slots()[device]->device->memory().used_bytes;
}

bool Host::RunSlice(int device) {
  if (!engine_->slots()[device]->executor->RunSlice()) return false;
  trace_->Note("  cpu:", device, " runs a slice, ", UsedBytes(device), " bytes are in use");
  return true;
}

void Host::BlockDevice(int device) {
  Executor& executor = *engine_->slots()[device]->executor;
  executor.Post(executor.NewLane(), [] {});
}

}  // namespace tensord::simulation
