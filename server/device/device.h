// The contract of a backend: one logical device, its memory, its kernels, its transfers.
//
// Threads. A device's kernels are launched from one thread at a time, its executor's (executor.h),
// in the order in which they are to take effect; a backend may run them later than Launch() returns
// (CUDA: on a stream), as long as everything launched so far is finished when Fence() calls back.
// Allocation and host transfers may be called from any thread at any time.
//
// Faults. A device is lost when something has happened to it after which nothing on it can be used
// any more (a CUDA context after an illegal address). A backend says so by DATA_LOSS from whatever
// call meets it first, and by Check() from then on. A lost device never comes back: another is made
// in its place (restartable_device.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/device_name.h"
#include "tensord/common/op_schema.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/host_memory.h"
#include "tensord/server/device/spare_memory.h"

namespace tensord::server {

enum class DeviceState { kServing = 1, kLost, kResetting };  // as v1::DeviceState

// Whether a device can be used.
struct DeviceHealth {
  DeviceState state = DeviceState::kServing;
  std::string reason;    // why not, where it can't
  int64_t restarts = 0;  // how often it has come back

  bool serving() const { return state == DeviceState::kServing; }
};

struct DeviceInfo {
  DeviceName name;                 // logical: "cuda:1"
  int physical_index = 0;          // which GPU (or 0 for the host) it stands on
  std::string model;               // "AMD EPYC 9654", "NVIDIA H100 80GB HBM3"
  std::string uuid;                // stable over restarts; logical devices of one GPU share it
  std::string compute_capability;  // "9.0"; empty for a CPU
  int threads = 0;                 // a CPU device's threads; 0 for a GPU
};

struct MemoryStats {
  int64_t total_bytes = 0;  // of the physical device
  int64_t limit_bytes = 0;  // what this logical device may hold at once
  // Held by buffers now: the sum of their size_bytes(), and of what a backend keeps beside them to
  // be faster and gives up when somebody needs the room.
  int64_t used_bytes = 0;
  int64_t peak_bytes = 0;  // the most that used_bytes has been
};

// A dense row-major operand of a kernel.
struct Operand {
  const TensorSpec* spec;
  void* data;  // an address of the device; null where the tensor is empty

  template <typename T>
  const T* As() const {
    return static_cast<const T*>(data);
  }
  template <typename T>
  T* AsMutable() const {
    return static_cast<T*>(data);
  }
};

// One op, ready to run: inputs have the dtypes of OpPlan::input_dtypes, `attrs` is in normal form
// (op_schema.h), and the output is allocated, overlapping no input.
struct KernelCall {
  const OpSchema* schema;
  const Attributes* attrs;
  absl::Span<const Operand> inputs;
  Operand output;
};

// A kernel made ready for given dtypes, shapes and attributes, to run any number of times: what can
// be found out beforehand has been. Used by one thread at a time; its device outlives it.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;

  // Executor thread. Runs or enqueues it as Device::Launch does. Inputs in the order in which they
  // were given to Prepare, with the sizes of the specs given there.
  virtual absl::Status Launch(absl::Span<const Buffer* const> inputs, Buffer* output) = 0;

  // Done within a few microseconds when Launch() returns, and bound to no thread: it may run on any
  // one thread at a time, where a hop to the executor's would take longer.
  bool runs_inline() const { return runs_inline_; }

  // Whether the output may be the very buffer of input `i`, where both have the same size.
  bool in_place(int i) const { return (in_place_inputs_ >> i & 1) != 0; }

 protected:
  PreparedKernel() = default;
  // Brief and in place as `like` is.
  explicit PreparedKernel(const PreparedKernel* like)
      : runs_inline_(like->runs_inline_), in_place_inputs_(like->in_place_inputs_) {}
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;

  bool runs_inline_ = false;
  uint32_t in_place_inputs_ = 0;  // bit i: input i
};

// What a kernel is prepared for. The views are used during the call only.
struct KernelSpec {
  const OpSchema* schema;
  const Attributes* attrs;  // in normal form
  absl::Span<const TensorSpec> inputs;
  const TensorSpec* output;
};

// Elementwise ops one after another, as one kernel. Each step computes elements of the output's
// shape; what it reads broadcasts to that shape.
struct FusedSpec {
  struct Step {
    const OpSchema* schema;
    const Attributes* attrs;
    absl::InlinedVector<int, 3> operands;  // i >= 0: input i; i < 0: the result of step -i - 1
    DType dtype;                           // of the result
  };
  absl::Span<const TensorSpec> inputs;
  absl::Span<const Step> steps;  // operands have the dtypes that the ops' plans ask for
  const TensorSpec* output;      // what the last step gives
};

// Kernels recorded together with the memory that they work on, to run any number of times as one.
// Its device outlives it; it may go while what it has enqueued is still under way.
class KernelGraph {
 public:
  virtual ~KernelGraph() = default;

  // Executor thread. Runs or enqueues all of it as Device::Launch does. `inputs` are those of the
  // buffers that it reads that somebody else may have written since it was last launched: as after
  // any launch, uploads into them are waited for.
  virtual absl::Status Launch(absl::Span<const Buffer* const> inputs) = 0;

