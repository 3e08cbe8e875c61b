// A device that can be restarted after a fault. It uses one backend device after another, under one
// name.
//
// Buffers and graphs belong to the backend device that made them, and keep it alive. They are never
// used with a later backend device. Prepared kernels stay valid after a restart: their next launch
// prepares them again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Thread-safe as Device is. Its states:
//
//               a call or Poll() finds DATA_LOSS,
//               or MarkLostByDomain()                                Abandon()
//   +---------+ -------------------------------------------> +------+ --------> +-----------+
//   | SERVING |                                              | LOST |           | RESETTING |
//   +---------+ <------------------------------------+       +------+ <-------- +-----------+
//                                                    |          Restart() fails,     |
//                                                    |          or Fail()            |
//                                                    +-------------------------------+
//                                                                Restart()
//
// While the device is not SERVING, calls return the loss. Operations on its old buffers return the
// loss, too. While the device is RESETTING, there is no backend device.
class RestartableDevice final : public Device {
 public:
  // The functions that make and reset a backend device.
  struct Maker {
    std::function<absl::StatusOr<std::unique_ptr<Device>>()> make;
    // Devices of one domain are lost and restarted together. If it is empty, the domain is this
    // device alone.
    std::string fault_domain = {};
    // Resets the hardware that the devices of the domain share. It is called while none of them has
    // a backend device. May be empty.
    std::function<absl::Status()> reset = {};
  };

  // Makes the first backend device. Returns the errors of `make`.
  static absl::StatusOr<std::unique_ptr<Device>> Create(Maker maker);
  ~RestartableDevice() override;

  const std::string& fault_domain() const { return maker_.fault_domain; }

  // Sets the function that is called when the device is lost. It is called from any thread, with
  // locks held. It must return within microseconds and must not call this object. After this
  // function has returned, the previous listener is not called.
  void SetLossListener(std::function<void()> listener);

  // Checks whether the backend device is lost. If so, marks this device as lost.
  void Poll();
  // Marks the device as lost because another device of its domain is lost.
  void MarkLostByDomain(const absl::Status& reason);

  // Executor thread. Abandons the lost backend device and drops the reference to it.
  void Abandon() override;
  // Calls Maker::reset. Call it once for all devices of a domain, between Abandon() and Restart().
  absl::Status Reset() { return maker_.reset ? maker_.reset() : absl::OkStatus(); }
  // Executor thread, after Abandon(). Makes another backend device and tests it (self_test.h). If
  // that fails, calls Fail() and returns the error.
  absl::Status Restart();
  // Makes the state LOST and adds `reason` to the reason of health(). Call it only while the device
  // is RESETTING.
  void Fail(const absl::Status& reason);

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override;
  HardwareUse QueryHardwareUse() const override;
  bool host_accessible() const override { return host_accessible_; }
  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;
  bool has_graphs() const override { return has_graphs_; }
  absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) override;
  bool defers_checks() const override { return defers_checks_; }
  absl::StatusOr<std::unique_ptr<CheckMemory>> MakeCheckMemory() override;
  absl::Status CollectChecks(Buffer& cells, int count, const CheckCell& to) override;
  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override;
  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override;
  absl::Status WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                         int64_t bytes) override;
  absl::Status WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) override;
  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override;
  absl::Status ReadInto(const Buffer& src, int64_t offset, HostMemory& dst, int64_t dst_offset,
                        int64_t bytes) override;
  void Fence(std::function<void(absl::Status)> done) override;
  void BindThread() override;
  absl::Status Check() override;
  void ReleaseUnusedMemory() override;
  DeviceHealth health() const override;
  RestartableDevice* restartable() override { return this; }

 private:
  class Kernel;
  class Graph;
  using Inner = std::shared_ptr<Device>;
  using Prepares = std::function<absl::StatusOr<std::unique_ptr<PreparedKernel>>(Device&)>;

  RestartableDevice(Maker maker, Inner first);

  // Returns the backend device. If the device is not SERVING, returns the loss.
  absl::StatusOr<Inner> Current() const;
  // Makes a buffer that `inner` has allocated keep `inner` alive. If the allocation failed, returns
  // RecordLoss() of its error.
  absl::StatusOr<BufferRef> KeepInnerAlive(const Inner& inner, absl::StatusOr<BufferRef> buffer);
  // Takes the status of a call of `inner`. If the status shows that `inner` is lost, records and
  // returns the loss. Otherwise returns the status.
  absl::Status RecordLoss(const Inner& inner, absl::Status status);
  void SetLostLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareBy(Prepares prepare);
  // Makes `to` launch `kernel`, unless `inner` was dropped meanwhile.
  void Attach(Kernel* to, const Inner& inner, std::unique_ptr<PreparedKernel> kernel);

  const Maker maker_;
  const DeviceInfo info_;
  const bool host_accessible_;
  const bool has_graphs_;
  const bool defers_checks_;

  mutable Mutex mu_;
  std::function<void()> loss_listener_ ABSL_GUARDED_BY(mu_);
  Inner inner_ ABSL_GUARDED_BY(mu_);  // null while resetting
  DeviceState state_ ABSL_GUARDED_BY(mu_) = DeviceState::kServing;
  absl::Status loss_ ABSL_GUARDED_BY(mu_);  // the last loss
  std::string reason_ ABSL_GUARDED_BY(mu_);
  int64_t restarts_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t losses_ ABSL_GUARDED_BY(mu_) = 0;
  MemoryStats last_memory_ ABSL_GUARDED_BY(mu_);  // peak and limits of earlier backend devices
  absl::flat_hash_set<Kernel*> kernels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
