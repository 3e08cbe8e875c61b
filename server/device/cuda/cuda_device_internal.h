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
#include "tensord/server/device/call_tracker.h"
#include "tensord/server/device/cuda/blas.h"
#include "tensord/server/device/cuda/check_pool.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/cuda/dnn.h"
#include "tensord/server/device/cuda/fence_thread.h"
#include "tensord/server/device/cuda/fused_kernels.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/cuda/staging.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/device_memory_limit.h"

// If the device has been abandoned, returns its loss from the enclosing function. Otherwise
// Abandon() waits until the enclosing block ends.
#define TENSORD_BEGIN_CALL_OR_RETURN_LOSS(tracker) \
  const CallTracker::Call tensord_call(&tracker);  \
  if (!tensord_call.admitted()) return *loss()

namespace tensord::server::cuda {

class CudaDevice;

// A copy from a buffer of one device to another device, the reader. Thread-safe.
class PeerRead {
 public:
  explicit PeerRead(Event event) : event_(std::move(event)) {}

  // Returns true if the copy has ended.
  bool over();
  // Makes work that is enqueued on `stream` later wait for the copy.
  absl::Status Order(cudaStream_t stream);
  // Blocks until the copy has ended.
  void Await();
  // Destroys the event. Call it when the copy has ended or the reader is lost. The functions above
  // then treat the copy as ended.
  void DestroyEvent();

 private:
  Mutex mu_;
  // Recorded after the copy, on the reader's stream. Null after DestroyEvent().
  Event event_ ABSL_GUARDED_BY(mu_);
};

using PeerReadRef = std::shared_ptr<PeerRead>;

// Removes the copies that have ended.
void RemoveEnded(std::vector<PeerReadRef>* reads);

// The stream on which memory was allocated. Work on this stream may use it without another wait.
enum class MemoryOrder { kCompute, kUpload };

// Memory of a CudaDevice. The destructor frees the memory in stream order: after all work with it
// on the device's streams, and after copies from it to other devices.
class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(CudaDevice* device, MemoryOrder order, void* data, int64_t size_bytes);
  ~CudaBuffer() override;

  // Records a copy from the buffer to another device. Thread-safe.
  void AddReader(PeerReadRef read) const;
  // Returns the recorded copies, except some that have ended, and removes them. Thread-safe.
  std::vector<PeerReadRef> TakeReaders();

