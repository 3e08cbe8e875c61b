#include "tensord/server/device/cpu/cpu_device.h"

#include <string.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/buffer_pages.h"
#include "tensord/server/device/cpu/blas.h"
#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/host_info.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/cpu/packed_weights.h"
#include "tensord/server/device/cpu/prepare.h"
#include "tensord/server/device/device_memory_limit.h"

namespace tensord::server {
namespace {

constexpr int64_t kMaxIdleBytes = int64_t{1} << 30;

// The size of the first part of a small buffer's block, which contains the CpuBuffer. The elements
// follow.
constexpr int64_t kHeaderBytes = 64;
static_assert(sizeof(CpuBuffer) <= kHeaderBytes);
constexpr int64_t kMaxSmallBytes = Slabs::kMaxBlockBytes - kHeaderBytes;

}  // namespace

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes)
      : info_(std::move(info)),
        memory_limit_(info_.name, total_bytes, limit_bytes),
        pool_(std::min(kMaxIdleBytes, limit_bytes / 4)),
        packed_weights_(&memory_limit_, &pool_),
        context_{cpu::Team(info_.threads), cpu::BestLoops(), onednn_},
        alone_{cpu::Team(1), cpu::BestLoops(), onednn_} {}

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override { return memory_limit_.Snapshot(); }
  bool host_accessible() const override { return true; }

  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;

  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override {
    BeforeOverwrite(dst);
    if (bytes == 0) return absl::OkStatus();
    if (!src.device().host_accessible()) return CopyFromOther(dst, src, bytes);
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
    BeforeOverwrite(dst);
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
  void ReleaseUnusedMemory() override { pool_.ReleaseUnused(); }
  void Abandon() override {
    packed_weights_.Release(memory_limit_.Snapshot().limit_bytes);
    pool_.ReleaseIdle();
  }

 private:
  friend class CpuBuffer;
  static constexpr double kCopyGrainBytes = 256 << 10;
  static constexpr double kReadGrainBytes = 1 << 20;
  static constexpr int64_t kPageBytes = 4096;

  // Copies from a device that the host can't access.
  static absl::Status CopyFromOther(Buffer& dst, const Buffer& src, int64_t bytes) {
    absl::Status status;
    const auto read = [&](int64_t begin, int64_t end) {
      status.Update(const_cast<Device&>(src.device())
                        .Read(src, begin, static_cast<char*>(dst.data()) + begin, end - begin));
    };
    cpu::Team::InPieces(0, bytes, kReadGrainBytes, read, kPageBytes);
    return status;
  }

  absl::Status Reserve(int64_t size_bytes);
  BufferRef AllocateSmall(int64_t size_bytes);
  BufferRef AllocateLarge(int64_t size_bytes);

  static absl::Status CheckRange(const char* what, const Buffer& buffer, int64_t offset,
                                 int64_t bytes) {
    if (offset >= 0 && bytes >= 0 && bytes <= buffer.size_bytes() - offset) {
      return absl::OkStatus();
    }
    return absl::OutOfRangeError(absl::StrCat(what, " of ", bytes, " bytes at ", offset,
                                              " of a buffer of ", buffer.size_bytes(), " bytes"));
  }

  const DeviceInfo info_;
  DeviceMemoryLimit memory_limit_;
  cpu::MemoryPool pool_;
  cpu::OneDnn onednn_;
  cpu::PackedWeights packed_weights_;
  const cpu::Context context_;
  const cpu::Context alone_;
};

CpuBuffer::CpuBuffer(CpuDevice* device, void* data, int64_t size_bytes)
    : Buffer(device, data, size_bytes) {}

CpuBuffer::~CpuBuffer() {
  CpuDevice& owner = static_cast<CpuDevice&>(device());
  if (packed_.load(std::memory_order_relaxed)) InvalidatePacked();
  if (size_bytes() > kMaxSmallBytes) owner.pool_.Free(data(), size_bytes());
  owner.memory_limit_.Release(size_bytes());
}

