// Ops that are ready to run: they are inferred, and their kernels are prepared, for given input
// specs and a device.
//
// Names in server/engine: a function Run…() allocates the outputs of an op, a chain or a program,
// and computes them. A function Launch…() computes into memory that the caller has allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/budget.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

using TensorRefs = absl::InlinedVector<TensorRef, 3>;

using BufferRefs = absl::InlinedVector<BufferRef, 1>;

// The steps that compute an elementwise op within a fused kernel. Operand i >= 0 of a step is input
// i of the op.
using FusedSteps = std::vector<FusedSpec::Step>;

// An op or a program that is prepared for a device and runs any number of times. One thread runs it
// at a time: the executor's, or the thread that holds the executor's InlineLock.
class Executable {
 public:
  virtual ~Executable() = default;

  // Returns the name for messages, such as "add".
  virtual absl::string_view name() const = 0;
  virtual DeviceSlot* slot() const = 0;

  // Returns whether Run() takes a few microseconds at most and may run on any thread that holds the
  // executor's InlineLock.
  bool runs_inline() const {
    return may_run_inline_ && slow_runs_.load(std::memory_order_relaxed) < kMaxSlowRuns;
  }
  // Reports a measured run, and whether it was too slow for an inline op. After kMaxSlowRuns slow
  // ones in a row, runs_inline() returns false. Thread-safe.
  void CountRun(bool was_slow) {
    if (was_slow) {
      slow_runs_.fetch_add(1, std::memory_order_relaxed);
    } else {
      slow_runs_.store(0, std::memory_order_relaxed);
    }
  }

  // Allocates the outputs, charges them to `account`, computes them, and returns one buffer for
  // each. If the thread's stop token stops the op, returns buffers with unspecified content, or an
  // error. All inputs must be ready. If no other object holds an input, and its memory was charged
  // to `account`, an output may reuse that memory.
  // If the device defers_checks(), adds the value checks of the launches to `checks`, also if it
  // returns an error. The caller must keep them until a fence after the launches.
  virtual absl::StatusOr<BufferRefs> Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                         ValueCheckRefs* checks) = 0;

 protected:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  bool may_run_inline_ = false;  // all kernels run inline

 private:
  // One run may be slow by chance: it allocates memory, or the hypervisor stops the processor.
  static constexpr int kMaxSlowRuns = 2;

  std::atomic<int> slow_runs_{0};
};

class ChainKernels;
class PreparedOpCache;

// One op for given input specs, attributes and device. All calls with the same op, specs,
// attributes and device share it (prepared_op_cache.h).
class PreparedOp final : public Executable, public std::enable_shared_from_this<PreparedOp> {
 public:
  // Infers the op and prepares its kernels. Returns the errors of PlanOp(), Device::Prepare()
  // and PrepareComposition().
  // If an input or output exceeds the device's limit, prepares nothing and returns
  // RESOURCE_EXHAUSTED.
  // `caller` is for ChargeCaller(). It may be null. `prepared_ops` and `chains` are for
  // PrepareComposition(): `prepared_ops` must not be null if the op is a composition.
  static absl::StatusOr<std::shared_ptr<PreparedOp>> Make(absl::string_view op,
                                                          absl::Span<const TensorSpec> inputs,
                                                          const Attributes& attrs, DeviceSlot* slot,
                                                          const BudgetRef& caller,
                                                          PreparedOpCache* prepared_ops,
                                                          ChainKernels* chains);

  const OpPlan& plan() const { return plan_; }
  absl::string_view name() const override { return plan_.schema->name; }
  DeviceSlot* slot() const override { return slot_; }
  absl::Span<const TensorSpec> inputs() const { return inputs_; }
  absl::Span<const TensorSpec> outputs() const { return plan_.outputs; }
  // Returns the first output.
  const TensorSpec& output() const { return plan_.output(); }

