// The classes behind cuda_device.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/call_gate.h"
#include "tensord/server/device/cuda/blas.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/cuda/fence_thread.h"
#include "tensord/server/device/cuda/fused_kernels.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/cuda/staging.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/device_memory_limit.h"

// If the device has been abandoned, returns its loss. Otherwise Abandon() waits until the enclosing
// block ends.
#define TENSORD_ENTER_OR_RETURN_LOSS(gate)    \
  const CallGate::Entry tensord_entry(&gate); \
  if (!tensord_entry.entered()) return *loss()

namespace tensord::server::cuda {

class CudaDevice;

// A copy by which a device reads another one's buffer, until it is over. Thread-safe.
class PeerRead {
 public:
  explicit PeerRead(Event event) : event_(std::move(event)) {}

  bool over();
  // Work given to `stream` from now on waits for it.
  absl::Status Order(cudaStream_t stream);
  // Waits for it.
  void Await();
  // The reading device is lost: nothing of it runs any more, and its events go.
  void Forget();

 private:
  Mutex mu_;
  Event event_ ABSL_GUARDED_BY(mu_);  // null: it is over
};

using PeerReadRef = std::shared_ptr<PeerRead>;

// Keeps those that aren't over.
void DropOver(std::vector<PeerReadRef>* reads);

// The stream on which memory was allocated. Work on this stream may use it without another wait.
enum class MemoryOrder { kCompute, kUpload };

// Memory of a CudaDevice. The destructor frees it in stream order: after all work with it that was
// enqueued before on the device's streams, and after copies from it by other devices.
class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(CudaDevice* device, MemoryOrder order, void* data, int64_t size_bytes);
  ~CudaBuffer() override;

  // Another device's stream reads the buffer. Thread-safe.
  void AddReader(PeerReadRef read) const;
  std::vector<PeerReadRef> TakeReaders();

  MemoryOrder order() const { return order_; }
  // Makes transfers into the buffer wait for its allocation: calls `order`, unless a call has
  // already succeeded. All transfers into the buffer must be on one stream. Thread-safe.
  absl::Status OrderTransfersOnce(absl::FunctionRef<absl::Status()> order);
  // Returns `status`, that of a transfer after OrderTransfersOnce(). If it is an error, the next
  // transfer, or the free, is ordered after the allocation anew: there may have been no transfer.
  absl::Status TransferEnded(absl::Status status);
  // Returns true if OrderTransfersOnce() has succeeded, and no transfer has failed since.
  // Thread-safe.
  bool has_transfers() const;

 private:
  const MemoryOrder order_;
  mutable Mutex mu_;
  mutable std::vector<PeerReadRef> readers_ ABSL_GUARDED_BY(mu_);
  bool transfers_ordered_ ABSL_GUARDED_BY(mu_) = false;
};

// Streams, and how they are ordered:
//   compute   Allocate(), kernels, copies from other devices, frees. What Fence() waits for.
//   upload    AllocateForTransfer(), Write(). Uploads into memory of AllocateForTransfer() run
//             concurrently with kernels: the driver prefers memory whose last use has ended, and
//             makes the upload stream wait for an earlier use only if the GPU has no other memory.
//             The first write to memory of Allocate() waits for the compute stream as it is at that
//             time. A later use of a buffer (a kernel, a copy, a read, the free) waits only for
//             uploads into this buffer that haven't ended (UploadRing::OrderAfterUploads). If these
//             uploads have ended, the allocation has taken effect, too.
//   download  Read(). Of complete buffers, so it waits for uploads alone.
//   capture   nothing ever runs on it: Capture() has kernels go there to be recorded. The compute
//             stream can't be the one, because other threads give it allocations, frees and events,
//             which would be recorded too, and query it, which would break off the recording.
//   retire    frees of buffers that another device has copied from: it waits for that device, which
//             the compute stream must not.
// Streams that don't belong to the device, such as a group's, are ordered by OrderAfterAllocation()
// and OrderAfterUploads().
class CudaDevice final : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Create(DeviceName name, int physical_index,
                                                        int64_t limit_bytes);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override { return memory_limit_.Snapshot(); }
  bool host_accessible() const override { return false; }
  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;
  bool has_graphs() const override { return true; }
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
  void Abandon() override;

  // Executor thread. Enqueues a kernel of fused_kernels_ behind the uploads into its inputs.
  absl::Status LaunchCompiled(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                              absl::Span<const Buffer* const> inputs);

  // As OrderAfterCudaUploads and OrderAfterCudaAllocation.
  absl::Status OrderAfterUploads(const Buffer& buffer, cudaStream_t stream);
  absl::Status OrderAfterAllocation(Buffer& buffer, cudaStream_t stream);
  // As CallOnCudaDevice.
  absl::Status Call(absl::FunctionRef<absl::Status()> call);

  // Executor thread. Enqueues a graph behind the uploads into `inputs`.
  absl::Status LaunchGraph(cudaGraphExec_t graph, absl::Span<const Buffer* const> inputs);
  // Thread-safe. What is still running goes on to its end.
  void DestroyGraph(cudaGraphExec_t graph);

  // Takes back what `buffer` holds. From its destructor.
  void Release(CudaBuffer& buffer);

  // For tests.
  cudaStream_t compute_stream() const { return compute_.get(); }

 private:
  CudaDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes);

  absl::Status Start(int64_t limit_bytes, int multiprocessors);
  absl::StatusOr<BufferRef> AllocateIn(MemoryOrder order, int64_t size_bytes);
  absl::StatusOr<void*> AllocateMemory(int64_t size_bytes, MemoryOrder order);
  // Makes kernels that are launched later wait for uploads into an input. A graph waits for uploads
  // into its inputs when it is launched.
  absl::Status OrderInput(const void* data, int64_t bytes);
  absl::StatusOr<Graph> Record(absl::FunctionRef<absl::Status()> launch, GraphScratch* scratch);
  // Makes transfers into `buffer` wait for its allocation. They must all be on `stream`.
  absl::Status OrderTransfers(CudaBuffer& buffer, cudaStream_t stream);
  absl::Status CopyFromCuda(Buffer& dst, const CudaBuffer& src, int64_t bytes);
  // Frees a buffer's memory in stream order, after all enqueued work that uses it.
  void FreeMemory(CudaBuffer& buffer);
  // Makes work that is enqueued on retire_ later wait for the compute stream and for `readers`.
  absl::Status OrderRetireAfter(const std::vector<PeerReadRef>& readers);
  void AddPeerRead(PeerReadRef read);
  absl::StatusOr<Event> RecordOnCompute();

  const DeviceInfo info_;
  CallGate gate_;  // of every call that uses what Abandon() gives up
  DeviceMemoryLimit memory_limit_;
  Mutex mu_;
  // Memory that buffers hold: resetting the GPU doesn't free it.
  absl::flat_hash_set<void*> live_ ABSL_GUARDED_BY(mu_);
  std::vector<PeerReadRef> peer_reads_ ABSL_GUARDED_BY(mu_);  // of this device, or by it
  EventPool events_;
  std::unique_ptr<MemoryPool> pool_;
  Stream compute_, capture_, retire_;
  std::unique_ptr<UploadRing> uploads_;
  std::unique_ptr<DownloadRing> downloads_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<FusedKernels> fused_kernels_;
  KernelContext context_;  // executor thread
  std::unique_ptr<FenceThread>
      fences_;  // last: it calls back into what is above until it is joined
};

}  // namespace tensord::server::cuda