void CpuBuffer::InvalidatePacked() {
  static_cast<CpuDevice&>(device()).packed_weights_.Erase(this);
  packed_.store(false, std::memory_order_relaxed);
}

absl::Status CpuDevice::Reserve(int64_t size_bytes) {
  absl::Status status = memory_limit_.Reserve(size_bytes);
  while (!status.ok() && packed_weights_.Release(size_bytes)) {
    status = memory_limit_.Reserve(size_bytes);
  }
  return status;
}

BufferRef CpuDevice::AllocateSmall(int64_t size_bytes) {
  void* const block = pool_.Allocate(kHeaderBytes + size_bytes);
  if (block == nullptr) return nullptr;
  void* const data = size_bytes > 0 ? static_cast<char*>(block) + kHeaderBytes : nullptr;
  return BufferRef(new (block) CpuBuffer(this, data, size_bytes));
}

BufferRef CpuDevice::AllocateLarge(int64_t size_bytes) {
  // Idle memory and used memory together stay within the limit.
  if (pool_.idle_bytes() > memory_limit_.free_bytes()) pool_.ReleaseIdle();
  void* const block = Slabs::Allocate(sizeof(CpuBuffer));
  if (block == nullptr) return nullptr;
  void* data = pool_.Allocate(size_bytes);
  if (data == nullptr && packed_weights_.Release(size_bytes)) data = pool_.Allocate(size_bytes);
  if (data != nullptr) return BufferRef(new (block) CpuBuffer(this, data, size_bytes));
  Slabs::Free(block);
  return nullptr;
}

absl::StatusOr<BufferRef> CpuDevice::Allocate(int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(Reserve(size_bytes));
  BufferRef buffer =
      size_bytes <= kMaxSmallBytes ? AllocateSmall(size_bytes) : AllocateLarge(size_bytes);
  if (buffer == nullptr) {
    memory_limit_.Release(size_bytes);
    const int64_t pages = std::max<int64_t>(0, BufferPages().room());
    if (pages < cpu::MemoryPool::PageBytes(kHeaderBytes + size_bytes)) {
      return memory_limit_.PagesExhausted(size_bytes, pages);
    }
    return memory_limit_.PhysicallyExhausted(size_bytes, cpu::HostAvailableMemory());
  }
  return buffer;
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> CpuDevice::Prepare(const KernelSpec& spec) {
  const cpu::PrepareContext ctx = {context_, alone_, packed_weights_};
  if (auto kernel = cpu::PrepareElementwise(ctx, spec)) return kernel;
  if (auto kernel = cpu::PrepareProduct(ctx, spec)) return kernel;
  if (auto kernel = cpu::PrepareConv(ctx, spec)) return kernel;
  if (auto kernel = cpu::PrepareAny(ctx, spec)) return kernel;
  return Device::Prepare(spec);  // its kernel's Launch() returns the error of Device::Launch()
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> CpuDevice::PrepareFused(const FusedSpec& spec) {
  return cpu::PrepareFusedElementwise({context_, alone_, packed_weights_}, spec);
}

absl::Status CpuDevice::Launch(const KernelCall& call) {
  const cpu::Kernel kernel = cpu::FindKernel(call.schema->name);
  if (kernel == nullptr) return cpu::NoKernel(call);
  return kernel(context_, call);
}

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

Backend CpuBackend() {
  Backend backend;
  backend.kind = DeviceKind::kCpu;
  backend.count = [](std::string*) { return 1; };
  backend.physical_name = [](int) {
    std::string name;
    cpu::HostTotalMemory(&name);
    return name;
  };
  backend.total_memory = [](int) { return CpuTotalMemory(); };
  backend.make = [](const DeviceOptions& options) {
    return MakeCpuDevice(options.name, options.limit_bytes, options.threads);
  };
  backend.host_threads = CpuThreads;
  return backend;
}

int64_t CpuTotalMemory() { return cpu::HostTotalMemory(); }
int CpuThreads() { return cpu::HostThreads(); }
int64_t CpuMaxThreads() { return cpu::HostMaxThreads(); }

}  // namespace tensord::server
