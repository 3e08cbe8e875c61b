#include "tensord/server/engine/device_monitor.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

// How often the monitor checks for a loss that no call has found.
constexpr auto kPollInterval = std::chrono::milliseconds(100);
// The pause between two attempts to restart the devices. It doubles with each attempt.
constexpr auto kMinPause = std::chrono::milliseconds(100);
constexpr auto kMaxPause = std::chrono::milliseconds(5000);
// After this number of failed restarts in a row, the monitor reports kNotRestarted.
constexpr int kTriesBeforeReport = 5;

RestartableDevice& DeviceOf(DeviceSlot* slot) { return *slot->device->restartable(); }

}  // namespace

DeviceMonitor::DeviceMonitor(std::vector<DeviceSlot*> slots, Listener listener)
    : slots_(std::move(slots)), listener_(std::move(listener)) {
  for (DeviceSlot* slot : slots_) {
    DeviceOf(slot).SetLossListener([this] {
      MutexLock lock(&mu_);
      loss_reported_ = true;
      changed_.SignalAll();
    });
  }
  thread_ = std::thread([this] { Run(); });
}

DeviceMonitor::~DeviceMonitor() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
  for (DeviceSlot* slot : slots_) DeviceOf(slot).SetLossListener(nullptr);
}

bool DeviceMonitor::Wait() {
  MutexLock lock(&mu_);
  if (!loss_reported_ && !stopping_) changed_.WaitFor(&mu_, kPollInterval);
  loss_reported_ = false;
  return !stopping_;
}

void DeviceMonitor::Run() {
  while (Wait()) CheckDevices();
}

void DeviceMonitor::CheckDevices() {
  std::string lost;
  for (DeviceSlot* slot : slots_) {
    DeviceOf(slot).Poll();
    const DeviceHealth health = DeviceOf(slot).health();
    if (!health.serving() && lost.empty()) lost = health.reason;
  }
  if (lost.empty()) return;
  const absl::Status reason = absl::DataLossError(lost);
  for (DeviceSlot* slot : slots_) DeviceOf(slot).MarkLostByDomain(reason);
  if (std::exchange(reported_serving_, false)) {
    Report(DeviceEvent::kLost);
  }
  if (std::chrono::steady_clock::now() >= next_try_) Restart();
}

void DeviceMonitor::Restart() {
  OnExecutors([](RestartableDevice& device) { device.Abandon(); });
  const absl::Status reset = DeviceOf(slots_.front()).Reset();
  if (reset.ok()) {
    OnExecutors([](RestartableDevice& device) { device.Restart().IgnoreError(); });
  } else {
    for (DeviceSlot* slot : slots_) DeviceOf(slot).Fail(reset);
  }
  const bool all_serve = std::all_of(slots_.begin(), slots_.end(), [](DeviceSlot* slot) {
    return DeviceOf(slot).health().serving();
  });
  if (all_serve) {
    pause_ = std::chrono::milliseconds(0);
    failed_tries_ = 0;
    reported_serving_ = true;
    Report(DeviceEvent::kServing);
  } else {
    pause_ = std::clamp(2 * pause_, kMinPause, kMaxPause);
    if (++failed_tries_ % kTriesBeforeReport == 0) Report(DeviceEvent::kNotRestarted);
  }
  next_try_ = std::chrono::steady_clock::now() + pause_;
}

void DeviceMonitor::Report(DeviceEvent event) {
  for (DeviceSlot* slot : slots_) listener_(*slot, event);
}

void DeviceMonitor::OnExecutors(const std::function<void(RestartableDevice&)>& task) {
  struct Left {
    Mutex mu;
    CondVar changed;
    size_t count ABSL_GUARDED_BY(mu);
  };
  auto left = std::make_shared<Left>();
  {
    MutexLock lock(&left->mu);
    left->count = slots_.size();
  }
  for (DeviceSlot* slot : slots_) {
    slot->executor->Post(slot->executor->NewLane(), [slot, left, &task] {
      task(DeviceOf(slot));
      MutexLock lock(&left->mu);
      if (--left->count == 0) left->changed.SignalAll();
    });
  }
  MutexLock lock(&left->mu);
  while (left->count > 0) left->changed.Wait(&left->mu);
}

std::vector<std::vector<DeviceSlot*>> FaultDomains(const std::vector<DeviceSlot*>& slots) {
  std::vector<std::vector<DeviceSlot*>> domains;
  std::map<std::string, size_t> by_name;
  for (DeviceSlot* slot : slots) {
    const RestartableDevice* device = slot->device->restartable();
    if (device == nullptr) continue;
    if (device->fault_domain().empty()) {
      domains.push_back({slot});
      continue;
    }
    const auto [place, is_new] = by_name.try_emplace(device->fault_domain(), domains.size());
    if (is_new) domains.emplace_back();
    domains[place->second].push_back(slot);
  }
  return domains;
}

}  // namespace tensord::server