  // Its device is lost, and with it the memory: it will never run again.
  virtual bool lost() const { return false; }

 protected:
  KernelGraph() = default;
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  const DeviceName& name() const { return info().name; }

  // Thread-safe. A snapshot.
  virtual MemoryStats memory() const = 0;

  // True where Buffer::data() may be dereferenced by the host.
  virtual bool host_accessible() const = 0;

  // Thread-safe. Memory of `size_bytes` >= 0, aligned to 64 bytes at least, content unspecified.
  // RESOURCE_EXHAUSTED naming the device and the bytes asked for, free and limit where it would go
  // past the limit or the physical device has no more; nothing changes then.
  virtual absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) = 0;

  // Thread-safe. As Allocate(), for a buffer that Write() or a collective operation fills, and not
  // a kernel. A backend may then start the transfer while earlier kernels are still running. The
  // default calls Allocate().
  virtual absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) {
    return Allocate(size_bytes);
  }

  // Executor thread. Runs or enqueues the kernel of `call.schema`. Operands must stay alive until
  // the kernel is done; for stream-ordered backends releasing them after Launch() returned is
  // enough, because their memory is reused in stream order.
  virtual absl::Status Launch(const KernelCall& call) = 0;

  // Thread-safe. A kernel for later use. The default launches by Launch().
  virtual absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec);

  // Thread-safe. One kernel for several elementwise ops, which gives the same elements as they do
  // one by one. UNIMPLEMENTED (the default) where the backend has none for these.
  virtual absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec);

  // Whether Capture() is there to be used, as it is where launching takes much longer than running.
  virtual bool has_graphs() const { return false; }

  // Executor thread. A graph of the kernels that `launch` launches on this device, by prepared
  // kernels alone; they are recorded, and don't run. They work on the very addresses given there,
  // each time: whoever has the graph keeps the memory, which must not have been allocated within
  // `launch` unless it is kept, too. What kernels need beside their operands is taken now, charged
  // to `account`, and goes with the graph.
  // Errors are those of `launch`; RESOURCE_EXHAUSTED where there is no memory now, DATA_LOSS where
  // the device is lost, and anything else where these kernels can't be captured, now or later.
  // UNIMPLEMENTED (the default) where the backend has no graphs.
  virtual absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch);

  // Executor thread. dst[0, bytes) = src[0, bytes), where `src` may be of any device and is
  // complete (its device's Fence has called back since it was launched); for this device's own it
  // is enough that it was launched. Ordered like a kernel.
  virtual absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) = 0;

  // Thread-safe, blocking. Writes `bytes` from the host into a buffer that no kernel uses yet; the
  // bytes are in place for every kernel launched after it returns, and `src` may be reused.
  virtual absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) = 0;

  // Thread-safe, blocking. As Write(), but copies `bytes` bytes at `src_offset` of host memory that
  // is the source of many transfers. A backend may copy directly from it. The default calls
  // Write().
  virtual absl::Status WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                                 int64_t bytes) {
    return Write(dst, offset, src.data() + src_offset, bytes);
  }

  // Thread-safe, blocking. As Write(), but `fill` supplies the bytes. The backend calls
  // fill(at, size, to) for consecutive pieces of [0, bytes), in order. `fill` must write the bytes
  // [at, at + size) to `to`. This saves a copy if the backend transfers from its own memory.
  using Fill = absl::FunctionRef<void(int64_t at, int64_t size, void* to)>;
  virtual absl::Status WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill);

  // Thread-safe, blocking. Reads from a complete buffer into host memory.
  virtual absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) = 0;

  // Executor thread. Calls `done` once everything launched so far has finished, with the error that
  // the device has reported meanwhile, if any. `done` must be brief and not call the device; it may
  // run inside Fence() or on a thread of the backend's.
  virtual void Fence(std::function<void(absl::Status)> done) = 0;

  // Called once on the executor's thread before anything else, and so is the thread that Launch()
  // will be called from: a backend binds thread-local state here (CUDA's current device, OpenMP's
  // number of threads).
  virtual void BindThread() {}

  // Thread-safe, done at once, asked several times a second. DATA_LOSS with the reason where the
  // device is lost.
  virtual absl::Status Check() { return absl::OkStatus(); }

  // From here on loss() is `loss`: called once at most, when Check() has said so.
  virtual void MarkLost(const absl::Status& loss);
  // Null, or the error, DATA_LOSS, of everything that is in the device's memory. Thread-safe; it
  // stays there for as long as the device.
  const absl::Status* loss() const { return loss_.load(std::memory_order_acquire); }

  // Executor thread, after MarkLost(): gives up all that isn't held by buffers, once the calls
  // under way have returned. From then on calls fail, and buffers let go of their memory without
  // the device, or keep it until they go.
  virtual void Abandon() {}

  virtual DeviceHealth health() const { return {}; }

  // Thread-safe. What is to be given up before an allocation for a session fails.
  SpareMemoryList& spares() { return spares_; }

 protected:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  std::unique_ptr<const absl::Status> owned_loss_;
  std::atomic<const absl::Status*> loss_{nullptr};
  SpareMemoryList spares_;
};

}  // namespace tensord::server
