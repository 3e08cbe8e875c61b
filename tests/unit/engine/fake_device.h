// A device on the host. A test can block each step of it, or make it fail.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/device_memory_limit.h"

namespace tensord::server {

// Computes full, ones, add, neg, cast and one-dimensional index of int32 and int64. Other ops leave
// their output zero. A graph of its kernels takes kGraphBytes. launched() lists its capture as
// "capture" and its launches as "graph". Thread-safe.
class FakeDevice : public Device {
 public:
  static constexpr int64_t kGraphBytes = 64;

  struct Options {
    int64_t limit_bytes = 1 << 20;
    bool host_accessible = true;
    bool graphs = false;
    // If true, index reports an index out of range, as a GPU does. Otherwise its launch fails.
    bool defers_checks = false;
  };
  FakeDevice(int index, Options options);
  ~FakeDevice() override;

  // Makes Launch() and CopyFrom() block until Release().
  void Hold();
  void Release();
  // Blocks until a launch is held. Returns false after 30 seconds.
  bool WaitUntilHeld();

  // Delays the callbacks of fences until ReleaseFences().
  void HoldFences();
  void ReleaseFences();
  // Blocks until a fence is held. Returns false after 30 seconds.
  bool WaitUntilFenceHeld();

  // Makes the next launch of `op` fail with `error`. `op` may also be "copy" for CopyFrom(),
  // "capture" for Capture(), or "graph" for the launch of a graph.
  void FailNext(std::string op, absl::Status error);

  // Returns the ops launched so far, in order.
  std::vector<std::string> launched() const;

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override { return memory_limit_->Snapshot(); }
  bool host_accessible() const override { return options_.host_accessible; }
  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  bool has_graphs() const override { return options_.graphs; }
  absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) override;
  bool defers_checks() const override { return options_.defers_checks; }
  absl::StatusOr<std::unique_ptr<CheckMemory>> MakeCheckMemory() override;
  absl::Status CollectChecks(Buffer& cells, int count, const CheckCell& to) override;
  // Returns how many CheckMemory objects exist.
  int num_check_cells() const { return *check_cells_; }
  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override;
  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override;
  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override;
  void Fence(std::function<void(absl::Status)> done) override;

 private:
  class Graph;
  struct Recorded;

  absl::Status Begin(const std::string& op);
  // Waits for a signal. Returns false if `deadline` passed before it.
  bool AwaitChange(std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  DeviceInfo info_;
  std::shared_ptr<DeviceMemoryLimit> memory_limit_;

  mutable Mutex mu_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool fences_held_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::function<void(absl::Status)>> fences_ ABSL_GUARDED_BY(mu_);
  std::string failing_op_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> launched_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<std::atomic<int>> check_cells_ = std::make_shared<std::atomic<int>>(0);
  std::vector<Recorded>* recording_ = nullptr;  // executor thread; null outside of Capture()
};

// An event that happens once. Copies share the event. Thread-safe.
class Event {
 public:
  Event() : state_(std::make_shared<State>()) {}
  void Set() const;
  bool happened() const;
  // Blocks until the event has happened. Returns false after 30 seconds.
  bool Wait() const;

 private:
  struct State {
    Mutex mu;
    CondVar changed;
    bool happened ABSL_GUARDED_BY(mu) = false;
  };
  std::shared_ptr<State> state_;
};

// Polls `condition` until it is true. Returns false after 30 seconds.
bool Eventually(const std::function<bool()>& condition);

}  // namespace tensord::server
