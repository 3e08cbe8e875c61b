// A backend implements Device: one logical device, with its memory, kernels and transfers.
//
// Threads. One thread at a time launches kernels: the executor's thread, or the thread that holds
// the executor's InlineLock (executor.h). The comments call either of them the executor thread. A
// function whose comment begins with "Executor thread." must be called on it. Kernels take effect
// in the order of their launches. A backend may run kernels after Launch() has returned: the CUDA
// backend runs them on a stream. When Fence() calls back, all of them have finished. Any thread may
// allocate memory, and transfer data to and from the host, at any time.
//
// Faults. If nothing on a device can be used any more, the device is lost. For example, a CUDA
// context can't be used after an access to an illegal address. The first call that meets the fault
// returns DATA_LOSS. From then on, Check() returns DATA_LOSS. A lost device never recovers: a new
// device replaces it (restartable_device.h).
#pragma once

#include <array>
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
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/check_cell.h"
#include "tensord/server/device/host_memory.h"
#include "tensord/server/device/spare_memory.h"

namespace tensord::server {

class Device;
class MemoryAccount;

enum class DeviceState { kServing = 1, kLost, kResetting };  // as v1::DeviceState

// Says whether a device can be used.
struct DeviceHealth {
  DeviceState state = DeviceState::kServing;
  std::string reason;    // why the device can't be used; empty while it serves
  int64_t restarts = 0;  // the number of restarts so far
  int64_t losses = 0;    // how often the device was lost so far

  bool serving() const { return state == DeviceState::kServing; }
};

// Describes a device. It doesn't change when the device restarts.
struct DeviceInfo {
  DeviceName name;                 // of the logical device: "cuda:1"
  int physical_index = 0;          // the index of the device's GPU; 0 for the host
  std::string model;               // "AMD EPYC 9654", "NVIDIA H100 80GB HBM3"
  std::string uuid;                // stable over restarts; logical devices of one GPU share it
  std::string compute_capability;  // "9.0"; empty for a CPU
  int threads = 0;                 // a CPU device's threads; 0 for a GPU
};

// Counts the memory of a device.
struct MemoryStats {
  int64_t total_bytes = 0;  // of the physical device
  int64_t limit_bytes = 0;  // of this logical device
  // Counts the size_bytes() of all buffers, scratch memory (scratch_memory.h), and the copies of
  // weights that the backend keeps for speed. If an allocation needs the room, the backend frees
  // these copies. Freed memory that the backend keeps for reuse isn't counted.
  int64_t used_bytes = 0;
  int64_t peak_bytes = 0;  // the highest value of used_bytes so far, without these copies
};

// Says how all processes of the machine use a physical device, as its driver reports it. If a
// figure isn't known, it has no value.
struct HardwareUse {
  std::optional<int> utilization_percent;  // share of the last moments in which a kernel ran
  std::optional<int64_t> used_bytes;       // memory that all processes hold
  std::optional<int64_t> own_bytes;        // the part of used_bytes that this process holds
};

// An operand of a kernel is dense and row-major.
struct Operand {
  const TensorSpec* spec;
  void* data;  // an address in the device's memory; null if the tensor is empty

  template <typename T>
  const T* As() const {
    return static_cast<const T*>(data);
  }
  template <typename T>
  T* AsMutable() const {
    return static_cast<T*>(data);
  }
};

// What a launch needs in addition to the op and its operands.
struct LaunchContext {
  // The kernel's scratch memory (scratch_memory.h) is allocated from `device` and charged to
  // `account`. `device` is the one that the caller launches on, which may wrap the backend's.
  MemoryAccount& account;
  Device& device;
  CheckCell check = {};  // where the kernel reports a bad value, if Device::defers_checks()
  // If null, the launch frees the buffers that it allocates. Otherwise it adds them here, because a
  // graph that records the launch needs them as long as it exists.
  std::vector<BufferRef>* kept = nullptr;
};

// A call has everything that a kernel needs to run one op. The inputs have the dtypes of
// OpPlan::input_dtypes. `attrs` is in normal form (op_schema.h). The outputs are allocated. If the
// kernel was prepared for it (PreparedKernel::in_place), an output may have the memory of an input.
// Otherwise it overlaps no other operand.
struct KernelCall {
  const LaunchContext& context;
  const OpSchema* schema;
  const Attributes* attrs;
  absl::Span<const Operand> inputs;
  absl::Span<const Operand> outputs;  // one for each of OpPlan::outputs

  const Operand& output() const { return outputs[0]; }
};

// A prepared kernel runs an op with given dtypes, shapes and attributes, any number of times. One
// thread at a time may use it. The device must outlive it.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;