  absl::StatusOr<BufferRefs> Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                 ValueCheckRefs* checks) override;

  // Does the same as Run() for an op with one output, and returns its buffer.
  absl::StatusOr<BufferRef> RunSingle(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                      ValueCheckRefs* checks);

  // Returns whether the result has memory of input 0. Then call Alias() instead of LaunchInto().
  bool is_alias() const { return plan_.alias; }
  // Returns the result of an alias: `input`, the buffer of input 0, or a view of it.
  BufferRef Alias(const BufferRef& input) const;
  // Returns whether the op is `constant`, whose attribute holds the result's bytes. Then call
  // MakeConstant() instead of LaunchInto().
  bool is_constant() const { return constant_; }
  // Allocates the result of `constant`, charged to `account`, and writes its bytes.
  absl::StatusOr<BufferRef> MakeConstant(MemoryAccount& account);
  // If the op is a composition that can be part of a fused kernel, returns its steps. Otherwise
  // returns null.
  const FusedSteps* fused_steps() const { return fused_steps_.get(); }
  // Calls PreparedKernel::PrepareFully().
  void PrepareFully() {
    if (kernel_ != nullptr) kernel_->PrepareFully();
  }
  // Returns the output that may use the buffer of an input, if both have the same size. If there is
  // none, returns -1.
  int in_place(int input) const { return kernel_ == nullptr ? -1 : kernel_->in_place(input); }
  // Returns the estimated host memory of the op: this object, its kernels, specs and attributes.
  int64_t host_bytes() const { return host_bytes_; }
  // Returns PreparedKernel::num_launches(), or 0 if there is no kernel.
  int64_t num_launches() const { return kernel_ == nullptr ? 0 : kernel_->num_launches(); }
  // Returns whether the kernel reports bad values to a cell, which LaunchInto() must get.
  bool reports_values() const { return reports_values_; }
  // Executor thread. Adds a check for one launch to `checks`, and returns its cell. If
  // reports_values() is false, does nothing and returns an empty cell. `in_program` says whether
  // the op is a step of a program, whose name the error gets. The error then names this op, too.
  absl::StatusOr<CheckCell> MakeCheck(ValueCheckRefs* checks, bool in_program);
  // Returns the error for a value that the kernel has reported. It doesn't name the op.
  absl::Status BadValueError(const CheckRecord& record) const;
  // Both functions charge host_bytes() to the caller that the op was made for, until this object is
  // destroyed. If there is no such caller, or it no longer exists, they charge nothing. If
  // the charge would exceed a limit, ChargeCaller() returns an error, as Budget::Charge()
  // does, and ChargeCallerPastLimit() charges nevertheless. Call at most one of the two functions,
  // and only once: before the op is shared, or with the cache's lock held.
  absl::Status ChargeCaller();
  void ChargeCallerPastLimit();

  // Computes into `outputs`, which must have the sizes of the op's outputs. If reports_values(),
  // reports a bad value to `check`, otherwise returns INVALID_ARGUMENT. Allocates buffers for
  // casts, and charges them to `account`. If `kept` is null, frees these buffers before it returns.
  // Otherwise adds them to `kept`. If no output has elements, does nothing. Call it only if
  // is_alias() and is_constant() are false.
  absl::Status LaunchInto(MemoryAccount& account, absl::Span<const Buffer* const> inputs,
                          absl::Span<Buffer* const> outputs, const CheckCell& check,
                          std::vector<BufferRef>* kept = nullptr);

 private:
  absl::Status CheckSizes() const;
  absl::Status Prepare(PreparedOpCache* prepared_ops, ChainKernels* chains);
  int64_t EstimateHostBytes() const;
  absl::StatusOr<BufferRef> Cast(MemoryAccount& account, size_t input, const Buffer& from);
  // Returns the buffer of an input that `output` may use. If there is none, returns null.
  BufferRef ReusableInput(const MemoryAccount& account, absl::Span<const TensorRef> inputs,
                          int output) const;
  // Returns memory for an output: that of an input, or new memory.
  absl::StatusOr<BufferRef> MakeOutput(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                       int output) const;

  OpPlan plan_;
  DeviceSlot* slot_ = nullptr;
  absl::InlinedVector<TensorSpec, 3> inputs_;
  std::unique_ptr<PreparedKernel> kernel_;                         // null: no kernel is needed
  absl::InlinedVector<std::unique_ptr<PreparedKernel>, 3> casts_;  // null: none for that input
  std::shared_ptr<const FusedSteps> fused_steps_;
  bool constant_ = false;
  bool has_casts_ = false;  // an input is cast to another dtype before the kernel runs
  bool reports_values_ = false;
  bool launching_ = false;  // only the thread that launches uses it
  int64_t host_bytes_ = 0;
  // A cached op must not keep the caller alive.
  std::weak_ptr<Budget> caller_;
  Charge charge_;
};

using PreparedOpRef = std::shared_ptr<PreparedOp>;

// If the op doesn't have `num_outputs` outputs, returns INVALID_ARGUMENT.
absl::Status CheckNumOutputs(const PreparedOp& op, size_t num_outputs);

}  // namespace tensord::server
