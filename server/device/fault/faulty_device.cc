#include "tensord/server/device/fault/faulty_device.h"

#include <utility>

#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

using Step = FaultPlan::Step;

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> device, FaultPlan* plan)
      : device_(std::move(device)), plan_(plan) {}

  const DeviceInfo& info() const override { return device_->info(); }
  MemoryStats memory() const override { return device_->memory(); }
  HardwareUse QueryHardwareUse() const override { return device_->QueryHardwareUse(); }
  bool host_accessible() const override { return device_->host_accessible(); }

  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kAllocation));
    return device_->Allocate(size_bytes);
  }
  absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kAllocation));
    return device_->AllocateForTransfer(size_bytes);
  }
  absl::Status Launch(const KernelCall& call) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kKernel));
    return device_->Launch(call);
  }
  absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;
  bool defers_checks() const override { return device_->defers_checks(); }
  absl::StatusOr<std::unique_ptr<CheckMemory>> MakeCheckMemory() override {
    return device_->MakeCheckMemory();
  }
  absl::Status CollectChecks(Buffer& cells, int count, const CheckCell& to) override {
    return device_->CollectChecks(cells, count, to);
  }
  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->CopyFrom(dst, src, bytes);
  }
  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->Write(dst, offset, src, bytes);
  }
  absl::Status WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                         int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->WriteFrom(dst, offset, src, src_offset, bytes);
  }
  absl::Status WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->WriteBy(dst, offset, bytes, fill);
  }
  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->Read(src, offset, dst, bytes);
  }
  absl::Status ReadInto(const Buffer& src, int64_t offset, HostMemory& dst, int64_t dst_offset,
                        int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(Begin(Step::kCopy));
    return device_->ReadInto(src, offset, dst, dst_offset, bytes);
  }
  void Fence(std::function<void(absl::Status)> done) override {
    const absl::Status fault = Begin(Step::kFence);
    if (fault.ok()) {
      device_->Fence(std::move(done));
    } else {
      done(fault);
    }
  }
  void BindThread() override { device_->BindThread(); }

  absl::Status Check() override {
    const absl::Status death = plan_->ConsumeLoss();
    MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = death;
    return broken_;
  }
  // Buffers belong to the wrapped device, so marks that as lost, too.
  void MarkLost(const absl::Status& loss) override {
    Device::MarkLost(loss);
    device_->MarkLost(loss);
  }
  void Abandon() override { device_->Abandon(); }
  void ReleaseUnusedMemory() override { device_->ReleaseUnusedMemory(); }

  // Begins a step. If the device is broken, returns the fault that broke it. Otherwise returns OK,
  // or the fault that is due at this step.
  absl::Status Begin(Step step, bool may_be_late = true) {
    {
      MutexLock lock(&mu_);
      if (!broken_.ok()) return broken_;
    }
    absl::Status fault = plan_->At(step, may_be_late);
    if (!absl::IsDataLoss(fault)) return fault;
    MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = fault;
    return fault;
  }

 private:
  class Kernel;

  const std::unique_ptr<Device> device_;
  FaultPlan* const plan_;
  Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

class FaultyDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(FaultyDevice* device, std::unique_ptr<PreparedKernel> kernel)
      : PreparedKernel(kernel.get()), device_(device), kernel_(std::move(kernel)) {}

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    // A kernel that runs inline isn't delayed: its thread holds locks that other threads wait for.
    TENSORD_RETURN_IF_ERROR(device_->Begin(Step::kKernel, /*may_be_late=*/!runs_inline()));
    return kernel_->Launch(context, inputs, outputs);
  }

 private:
  FaultyDevice* const device_;
  const std::unique_ptr<PreparedKernel> kernel_;
};

absl::StatusOr<std::unique_ptr<PreparedKernel>> FaultyDevice::Prepare(const KernelSpec& spec) {
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<PreparedKernel> kernel, device_->Prepare(spec));
  return std::make_unique<Kernel>(this, std::move(kernel));
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> FaultyDevice::PrepareFused(const FusedSpec& spec) {
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<PreparedKernel> kernel, device_->PrepareFused(spec));
  return std::make_unique<Kernel>(this, std::move(kernel));
}

}  // namespace

std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, FaultPlan* plan) {
  return std::make_unique<FaultyDevice>(std::move(device), plan);
}

}  // namespace tensord::server