  // Executor thread. Runs or enqueues the kernel as Device::Launch() does. The inputs and outputs
  // must have the order and the sizes of the specs that were given to Prepare(). If the op's schema
  // has `value_checked` and the device defers_checks(), the kernel reports a bad value to
  // `context.check`, whose memory the caller keeps until the kernel has finished.
  virtual absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                              absl::Span<Buffer* const> outputs) = 0;
  // Launches a kernel with one output.
  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      Buffer* output) {
    return Launch(context, inputs, absl::MakeConstSpan(&output, 1));
  }

  // Returns the error for a bad value that the kernel has reported. The error names the inner op.
  // Call this only for the kernel of a composition on a device that defers_checks().
  virtual absl::Status BadValueError(const CheckRecord& record) const;

  // Blocks until all fused kernels of a composition are compiled, which may take seconds. Without
  // this call, Launch() runs their ops one by one until then.
  virtual void PrepareFully() {}

  // Returns whether Launch() finishes the kernel within a few microseconds, and may be called on
  // any thread that holds the executor's InlineLock. A switch to the executor's thread would take
  // longer.
  bool runs_inline() const { return runs_inline_; }

  // Returns the output that may use the buffer of input `i`, if both have the same size. If there
  // is none, returns -1.
  int in_place(int i) const { return i < kMaxInPlace ? in_place_[i] : -1; }

  // Returns the largest number of kernels that a launch runs or enqueues: 1, but for a composition.
  int64_t num_launches() const { return num_launches_; }

  // Returns the estimated host memory that the kernel keeps in addition to its specs and
  // attributes, such as generated code.
  int64_t host_bytes() const { return host_bytes_; }

 protected:
  PreparedKernel() = default;
  // Copies runs_inline(), in_place(), host_bytes() and num_launches() from `like`.
  explicit PreparedKernel(const PreparedKernel* like)
      : runs_inline_(like->runs_inline_),
        host_bytes_(like->host_bytes_),
        num_launches_(like->num_launches_),
        in_place_(like->in_place_) {}
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;

  // Allows `output` to use the buffer of input `i`. Has no effect for inputs beyond the first
  // kMaxInPlace.
  void SetInPlace(int i, int output = 0) {
    if (i < kMaxInPlace) in_place_[i] = static_cast<int8_t>(output);
  }

  bool runs_inline_ = false;
  int64_t host_bytes_ = 0;
  int64_t num_launches_ = 1;

 private:
  static constexpr int kMaxInPlace = 32;
  static constexpr std::array<int8_t, kMaxInPlace> NoneInPlace() {
    std::array<int8_t, kMaxInPlace> none{};
    none.fill(-1);
    return none;
  }

  std::array<int8_t, kMaxInPlace> in_place_ = NoneInPlace();
};

// Names the op, dtypes and shapes that a kernel is prepared for. The views must be valid during the
// call of Prepare(), and not longer.
struct KernelSpec {
  const OpSchema* schema;
  const Attributes* attrs;  // in normal form
  absl::Span<const TensorSpec> inputs;
  absl::Span<const TensorSpec> outputs;

  const TensorSpec& output() const { return outputs[0]; }
};

// Describes a sequence of elementwise ops that becomes one kernel. Each step computes elements of
// the output's shape. The step's operands broadcast to that shape. A step may also be a number: the
// op `full` with the shape [].
struct FusedSpec {
  struct Step {
    const OpSchema* schema;
    const Attributes* attrs;
    absl::InlinedVector<int, 3> operands;  // i >= 0: input i; i < 0: the result of step -i - 1
    DType dtype;                           // of the result
  };
  absl::Span<const TensorSpec> inputs;
  absl::Span<const Step> steps;  // operands have the dtypes of the ops' plans
  const TensorSpec* output;      // the result of the last step
};

// A graph has recorded kernels and the addresses that they use. One launch runs all of them. It may
// be launched any number of times. The device must outlive the graph. The graph may be destroyed
// while kernels that it enqueued still run.
class KernelGraph {
 public:
  virtual ~KernelGraph() = default;

  // Executor thread. Runs or enqueues the kernels as Device::Launch() does. `inputs` must contain
  // each buffer that the kernels read and that may have been uploaded since the last launch. The
  // kernels run after these uploads.
  virtual absl::Status Launch(absl::Span<const Buffer* const> inputs) = 0;

  // Returns whether the device was lost, and the graph's memory with it. If so, the graph never
  // runs again.
  virtual bool lost() const { return false; }

 protected:
  KernelGraph() = default;
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;
};

