#include "tensord/server/device/restartable_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/self_test.h"

namespace tensord::server {
namespace {

// Owns the data that a FusedSpec views.
struct OwnedFusedSpec {
  explicit OwnedFusedSpec(const FusedSpec& spec)
      : inputs(spec.inputs.begin(), spec.inputs.end()),
        steps(spec.steps.begin(), spec.steps.end()),
        output(*spec.output) {
    attrs.reserve(steps.size());
    for (FusedSpec::Step& step : steps) {
      attrs.push_back(std::make_shared<Attributes>(*step.attrs));
      step.attrs = attrs.back().get();
    }
  }

  std::vector<TensorSpec> inputs;
  std::vector<FusedSpec::Step> steps;
  // The attributes of the steps. Copies of this object share them, so their addresses never change.
  std::vector<std::shared_ptr<const Attributes>> attrs;
  TensorSpec output;
};

}  // namespace

// A kernel of the current backend device.
class RestartableDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(RestartableDevice* device, Prepares prepare, const PreparedKernel& like)
      : PreparedKernel(&like), device_(device), prepare_(std::move(prepare)) {}
  ~Kernel() override {
    std::unique_ptr<PreparedKernel> kernel;  // destroyed without the lock
    MutexLock lock(&device_->mu_);
    device_->kernels_.erase(this);
    kernel = std::move(kernel_);
  }

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    TENSORD_ASSIGN_OR_RETURN(const Inner inner, device_->Current());
    for (const Buffer* input : inputs) {
      if (const absl::Status* loss = input->device().loss()) return *loss;
    }
    for (const Buffer* output : outputs) {
      if (const absl::Status* loss = output->device().loss()) return *loss;
    }
    if (kernel_ == nullptr) {
      TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<PreparedKernel> kernel, prepare_(*inner));
      device_->Attach(this, inner, std::move(kernel));
      if (kernel_ == nullptr) return device_->Current().status();
    }
    absl::Status status = kernel_->Launch(context, inputs, outputs);
    return status.ok() ? status : device_->RecordLoss(inner, std::move(status));
  }

  // Call both with the device's lock held, and on the executor thread or before the first launch.
  void Set(std::unique_ptr<PreparedKernel> kernel) { kernel_ = std::move(kernel); }
  std::unique_ptr<PreparedKernel> Take() { return std::move(kernel_); }

 private:
  RestartableDevice* const device_;
  const Prepares prepare_;
  std::unique_ptr<PreparedKernel> kernel_;  // null: not prepared for the current backend device
};

// A graph of the backend device on which it was captured.
class RestartableDevice::Graph final : public KernelGraph {
 public:
  Graph(RestartableDevice* device, Inner inner, std::unique_ptr<KernelGraph> graph)
      : device_(device), inner_(std::move(inner)), graph_(std::move(graph)) {}

  absl::Status Launch(absl::Span<const Buffer* const> inputs) override {
    TENSORD_RETURN_IF_ERROR(device_->Current().status());
    if (const absl::Status* loss = inner_->loss()) return *loss;
    for (const Buffer* input : inputs) {
      if (const absl::Status* loss = input->device().loss()) return *loss;
    }
    absl::Status status = graph_->Launch(inputs);
    return status.ok() ? status : device_->RecordLoss(inner_, std::move(status));
  }

  bool lost() const override { return inner_->loss() != nullptr; }

 private:
  RestartableDevice* const device_;
  const Inner inner_;  // destroyed after the graph
  const std::unique_ptr<KernelGraph> graph_;
};

absl::StatusOr<std::unique_ptr<Device>> RestartableDevice::Create(Maker maker) {
  TENSORD_ASSIGN_OR_RETURN(Inner first, maker.make());
  return std::unique_ptr<Device>(new RestartableDevice(std::move(maker), std::move(first)));
}

RestartableDevice::RestartableDevice(Maker maker, Inner first)
    : maker_(std::move(maker)),
      info_(first->info()),
      host_accessible_(first->host_accessible()),
      has_graphs_(first->has_graphs()),
      defers_checks_(first->defers_checks()),
      inner_(std::move(first)),
      last_memory_(inner_->memory()) {}

RestartableDevice::~RestartableDevice() = default;

absl::StatusOr<RestartableDevice::Inner> RestartableDevice::Current() const {
  MutexLock lock(&mu_);
  if (state_ != DeviceState::kServing) return loss_;
  return inner_;
}

absl::Status RestartableDevice::RecordLoss(const Inner& inner, absl::Status status) {
  // A copy also returns DATA_LOSS if the device of its source is lost.
  if (!absl::IsDataLoss(status)) return status;
  const absl::Status check = inner->Check();
  if (check.ok()) return status;
  MutexLock lock(&mu_);
  if (inner == inner_) SetLostLocked(check);
  const absl::Status* loss = inner->loss();
  return loss != nullptr ? *loss : status;
}

