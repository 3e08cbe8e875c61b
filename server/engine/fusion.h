// Chains of ops that run as one kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/prepared_op_cache.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Appends the steps that compute an elementwise op within a fused kernel: casts of operands to the
// dtypes that the op reads, and the op. `operands` are the op's inputs as operands of the steps,
// and `inputs` are their specs. Returns the result as an operand of later steps. The steps point to
// `plan`, which must have a schema with `elementwise`.
int AppendSteps(const OpPlan& plan, absl::Span<const TensorSpec> inputs,
                absl::Span<const int> operands, FusedSteps* steps);

// An op of a chain. Each op but the first reads the result of the one before it, and no other op
// reads that result.
struct ChainLink {
  const PreparedOpRef* op;
  absl::Span<const TensorRef> inputs;
  const Tensor* output;
};

// An op of a chain and its operands. Operand i >= 0 is input i of the chain; operand i < 0 is the
// result of op -i - 1.
struct ChainOp {
  const PreparedOpRef* op;
  absl::InlinedVector<int, 3> operands;
};

// A kernel of several elementwise ops on a device. Prepare() makes it. Thread-safe.
class FusedKernel {
 public:
  // `kept_alive` owns the attributes that `steps` point to.
  FusedKernel(DeviceSlot* slot, std::vector<TensorSpec> inputs, FusedSteps steps, TensorSpec output,
              std::shared_ptr<const void> kept_alive)
      : slot_(slot),
        inputs_(std::move(inputs)),
        steps_(std::move(steps)),
        output_(std::move(output)),
        kept_alive_(std::move(kept_alive)) {}

  // Prepares the kernel if it isn't prepared yet. May block for seconds.
  void Prepare();

  bool prepared() const { return prepared_; }
  // Returns whether Prepare() takes so little time that the caller may wait for it.
  bool prepares_fast() const { return slot_->device->host_accessible(); }
  // Marks the kernel as queued. Returns false if it was marked already.
  bool MarkQueued() { return !queued_.exchange(true); }
  void ClearQueued() { queued_ = false; }

  // Returns null if the device has no kernel for the ops. Call it only if prepared() is true.
  PreparedKernel* kernel() const { return kernel_.get(); }

 private:
  DeviceSlot* const slot_;
  const std::vector<TensorSpec> inputs_;
  const FusedSteps steps_;
  const TensorSpec output_;
  const std::shared_ptr<const void> kept_alive_;
  std::atomic<bool> queued_ = false;
  std::atomic<bool> prepared_ = false;
  Mutex mu_;                                // held while the kernel is prepared
  std::unique_ptr<PreparedKernel> kernel_;  // written before prepared_
};

using FusedKernelRef = std::shared_ptr<FusedKernel>;

// Makes and keeps the kernels of chains. A kernel belongs to the ops of a chain and their operands.
// Thread-safe.
class ChainKernels {
 public:
  // `prepared_ops` must outlive this object.
  explicit ChainKernels(PreparedOpCache* prepared_ops) : prepared_ops_(prepared_ops) {}
  ~ChainKernels();

  // The maximum number of steps of a chain of elementwise ops.
  static constexpr size_t kMaxSteps = 32;

  // Returns how many steps a chain that begins with `first` may have. If `first` can't begin one,
  // returns 0.
  static size_t MaxSteps(const PreparedOp& first);
  // Returns how many steps of a chain compute the op.
  static size_t NumSteps(const PreparedOp& op);
  // Returns whether `next`, which reads the result of `op`, may follow `op` in a chain. In the
  // first case, both are elementwise (also compositions), and their results have one shape. In the
  // second case, `op` is a linear without an activation, and `next` is a function that can be its
  // activation.
  static bool MayFollow(const PreparedOp& op, const PreparedOp& next);
  // Returns whether the op is a linear without an activation. A chain that begins with it is the
  // linear and its activation.
  static bool IsBareLinear(const PreparedOp& op);

  // Returns the kernel of a chain of elementwise ops. If the device has none for it, returns null.
  // The first call for a chain on a GPU compiles the kernel, which may take seconds.
  std::shared_ptr<PreparedKernel> Find(absl::Span<const ChainOp> chain);

  // Returns the prepared op that computes `linear` and `activation` together.
  absl::StatusOr<PreparedOpRef> FindLinear(const PreparedOp& linear, const PreparedOp& activation);

  // Computes the chain with one kernel and returns the last op's result. If the device has no
  // kernel for this chain, or the kernel isn't compiled yet, returns null. The caller then runs the
  // chain op by op. A background thread compiles the kernels for GPUs. All inputs from outside the
  // chain must be ready. Allocated memory is charged to `account`. Call it on the executor's
  // thread.
  absl::StatusOr<BufferRef> Run(MemoryAccount& account, absl::Span<const ChainLink> chain);

  // Prepares a kernel: at once if that is fast, otherwise on the background thread. If the queue is
  // full, does nothing; the caller tries again later. Returns whether the kernel is prepared now.
  bool PrepareOrQueue(const FusedKernelRef& kernel);

  // Returns how many kernels wait to be compiled or are being compiled.
  int64_t kernels_to_compile() const;

 private:
  static constexpr size_t kMaxKernels = 512;
  // Limits the queue of kernels to compile. If the queue is full, a chain's kernel is queued at a
  // later run of the chain.
  static constexpr size_t kMaxQueued = 64;

  FusedKernelRef FindKernel(absl::Span<const ChainOp> chain);
  // Returns the kernel of a chain if it is compiled. Otherwise queues it and returns null. If the
  // device has no kernel for the chain, also returns null. Doesn't wait for a GPU's compiler.
  FusedKernelRef FindCompiled(absl::Span<const ChainOp> chain);
  // Queues the kernel for the background thread. Does nothing if the queue is full.
  void Queue(FusedKernelRef kernel);
  // Runs on the background thread: prepares the queued kernels, until stopping_ is set.
  void Compile();

  PreparedOpCache* const prepared_ops_;
  mutable Mutex mu_;
  CondVar changed_;
  absl::flat_hash_map<std::string, FusedKernelRef> kernels_ ABSL_GUARDED_BY(mu_);
  std::deque<FusedKernelRef> queue_
      ABSL_GUARDED_BY(mu_);  // compiler_ may be compiling the first one
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread compiler_ ABSL_GUARDED_BY(mu_);  // started by the first Queue()
};

}  // namespace tensord::server
