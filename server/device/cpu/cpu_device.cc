#include "tensord/server/device/cpu/cpu_device.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/cpu/blas.h"
#include "tensord/server/device/cpu/host_info.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/memory_accountant.h"

namespace tensord::server {
namespace {

constexpr int64_t kMaxIdleBytes = int64_t{1} << 30;

class CpuDevice : public Device {
 public:
  CpuDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes)
      : info_(std::move(info)),
        accountant_(info_.name, total_bytes, limit_bytes),
        pool_(std::min(kMaxIdleBytes, limit_bytes / 4)),
        context_{cpu::Team(info_.threads), cpu::BestLoops(), pool_, onednn_} {}

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override { return accountant_.Snapshot(); }
  bool host_accessible() const override { return true; }

  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;

  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    if (!src.device().host_accessible()) {
      return const_cast<Device&>(src.device()).Read(src, 0, dst.data(), bytes);
    }
    context_.team.For(
        bytes, kCopyGrainBytes,
        [&](int64_t begin, int64_t end) {
          memcpy(static_cast<char*>(dst.data()) + begin,
                 static_cast<const char*>(src.data()) + begin, end - begin);
        },
        kPageBytes);
    return absl::OkStatus();
  }

  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(CheckRange("write", dst, offset, bytes));
    if (bytes > 0) memcpy(static_cast<char*>(dst.data()) + offset, src, bytes);
    return absl::OkStatus();
  }

  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override {
    TENSORD_RETURN_IF_ERROR(CheckRange("read", src, offset, bytes));
    if (bytes > 0) memcpy(dst, static_cast<const char*>(src.data()) + offset, bytes);
    return absl::OkStatus();
  }

  void Fence(std::function<void(absl::Status)> done) override { done(absl::OkStatus()); }
  void BindThread() override { context_.team.Bind(); }

 private:
  friend class CpuBuffer;
  static constexpr int64_t kCopyGrainBytes = 256 << 10;
  static constexpr int64_t kPageBytes = 4096;

  static absl::Status CheckRange(const char* what, const Buffer& buffer, int64_t offset,
                                 int64_t bytes) {
    if (offset >= 0 && bytes >= 0 && bytes <= buffer.size_bytes() - offset) {
      return absl::OkStatus();
    }
    return absl::OutOfRangeError(absl::StrCat(what, " of ", bytes, " bytes at ", offset,
                                              " of a buffer of ", buffer.size_bytes(), " bytes"));
  }

  const DeviceInfo info_;
  MemoryAccountant accountant_;
  cpu::MemoryPool pool_;
  cpu::OneDnn onednn_;
  const cpu::Context context_;
};

class CpuBuffer : public Buffer {
 public:
  CpuBuffer(CpuDevice* device, void* data, int64_t size_bytes)
      : Buffer(device, data, size_bytes), owner_(device) {}
  ~CpuBuffer() override {
    if (data() != nullptr) owner_->pool_.Free(data(), size_bytes());
    owner_->accountant_.Release(size_bytes());
  }

 private:
  CpuDevice* const owner_;
};

absl::StatusOr<BufferRef> CpuDevice::Allocate(int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(accountant_.Reserve(size_bytes));
  void* data = nullptr;
  if (size_bytes > 0) {
    data = pool_.Allocate(size_bytes);
    if (data == nullptr) {
      accountant_.Release(size_bytes);
      return accountant_.PhysicallyExhausted(size_bytes, cpu::HostAvailableMemory());
    }
  }
  return std::make_shared<CpuBuffer>(this, data, size_bytes);
}

absl::Status CpuDevice::Launch(const KernelCall& call) {
  const cpu::Kernel kernel = cpu::FindKernel(call.schema->name);
  if (kernel == nullptr) return cpu::NoKernel(call);
  return kernel(context_, call);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(DeviceName name, int64_t limit_bytes,
                                                      int threads) {
  if (limit_bytes <= 0 || threads <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(name.ToString(),
                                                   ": the memory limit and the number of threads "
                                                   "must be positive, and are ",
                                                   limit_bytes, " and ", threads));
  }
  cpu::UseBlasOnCallersThread();
  DeviceInfo info;
  info.name = name;
  info.model = cpu::HostModel();
  info.uuid = cpu::HostUuid();
  info.threads = threads;
  return std::make_unique<CpuDevice>(std::move(info), cpu::HostTotalMemory(), limit_bytes);
}

int64_t CpuTotalMemory() { return cpu::HostTotalMemory(); }
int CpuThreads() { return cpu::HostThreads(); }

}  // namespace tensord::server