void RestartableDevice::SetLossListener(std::function<void()> listener) {
  MutexLock lock(&mu_);
  loss_listener_ = std::move(listener);
}

void RestartableDevice::Poll() {
  Inner inner;
  {
    MutexLock lock(&mu_);
    if (state_ != DeviceState::kServing) return;
    inner = inner_;
  }
  const absl::Status check = inner->Check();
  if (!check.ok()) RecordLoss(inner, check).IgnoreError();
}

void RestartableDevice::MarkLostByDomain(const absl::Status& reason) {
  MutexLock lock(&mu_);
  SetLostLocked(reason);
}

void RestartableDevice::SetLostLocked(const absl::Status& reason) {
  if (state_ != DeviceState::kServing) return;
  state_ = DeviceState::kLost;
  ++losses_;
  reason_ = std::string(reason.message());
  loss_ = absl::DataLossError(absl::StrCat(
      name().ToString(), " was lost, with every tensor on it: ", reason_,
      "; when it serves again (see ListDevices or the health service), create the tensors again"));
  inner_->MarkLost(loss_);
  if (loss_listener_) loss_listener_();
}

void RestartableDevice::Abandon() {
  Inner inner;
  std::vector<std::unique_ptr<PreparedKernel>> kernels;
  {
    MutexLock lock(&mu_);
    if (state_ != DeviceState::kLost) return;
    state_ = DeviceState::kResetting;
    inner = std::exchange(inner_, nullptr);
    for (Kernel* kernel : kernels_) kernels.push_back(kernel->Take());
    if (inner != nullptr) {
      const int64_t peak_bytes = std::max(last_memory_.peak_bytes, inner->memory().peak_bytes);
      last_memory_ = inner->memory();
      last_memory_.used_bytes = 0;
      last_memory_.peak_bytes = peak_bytes;
    }
  }
  kernels.clear();
  if (inner != nullptr) inner->Abandon();
}

absl::Status RestartableDevice::Restart() {
  absl::StatusOr<std::unique_ptr<Device>> made = maker_.make();
  absl::Status status = made.status();
  if (status.ok()) {
    (*made)->BindThread();
    status = SelfTest(**made);
  }
  if (!status.ok()) {
    if (made.ok()) {  // the next restart frees the memory that this device can't free
      if ((*made)->loss() == nullptr) (*made)->MarkLost(status);
      (*made)->Abandon();
    }
    Fail(status);
    return status;
  }
  MutexLock lock(&mu_);
  inner_ = *std::move(made);
  state_ = DeviceState::kServing;
  reason_.clear();
  ++restarts_;
  return absl::OkStatus();
}

void RestartableDevice::Fail(const absl::Status& reason) {
  MutexLock lock(&mu_);
  state_ = DeviceState::kLost;
  constexpr char kFailed[] = "; the restart failed: ";
  reason_ = absl::StrCat(reason_.substr(0, reason_.find(kFailed)), kFailed, reason.message());
}

MemoryStats RestartableDevice::memory() const {
  MutexLock lock(&mu_);
  if (inner_ == nullptr || state_ != DeviceState::kServing) {
    MemoryStats memory = last_memory_;
    memory.used_bytes = 0;
    return memory;
  }
  MemoryStats memory = inner_->memory();
  memory.peak_bytes = std::max(memory.peak_bytes, last_memory_.peak_bytes);
  return memory;
}

HardwareUse RestartableDevice::QueryHardwareUse() const {
  const absl::StatusOr<Inner> inner = Current();
  return inner.ok() ? (*inner)->QueryHardwareUse() : HardwareUse{};
}

void RestartableDevice::ReleaseUnusedMemory() {
  const absl::StatusOr<Inner> inner = Current();
  if (inner.ok()) (*inner)->ReleaseUnusedMemory();
}

DeviceHealth RestartableDevice::health() const {
  MutexLock lock(&mu_);
  return {state_, reason_, restarts_, losses_};
}

absl::StatusOr<BufferRef> RestartableDevice::Allocate(int64_t size_bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  return KeepInnerAlive(inner, inner->Allocate(size_bytes));
}

absl::StatusOr<BufferRef> RestartableDevice::AllocateForTransfer(int64_t size_bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  return KeepInnerAlive(inner, inner->AllocateForTransfer(size_bytes));
}

absl::StatusOr<BufferRef> RestartableDevice::KeepInnerAlive(const Inner& inner,
                                                            absl::StatusOr<BufferRef> buffer) {
  if (!buffer.ok()) return RecordLoss(inner, buffer.status());
  (*buffer)->KeepAlive(inner);
  return buffer;
}

