// The proxy's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/proxy/connection.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::proxy {

class DelayProxy::Loop {
 public:
  static absl::StatusOr<std::unique_ptr<Loop>> Start(const DelayProxyOptions& options);
  ~Loop();

  const std::string& address() const { return address_; }

  // Runs the task on the loop's thread, and blocks until it has run. Thread-safe; must not be
  // called on the loop's thread.
  void Run(std::function<void(Loop&)> task);
  ProxyStats stats() const;
  bool Await(const std::function<bool(const ProxyStats&)>& condition,
             std::chrono::milliseconds timeout) const;

  // Call these on the loop's thread only.
  DirectionSettings& settings(Direction direction) {
    return settings_[direction == Direction::kToServer ? 0 : 1];
  }
  void SetAccepting(bool accepting);
  void SetResets(int connections) { resets_ = connections; }
  void SetCallFault(const std::optional<CallFault>& call_fault);
  void CutAll();

 private:
  Loop() = default;
  absl::Status Open(const DelayProxyOptions& options);
  void Main();
  // Runs the queued tasks. Returns their number.
  size_t RunTasks();
  void Accept();
  void Watch(int fd, uint32_t events);
  void PumpAll();
  // A connection calls this when the fault has acted on it. Removes the fault and, with
  // CallFault::all, does the same to the other connections.
  void FinishCallFault();
  void SetTimer();
  // Publishes the statistics, and the number of tasks that have run.
  void Publish(size_t tasks_done);

  std::string address_;
  std::string target_;
  int64_t max_buffered_bytes_ = 0;
  int epoll_ = -1;
  int listener_ = -1;
  int wake_ = -1;
  int timer_ = -1;

  // Once the loop's thread runs, only this thread uses these.
  DirectionSettings settings_[2];
  TrafficCounter counter_;
  int64_t accepted_ = 0;
  int resets_ = 0;  // the number of new connections to reset
  std::optional<CallFault> call_fault_;
  int64_t faults_injected_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<int, Connection*> by_fd_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<std::function<void(Loop&)>> tasks_ ABSL_GUARDED_BY(mu_);
  uint64_t tasks_given_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t tasks_done_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  ProxyStats stats_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace tensord::proxy
