#include "tensord/tests/unit/engine/fake_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/value_check.h"

namespace tensord::server {
namespace {

constexpr auto kTimeout = std::chrono::minutes(1);

class FakeBuffer : public Buffer {
 public:
  FakeBuffer(Device* device, int64_t bytes, std::shared_ptr<DeviceMemoryLimit> memory_limit)
      : Buffer(device, bytes > 0 ? new uint8_t[bytes]() : nullptr, bytes),
        memory_limit_(std::move(memory_limit)) {}
  ~FakeBuffer() override {
    delete[] static_cast<uint8_t*>(data());
    memory_limit_->Release(size_bytes());
  }

 private:
  std::shared_ptr<DeviceMemoryLimit> memory_limit_;
};

// The cell of one launch.
class FakeCheckMemory final : public CheckMemory {
 public:
  explicit FakeCheckMemory(std::shared_ptr<std::atomic<int>> count) : count_(std::move(count)) {
    ++*count_;
  }
  ~FakeCheckMemory() override { --*count_; }

  const CheckCell& cell() const override { return addresses_; }
  absl::StatusOr<CheckRecord> Read() const override { return cell_.record; }

 private:
  const std::shared_ptr<std::atomic<int>> count_;
  GraphCheckCell cell_{};
  const CheckCell addresses_{&cell_.guard, &cell_.record};
};

// out[i] = x[indices[i]]. If an index is out of range, reports the first one to the call's cell.
template <typename T>
void Index(const KernelCall& call) {
  const CheckCell& check = call.context.check;
  const int64_t size = call.inputs[0].spec->num_elements();
  for (int64_t i = 0; i < call.output().spec->num_elements(); ++i) {
    const int64_t value = call.inputs[1].As<int64_t>()[i];
    const int64_t index = NormalIndex(value, size);
    call.output().AsMutable<T>()[i] = call.inputs[0].As<T>()[std::max<int64_t>(index, 0)];
    if (index >= 0 || check.guard == nullptr || check.guard->key != 0) continue;
    *check.record = {CheckKey(1, i), value, size, 0, 0};
    check.guard->key = check.record->key;
  }
}

// Checks all indices of the op index before it runs.
absl::Status CheckIndices(const KernelCall& call) {
  const Operand& indices = call.inputs[1];
  const int64_t size = call.inputs[0].spec->num_elements();
  for (int64_t i = 0; i < indices.spec->num_elements(); ++i) {
    const int64_t value = indices.As<int64_t>()[i];
    if (NormalIndex(value, size) >= 0) continue;
    return BadIndexError({CheckKey(1, i), value, size, 0, 0}, indices.spec->shape);
  }
  return absl::OkStatus();
}

template <typename T>
void Compute(const KernelCall& call) {
  const std::string& op = call.schema->name;
  if (op == "index") return Index<T>(call);
  T* out = call.output().AsMutable<T>();
  const int64_t n = call.output().spec->num_elements();
  for (int64_t i = 0; i < n; ++i) {
    if (op == "full") out[i] = static_cast<T>(call.attrs->Int("value"));
    if (op == "ones") out[i] = 1;
    if (op == "add") out[i] = call.inputs[0].As<T>()[i] + call.inputs[1].As<T>()[i];
    if (op == "neg") out[i] = -call.inputs[0].As<T>()[i];
    if (op == "cast") {
      out[i] = call.inputs[0].spec->dtype == DType::kInt32
                   ? static_cast<T>(call.inputs[0].As<int32_t>()[i])
                   : static_cast<T>(call.inputs[0].As<int64_t>()[i]);
    }
  }
}

}  // namespace

// A copy of a kernel call. The operands' memory must outlive it.
struct FakeDevice::Recorded {
  explicit Recorded(const KernelCall& call)
      : context(call.context),
        schema(call.schema),
        attrs(*call.attrs),
        output(*call.output().spec) {
    for (const Operand& input : call.inputs) inputs.push_back(*input.spec);
    for (const Operand& input : call.inputs) addresses.push_back(input.data);
    out = call.output().data;
  }

  void Run() const {
    std::vector<Operand> operands;
    for (size_t i = 0; i < inputs.size(); ++i) operands.push_back({&inputs[i], addresses[i]});
    const Operand result{&output, out};
    const KernelCall call{context, schema, &attrs, operands, absl::MakeConstSpan(&result, 1)};
    if (output.dtype == DType::kInt32) Compute<int32_t>(call);
    if (output.dtype == DType::kInt64) Compute<int64_t>(call);
  }

  LaunchContext context;
  const OpSchema* schema;
  Attributes attrs;
  std::vector<TensorSpec> inputs;
  std::vector<void*> addresses;
  TensorSpec output;
  void* out;
};

class FakeDevice::Graph final : public KernelGraph {
 public:
  Graph(FakeDevice* device, std::vector<Recorded> kernels, BufferRef memory)
      : device_(device), kernels_(std::move(kernels)), memory_(std::move(memory)) {}

  absl::Status Launch(absl::Span<const Buffer* const> /*inputs*/) override {
    TENSORD_RETURN_IF_ERROR(device_->Begin("graph"));
    for (const Recorded& kernel : kernels_) kernel.Run();
    return absl::OkStatus();
  }

  bool lost() const override { return device_->loss() != nullptr; }