absl::Status RestartableDevice::Launch(const KernelCall& call) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  return RecordLoss(inner, inner->Launch(call));
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> RestartableDevice::PrepareBy(Prepares prepare) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  absl::StatusOr<std::unique_ptr<PreparedKernel>> kernel = prepare(*inner);
  if (!kernel.ok()) return RecordLoss(inner, kernel.status());
  auto wrapped = std::make_unique<Kernel>(this, std::move(prepare), **kernel);
  {
    MutexLock lock(&mu_);
    kernels_.insert(wrapped.get());
  }
  Attach(wrapped.get(), inner, *std::move(kernel));
  return wrapped;
}

void RestartableDevice::Attach(Kernel* to, const Inner& inner,
                               std::unique_ptr<PreparedKernel> kernel) {
  MutexLock lock(&mu_);
  // If `inner` was abandoned meanwhile, no later call would remove the kernel.
  if (inner == inner_) to->Set(std::move(kernel));
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> RestartableDevice::Prepare(const KernelSpec& spec) {
  return PrepareBy([schema = spec.schema, attrs = *spec.attrs,
                    inputs = std::vector<TensorSpec>(spec.inputs.begin(), spec.inputs.end()),
                    outputs = std::vector<TensorSpec>(spec.outputs.begin(), spec.outputs.end())](
                       Device& device) {
    return device.Prepare({schema, &attrs, inputs, outputs});
  });
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> RestartableDevice::PrepareFused(
    const FusedSpec& spec) {
  return PrepareBy([owned = OwnedFusedSpec(spec)](Device& device) {
    return device.PrepareFused({owned.inputs, owned.steps, &owned.output});
  });
}

absl::StatusOr<std::unique_ptr<KernelGraph>> RestartableDevice::Capture(
    MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  absl::StatusOr<std::unique_ptr<KernelGraph>> graph = inner->Capture(account, launch);
  if (!graph.ok()) return RecordLoss(inner, graph.status());
  return std::make_unique<Graph>(this, inner, *std::move(graph));
}

absl::StatusOr<std::unique_ptr<CheckMemory>> RestartableDevice::MakeCheckMemory() {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  absl::StatusOr<std::unique_ptr<CheckMemory>> memory = inner->MakeCheckMemory();
  if (!memory.ok()) return RecordLoss(inner, memory.status());
  return memory;
}

absl::Status RestartableDevice::CollectChecks(Buffer& cells, int count, const CheckCell& to) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = cells.device().loss()) return *loss;
  return RecordLoss(inner, inner->CollectChecks(cells, count, to));
}

absl::Status RestartableDevice::CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  for (const Buffer* buffer : {const_cast<const Buffer*>(&dst), &src}) {
    if (const absl::Status* loss = buffer->device().loss()) return *loss;
  }
  return RecordLoss(inner, inner->CopyFrom(dst, src, bytes));
}

absl::Status RestartableDevice::Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = dst.device().loss()) return *loss;
  return RecordLoss(inner, inner->Write(dst, offset, src, bytes));
}

absl::Status RestartableDevice::WriteFrom(Buffer& dst, int64_t offset, HostMemory& src,
                                          int64_t src_offset, int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = dst.device().loss()) return *loss;
  return RecordLoss(inner, inner->WriteFrom(dst, offset, src, src_offset, bytes));
}

absl::Status RestartableDevice::WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = dst.device().loss()) return *loss;
  return RecordLoss(inner, inner->WriteBy(dst, offset, bytes, fill));
}

absl::Status RestartableDevice::Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = src.device().loss()) return *loss;
  return RecordLoss(inner, inner->Read(src, offset, dst, bytes));
}

absl::Status RestartableDevice::ReadInto(const Buffer& src, int64_t offset, HostMemory& dst,
                                         int64_t dst_offset, int64_t bytes) {
  TENSORD_ASSIGN_OR_RETURN(const Inner inner, Current());
  if (const absl::Status* loss = src.device().loss()) return *loss;
  return RecordLoss(inner, inner->ReadInto(src, offset, dst, dst_offset, bytes));
}

void RestartableDevice::Fence(std::function<void(absl::Status)> done) {
  absl::StatusOr<Inner> inner = Current();
  if (!inner.ok()) {
    done(inner.status());
    return;
  }
  // The callback has only a weak reference: a fence must not keep the backend device alive.
  (*inner)->Fence(
      [this, weak = std::weak_ptr<Device>(*inner), done = std::move(done)](absl::Status status) {
        const Inner fenced = status.ok() ? nullptr : weak.lock();
        done(fenced == nullptr ? std::move(status) : RecordLoss(fenced, std::move(status)));
      });
}

void RestartableDevice::BindThread() {
  const absl::StatusOr<Inner> inner = Current();
  if (inner.ok()) (*inner)->BindThread();
}

absl::Status RestartableDevice::Check() {
  Poll();
  return Current().status();
}

}  // namespace tensord::server