  MemoryOrder order() const { return order_; }
  // Calls `order`, which makes transfers into the buffer wait for its allocation, unless an earlier
  // call has succeeded. All transfers into the buffer must be on one stream. Thread-safe.
  absl::Status OrderTransfersOnce(absl::FunctionRef<absl::Status()> order);
  // Takes and returns the status of a transfer after OrderTransfersOnce(). If the transfer failed,
  // it may not have been enqueued. The next transfer, or the free, is then ordered after the
  // allocation again. Thread-safe.
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
//   compute   Allocate(), kernels, copies from other devices, and frees. Fence() waits for this
//             stream.
//   upload    AllocateForTransfer() and Write(). Uploads into memory of AllocateForTransfer() run
//             concurrently with kernels: the driver prefers memory whose last use has ended, and
//             makes the upload stream wait for an earlier use only if the GPU has no other memory.
//             The first write to memory of Allocate() waits for all work that is on the compute
//             stream at that time. A later use of a buffer (a kernel, a copy, a read, the free)
//             waits only for uploads into this buffer that haven't ended
//             (UploadRing::OrderAfterUploads). If these uploads have ended, the allocation has
//             taken effect, too.
//   download  Read(). The buffers are complete, so this stream waits only for uploads.
//   capture   Capture() enqueues kernels on this stream to record them. Nothing ever runs on it.
//             The compute stream can't be used for this. Other threads enqueue allocations, frees
//             and events there, which would be recorded, too. They also query that stream, which
//             would abort the recording.
//   retire    frees of buffers that another device has copied from. This stream waits for that
//             device. The compute stream must not wait for it.
// OrderAfterAllocation() and OrderAfterUploads() order streams that don't belong to the device,
// such as the stream of a group.
class CudaDevice final : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Create(DeviceName name, int physical_index,
                                                        int64_t limit_bytes,
                                                        SmallBlocks small_blocks);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  MemoryStats memory() const override { return memory_limit_.Snapshot(); }
  HardwareUse QueryHardwareUse() const override;
  bool host_accessible() const override { return false; }
  absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) override;
  absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) override;
  absl::Status Launch(const KernelCall& call) override;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec) override;
  bool has_graphs() const override { return true; }
  absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) override;
  bool defers_checks() const override { return true; }
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
  void Abandon() override;

  // Executor thread. Enqueues a kernel of fused_kernels_ after the uploads into its inputs.
  absl::Status LaunchCompiled(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                              absl::Span<const Buffer* const> inputs);

  // Do the same as OrderAfterCudaUploads() and OrderAfterCudaAllocation().
  absl::Status OrderAfterUploads(const Buffer& buffer, cudaStream_t stream);
  absl::Status OrderAfterAllocation(Buffer& buffer, cudaStream_t stream);
  // Does the same as CallOnCudaDevice().
  absl::Status Call(absl::FunctionRef<absl::Status()> call);

  // Executor thread. Enqueues a graph after the uploads into `inputs`.
  absl::Status LaunchGraph(cudaGraphExec_t graph, absl::Span<const Buffer* const> inputs);
  // Thread-safe. Launches of the graph that haven't ended still run to their end.
  void DestroyGraph(cudaGraphExec_t graph);

  // Frees the memory of `buffer`, whose destructor calls this function.
  void Release(CudaBuffer& buffer);

  // The stream that kernels run on. Kernels that are launched later wait for the caller's work on
  // it. The stream exists until the device is abandoned.
  cudaStream_t compute_stream() const { return compute_.get(); }

 private:
  CudaDevice(DeviceInfo info, int64_t total_bytes, int64_t limit_bytes);

  absl::Status Start(int64_t limit_bytes, SmallBlocks small_blocks, int multiprocessors);
  absl::StatusOr<BufferRef> AllocateIn(MemoryOrder order, int64_t size_bytes);
  absl::StatusOr<void*> AllocateMemory(int64_t size_bytes, MemoryOrder order);
  // Makes kernels that are launched later wait for uploads into an input. While kernels are
  // captured, does nothing: LaunchGraph() waits for the uploads.
  absl::Status OrderInput(const void* data, int64_t bytes);
  // Captures the kernels that `launch` launches. They take their scratch memory from `scratch`.
  absl::StatusOr<Graph> Record(absl::FunctionRef<absl::Status()> launch, GraphScratch* scratch);
  // Makes transfers into `buffer` wait for its allocation. They must all be on `stream`.
  absl::Status OrderTransfers(CudaBuffer& buffer, cudaStream_t stream);
  absl::Status CopyFromCuda(Buffer& dst, const Buffer& src, int64_t bytes);
  // Frees a buffer's memory in stream order, after all enqueued work that uses it.
  void FreeMemory(CudaBuffer& buffer);
  // Makes work that is enqueued on retire_ later wait for the compute stream and for `readers`.
  absl::Status OrderRetireAfter(const std::vector<PeerReadRef>& readers);
  void AddPeerRead(PeerReadRef read);
  absl::StatusOr<Event> RecordOnCompute();

  const DeviceInfo info_;
  CallTracker calls_;  // counts each call before it uses objects that Abandon() destroys
  DeviceMemoryLimit memory_limit_;
  Mutex mu_;
  // The memory of all buffers. A reset of the GPU doesn't free it.
  absl::flat_hash_set<void*> live_ ABSL_GUARDED_BY(mu_);
  std::vector<PeerReadRef> peer_reads_ ABSL_GUARDED_BY(mu_);  // copies from or to this device
  EventPool events_;
  std::unique_ptr<MemoryPool> pool_;
  Stream compute_, capture_, retire_;
  std::unique_ptr<UploadRing> uploads_;
  std::unique_ptr<DownloadRing> downloads_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Dnn> dnn_;
  std::unique_ptr<FusedKernels> fused_kernels_;
  const std::shared_ptr<CheckPool> checks_ = std::make_shared<CheckPool>();
  KernelContext context_;  // executor thread
  // The last member: until its thread is joined, callbacks use the members above.
  std::unique_ptr<FenceThread> fences_;
};

}  // namespace tensord::server::cuda