 private:
  FakeDevice* const device_;
  const std::vector<Recorded> kernels_;
  const BufferRef memory_;
};

FakeDevice::FakeDevice(int index, Options options) : options_(options) {
  info_.name = {DeviceKind::kCpu, index};
  info_.model = "fake";
  memory_limit_ =
      std::make_shared<DeviceMemoryLimit>(info_.name, options.limit_bytes, options.limit_bytes);
}

FakeDevice::~FakeDevice() { ReleaseFences(); }

bool FakeDevice::AwaitChange(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return left.count() > 0 && changed_.WaitFor(&mu_, left);
}

void FakeDevice::Hold() {
  MutexLock lock(&mu_);
  held_ = true;
}

void FakeDevice::Release() {
  MutexLock lock(&mu_);
  held_ = false;
  changed_.SignalAll();
}

bool FakeDevice::WaitUntilHeld() {
  MutexLock lock(&mu_);
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (waiting_ == 0 && AwaitChange(deadline)) {
  }
  return waiting_ > 0;
}

void FakeDevice::HoldFences() {
  MutexLock lock(&mu_);
  fences_held_ = true;
}

void FakeDevice::ReleaseFences() {
  std::vector<std::function<void(absl::Status)>> fences;
  {
    MutexLock lock(&mu_);
    fences_held_ = false;
    fences.swap(fences_);
  }
  for (auto& fence : fences) fence(absl::OkStatus());
}

bool FakeDevice::WaitUntilFenceHeld() {
  MutexLock lock(&mu_);
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (fences_.empty() && AwaitChange(deadline)) {
  }
  return !fences_.empty();
}

void FakeDevice::FailNext(std::string op, absl::Status error) {
  MutexLock lock(&mu_);
  failing_op_ = std::move(op);
  failure_ = std::move(error);
}

std::vector<std::string> FakeDevice::launched() const {
  MutexLock lock(&mu_);
  return launched_;
}

absl::StatusOr<BufferRef> FakeDevice::Allocate(int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(memory_limit_->Reserve(size_bytes));
  return BufferRef(new FakeBuffer(this, size_bytes, memory_limit_));
}

absl::Status FakeDevice::Begin(const std::string& op) {
  MutexLock lock(&mu_);
  ++waiting_;
  changed_.SignalAll();
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (held_ && AwaitChange(deadline)) {
  }
  --waiting_;
  if (held_) return absl::DeadlineExceededError("the test never released the device");
  launched_.push_back(op);
  if (op != failing_op_) return absl::OkStatus();
  failing_op_.clear();
  return failure_;
}

absl::StatusOr<std::unique_ptr<KernelGraph>> FakeDevice::Capture(
    MemoryAccount& account, absl::FunctionRef<absl::Status()> launch) {
  TENSORD_RETURN_IF_ERROR(Begin("capture"));
  TENSORD_ASSIGN_OR_RETURN(BufferRef memory, AllocateSpareFor(account, *this, kGraphBytes));
  std::vector<Recorded> kernels;
  recording_ = &kernels;
  const absl::Status launched = launch();
  recording_ = nullptr;
  TENSORD_RETURN_IF_ERROR(launched);
  return std::make_unique<Graph>(this, std::move(kernels), std::move(memory));
}

absl::Status FakeDevice::Launch(const KernelCall& call) {
  if (recording_ != nullptr) {
    recording_->emplace_back(call);
    return absl::OkStatus();
  }
  TENSORD_RETURN_IF_ERROR(Begin(call.schema->name));
  if (call.schema->name == "index" && !options_.defers_checks) {
    TENSORD_RETURN_IF_ERROR(CheckIndices(call));
  }
  if (call.output().spec->dtype == DType::kInt32) Compute<int32_t>(call);
  if (call.output().spec->dtype == DType::kInt64) Compute<int64_t>(call);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CheckMemory>> FakeDevice::MakeCheckMemory() {
  return std::make_unique<FakeCheckMemory>(check_cells_);
}

absl::Status FakeDevice::CollectChecks(Buffer& buffer, int count, const CheckCell& to) {
  auto* const cells = static_cast<GraphCheckCell*>(buffer.data());
  for (int i = count - 1; i >= 0 && to.record != nullptr; --i) {
    if (cells[i].guard.key == 0) continue;
    *to.record = cells[i].record;
    to.record->step = i;
  }
  std::fill(cells, cells + count, GraphCheckCell{});
  return absl::OkStatus();
}

absl::Status FakeDevice::CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) {
  TENSORD_RETURN_IF_ERROR(Begin("copy"));
  std::memcpy(dst.data(), src.data(), bytes);
  return absl::OkStatus();
}

absl::Status FakeDevice::Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) {
  if (bytes > 0) std::memcpy(static_cast<uint8_t*>(dst.data()) + offset, src, bytes);
  return absl::OkStatus();
}

absl::Status FakeDevice::Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) {
  if (bytes > 0) std::memcpy(dst, static_cast<const uint8_t*>(src.data()) + offset, bytes);
  return absl::OkStatus();
}

void FakeDevice::Fence(std::function<void(absl::Status)> done) {
  {
    MutexLock lock(&mu_);
    if (fences_held_) {
      fences_.push_back(std::move(done));
      changed_.SignalAll();
      return;
    }
  }
  done(absl::OkStatus());
}

void Event::Set() const {
  MutexLock lock(&state_->mu);
  state_->happened = true;
  state_->changed.SignalAll();
}

bool Event::happened() const {
  MutexLock lock(&state_->mu);
  return state_->happened;
}

bool Event::Wait() const {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  MutexLock lock(&state_->mu);
  while (!state_->happened && std::chrono::steady_clock::now() < deadline) {
    state_->changed.WaitFor(&state_->mu, std::chrono::milliseconds(100));
  }
  return state_->happened;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace tensord::server
