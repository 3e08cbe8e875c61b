// A device that comes back from a fault: one backend device after another under the same name.
//
// What a backend device made stays with it: buffers keep it alive until the last of them has gone,
// and are never given to its successor, and so do graphs, which never run again; kernels are
// prepared anew when they are next launched.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Thread-safe where Device is. How it goes from one state to the next:
//   serving    a call gives DATA_LOSS, or Poll() finds out -> lost; from then on everything in its
//              memory fails, and calls give the loss
//   lost       Abandon() -> resetting: no backend device is left
//   resetting  Restart() -> serving, or lost again where that fails; then Abandon() may be called
//              once more
class RestartableDevice final : public Device {
 public:
  // How a backend device is made, each time.
  struct Maker {
    std::function<absl::StatusOr<std::unique_ptr<Device>>()> make;
    // Devices with the same one are lost together, and come back together; empty: this one alone.
    std::string fault_domain = {};
    // Brings back what they share, when none of them has a backend device; may be empty.
    std::function<absl::Status()> reset = {};
  };

  // Errors are those of `make`.
  static absl::StatusOr<std::unique_ptr<Device>> Create(Maker maker);
  ~RestartableDevice() override;

  const std::string& fault_domain() const { return maker_.fault_domain; }

  // Is called, from any thread and maybe with locks held, when the device is lost: brief, and calls
  // nothing here. Once this returns the one before isn't called any more.
  void SetLossListener(std::function<void()> listener);

  // Asks the backend device whether it is lost.
  void Poll();
  // It is lost, because another one of its domain is.
  void Lose(const absl::Status& reason);

  // Executor thread. Lets go of what is left of the lost backend device.
  void Abandon() override;
  // What `Maker::reset` does, once for all devices of a domain, between Abandon() and Restart().
  absl::Status Reset() { return maker_.reset ? maker_.reset() : absl::OkStatus(); }
  // Executor thread. Makes another backend device, and has it add two numbers. Where that fails the
  // device is lost, with the reason.
  absl::Status Restart();
  // It didn't come back, for that reason.
  void Fail(const absl::Status& reason);

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override;
  bool host_accessible() const override { return host_accessible_; }
  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;
  bool has_graphs() const override { return has_graphs_; }
  absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) override;
  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override;
  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override;
  absl::Status WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                         int64_t bytes) override;
  absl::Status WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) override;
  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override;
  void Fence(std::function<void(absl::Status)> done) override;
  void BindThread() override;
  absl::Status Check() override;
  DeviceHealth health() const override;

 private:
  class Kernel;
  class Graph;
  using Inner = std::shared_ptr<Device>;
  using Prepares = std::function<absl::StatusOr<std::unique_ptr<PreparedKernel>>(Device&)>;

  RestartableDevice(Maker maker, Inner first);

  // The backend device; the loss where there is none to be used.
  absl::StatusOr<Inner> Current() const;
  // Makes a buffer that `inner` has allocated keep `inner` alive. If the allocation failed, records
  // a loss and returns the error.
  absl::StatusOr<BufferRef> Keep(const Inner& inner, absl::StatusOr<BufferRef> buffer);
  // `status` as it came from `inner`, having taken note of a loss; the loss where it is lost.
  absl::Status Noted(const Inner& inner, absl::Status status);
  void LoseLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareBy(Prepares prepare);
  // Gives the kernel what it launches, unless `inner` has gone meanwhile.
  void Attach(Kernel* to, const Inner& inner, std::unique_ptr<PreparedKernel> kernel);

  const Maker maker_;
  const DeviceInfo info_;
  const bool host_accessible_;
  const bool has_graphs_;

  mutable Mutex mu_;
  std::function<void()> loss_listener_ ABSL_GUARDED_BY(mu_);
  Inner inner_ ABSL_GUARDED_BY(mu_);  // null while resetting
  DeviceState state_ ABSL_GUARDED_BY(mu_) = DeviceState::kServing;
  absl::Status loss_ ABSL_GUARDED_BY(mu_);  // the last one
  std::string reason_ ABSL_GUARDED_BY(mu_);
  int64_t restarts_ ABSL_GUARDED_BY(mu_) = 0;
  MemoryStats last_memory_ ABSL_GUARDED_BY(mu_);  // of backend devices before: peak and limits
  absl::flat_hash_set<Kernel*> kernels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