// The memory of a cell that reports to the host. It is zero at first. Destroy it on any thread,
// when the kernels that were launched with the cell have finished, or their device is lost. It may
// outlive the device.
class CheckMemory {
 public:
  virtual ~CheckMemory() = default;

  virtual const CheckCell& cell() const = 0;
  // Thread-safe. Returns what the kernels have reported. Call it when an event after their launch
  // has completed. If the device was abandoned, returns DATA_LOSS.
  virtual absl::StatusOr<CheckRecord> Read() const = 0;

 protected:
  CheckMemory() = default;
  CheckMemory(const CheckMemory&) = delete;
  CheckMemory& operator=(const CheckMemory&) = delete;
};

// Returns true if both have the same number of elements, and elements of the same size. Only then
// may the output of an elementwise kernel overwrite the input.
bool HasElementsOf(const TensorSpec& input, const TensorSpec& output);

class RestartableDevice;

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  const DeviceName& name() const { return info().name; }

  // Thread-safe. Returns the figures of this moment.
  virtual MemoryStats memory() const = 0;

  // Thread-safe. Asks the driver, which may take some milliseconds. The default returns no figure.
  virtual HardwareUse QueryHardwareUse() const { return {}; }

  // Returns whether the host may dereference Buffer::data().
  virtual bool host_accessible() const = 0;

  // Thread-safe. Allocates `size_bytes` >= 0, aligned to 64 bytes at least. The content is
  // unspecified. If the limit or the physical device's memory is exceeded, changes nothing and
  // returns RESOURCE_EXHAUSTED. The error names the device and the bytes requested, free and
  // allowed.
  virtual absl::StatusOr<BufferRef> Allocate(int64_t size_bytes) = 0;

  // Thread-safe. Does the same as Allocate() for a buffer that Write() or a collective operation
  // fills, and not a kernel. The backend may start such a transfer while earlier kernels still run.
  // The default calls Allocate().
  virtual absl::StatusOr<BufferRef> AllocateForTransfer(int64_t size_bytes) {
    return Allocate(size_bytes);
  }

  // Executor thread. Runs or enqueues the kernel of `call.schema`. The caller keeps the operands'
  // buffers until Launch() has returned. A backend that runs kernels later reuses memory in stream
  // order, so the kernel may still use a buffer that was dropped after its launch. If there is too
  // little memory for the kernel's scratch, returns RESOURCE_EXHAUSTED.
  virtual absl::Status Launch(const KernelCall& call) = 0;

  // Thread-safe. Prepares a kernel. The default's kernel calls Device::Launch(). If the op is
  // elementwise, its output may have the memory of an input that has elements of the same size and
  // number. So a backend that uses the default must read an element of each input before it writes
  // the output's element at the same position.
  virtual absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec& spec);

  // Thread-safe. Prepares one kernel for several elementwise ops. It computes the same elements as
  // the ops one by one. If the backend has no such kernel, returns UNIMPLEMENTED. The default
  // always returns UNIMPLEMENTED.
  virtual absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFused(const FusedSpec& spec);

  // Returns whether Capture() works and is useful. It is useful if launching a kernel takes much
  // longer than running it.
  virtual bool has_graphs() const { return false; }

  // Executor thread. Records the kernels that `launch` launches on this device, and returns their
  // graph. `launch` may use prepared kernels only. Capture() doesn't run the kernels.
  // The graph uses the same addresses at each launch. So the caller must keep the memory that the
  // kernels use, and the prepared kernels, while the graph exists. This includes memory that
  // `launch` allocates. Capture() allocates the kernels' scratch memory and charges it to
  // `account`. The graph frees it when it is destroyed. If `launch` fails, returns its error. If
  // there is too little memory at the moment, returns RESOURCE_EXHAUSTED. If the device is lost,
  // returns DATA_LOSS. If the backend has no graphs, returns UNIMPLEMENTED, as the default does.
  // After any other error, these kernels can never be captured.
  virtual absl::StatusOr<std::unique_ptr<KernelGraph>> Capture(
      MemoryAccount& account, absl::FunctionRef<absl::Status()> launch);

  // Returns whether kernels of ops with OpSchema::value_checked report bad values to a cell,
  // because they run after their launch has returned. Otherwise they check all values before they
  // write, and Launch() returns INVALID_ARGUMENT (value_check.h).
  virtual bool defers_checks() const { return false; }

  // Executor thread. Returns a cell for one launch, or for one call of CollectChecks(). The default
  // returns UNIMPLEMENTED.
  virtual absl::StatusOr<std::unique_ptr<CheckMemory>> MakeCheckMemory();

  // Executor thread. Enqueues a kernel that copies the first of `count` GraphCheckCells in `cells`
  // that has a record to `to`, with its number as the record's `step`. The kernel then makes all
  // cells zero. `to` may have null pointers.
  virtual absl::Status CollectChecks(Buffer& cells, int count, const CheckCell& to);

  // Executor thread. Copies src[0, bytes) to dst[0, bytes), in order with kernels. `src` may be on
  // any device. If `src` is on this device, the kernel that fills it must have been launched. If it
  // is on another device, it must be complete: that device's Fence() has called back since the
  // launch.
  virtual absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) = 0;

  // Thread-safe. Blocks. Copies `bytes` bytes of host memory into a buffer that no kernel uses yet.
  // Kernels that are launched after Write() has returned read the new bytes. The caller may then
  // reuse `src`.
  virtual absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) = 0;

  // Thread-safe. Blocks. Does the same as Write(), but copies `bytes` bytes at `src_offset` of
  // `src`, which is the source of many transfers. A backend may copy directly from it. The default
  // calls Write().
  virtual absl::Status WriteFrom(Buffer& dst, int64_t offset, HostMemory& src, int64_t src_offset,
                                 int64_t bytes) {
    return Write(dst, offset, src.data() + src_offset, bytes);
  }

  // Thread-safe. Blocks. Does the same as Write(), but `fill` supplies the bytes. The backend calls
  // fill(at, size, to) for consecutive pieces of [0, bytes), in order. `fill` must write the bytes
  // [at, at + size) to `to`. If the backend transfers from its own memory, this saves a copy.
  using Fill = absl::FunctionRef<void(int64_t at, int64_t size, void* to)>;
  virtual absl::Status WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill);

  // Thread-safe. Blocks. Copies from a complete buffer (see CopyFrom()) to host memory.
  virtual absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) = 0;

  // Thread-safe. Blocks. Does the same as Read(), but copies to `dst` at `dst_offset`. `dst` is the
  // memory of many transfers, so a backend may prepare it and copy directly to it. The default
  // calls Read().
  virtual absl::Status ReadInto(const Buffer& src, int64_t offset, HostMemory& dst,
                                int64_t dst_offset, int64_t bytes) {
    return Read(src, offset, dst.data() + dst_offset, bytes);
  }

  // Executor thread. Calls `done` when everything that was launched before has finished. The status
  // is OK, or the error that the device has reported meanwhile. `done` must return within
  // microseconds and must not call the device. It runs inside Fence() or on a thread of the
  // backend.
  virtual void Fence(std::function<void(absl::Status)> done) = 0;

  // Sets the thread-local state that the backend needs (CUDA's current device, OpenMP's number of
  // threads). The executor's thread calls it before its first task, and before the first use of a
  // restarted device.
  virtual void BindThread() {}

  // Thread-safe. If the device is lost, returns DATA_LOSS with the reason. Must not block: it is
  // called several times a second.
  virtual absl::Status Check() { return absl::OkStatus(); }

  // Sets loss(). Must be called at most once.
  virtual void MarkLost(const absl::Status& loss);
  // Thread-safe. If MarkLost() was called, returns its status, which is the error of everything in
  // the device's memory. Otherwise returns null. The pointer is valid while the device exists.
  const absl::Status* loss() const { return loss_.load(std::memory_order_acquire); }

  // Executor thread, after MarkLost(). Waits for the active calls, then frees everything that no
  // buffer owns. Calls that begin later are safe, but may return the loss. The memory of a buffer
  // is freed when the buffer is destroyed, or by Backend::reset.
  virtual void Abandon() {}

  // Thread-safe. Returns to the system the host memory that the device keeps for reuse and hasn't
  // used since the last call.
  virtual void ReleaseUnusedMemory() {}

  virtual DeviceHealth health() const { return {}; }

  // Returns this device if it can restart after a fault, otherwise null.
  virtual RestartableDevice* restartable() { return nullptr; }

  // Thread-safe. Returns the list of the owners of spare memory. Before an allocation for a session
  // fails, they free it.
  SpareMemoryList& spares() { return spares_; }

  // Thread-safe. Returns the bytes of scratch memory that launches hold at this moment.
  int64_t scratch_bytes() const { return scratch_bytes_.load(std::memory_order_relaxed); }

 protected:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  friend class ScratchMemory;

  std::unique_ptr<const absl::Status> owned_loss_;
  std::atomic<const absl::Status*> loss_{nullptr};
  SpareMemoryList spares_;
  std::atomic<int64_t> scratch_bytes_{0};
};

}  // namespace tensord::server
