#include "tensord/server/engine/program_graph.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/server/log.h"

namespace tensord::server {
namespace {

// What a graph saves and costs, in nanoseconds of the host or the GPU, whichever is busier.
constexpr int64_t kSavedPerKernelNanos = 1500;
constexpr int64_t kLaunchNanos = 3000;
constexpr int64_t kCopiedBytesPerNano = 1 << 10;

// The driver keeps about a kilobyte for each kernel of a graph. That memory is not counted.
constexpr int64_t kMaxKernels = 1 << 13;
// The limit of a graph's memory. A program with more computes for longer than its launches take.
constexpr int64_t kMaxBytes = 64 << 20;
// After this many changes of addresses, all inputs are copied.
constexpr int kMaxMoves = 4;
// After spare memory was freed, or could not be allocated, this many runs go op by op.
constexpr int kRunsToWait = 256;
// The limit of log lines about programs that can't be captured.
constexpr int kMaxLogLines = 16;

bool Launches(const ProgramStep& step) { return !step.op->is_alias() && !step.op->is_constant(); }

const void* AddressOf(const TensorRef& tensor) { return tensor->buffer()->data(); }

void LogCaptureFailure(const Device& device, size_t num_steps, const absl::Status& failure) {
  static std::atomic<int> lines{0};
  if (lines.fetch_add(1) >= kMaxLogLines) return;
  LogLine(absl::StrCat("a program of ", num_steps, " steps on ", device.name().ToString(),
                       " runs step by step, and not as a graph: ", failure.message()));
}

}  // namespace

std::unique_ptr<ProgramGraph> ProgramGraph::Make(const Body& body) {
  if (!body.slot->device->has_graphs()) return nullptr;
  std::unique_ptr<ProgramGraph> graph(new ProgramGraph(body));
  if (graph->num_launches_ > kMaxKernels || !graph->IsProfitable()) return nullptr;
  return graph;
}

ProgramGraph::ProgramGraph(const Body& body) : body_(body), device_(*body.slot->device) {
  std::vector<bool> read(body.num_inputs, false);
  roots_.resize(body.specs.size());
  for (uint32_t value = 0; value < roots_.size(); ++value) roots_[value] = value;
  offsets_.assign(body.specs.size(), 0);
  constant_.assign(body.specs.size(), false);
  for (const ProgramStep& step : body.steps) {
    if (step.op->is_alias()) {
      const uint32_t source = step.operands[0];
      roots_[step.result] = roots_[source];
      offsets_[step.result] = offsets_[source] + step.op->plan().alias_offset_bytes;
    }
    constant_[step.result] = step.op->is_constant();
    if (!Launches(step)) continue;
    num_launches_ = std::min(num_launches_ + step.op->num_launches(), int64_t{1} << 40);
    if (step.op->reports_values()) reporting_->push_back(step.op);
    for (uint32_t operand : step.operands) {
      if (roots_[operand] < body.num_inputs) read[roots_[operand]] = true;
    }
  }
  for (uint32_t input = 0; input < body.num_inputs; ++input) {
    if (read[input]) read_inputs_.push_back(input);
  }
  moving_.assign(body.num_inputs, false);
  last_address_.assign(body.num_inputs, nullptr);
  device_.spares().Add(this);
}

ProgramGraph::~ProgramGraph() { device_.spares().Remove(this); }

bool ProgramGraph::IsProfitable() const {
  int64_t copies = 0, bytes = 0;
  const auto copy = [&](uint32_t value) {
    ++copies;
    bytes += body_.specs[value].size_bytes();
  };
  for (uint32_t input : read_inputs_) {
    if (moving_[input]) copy(input);
  }
  for (uint32_t output : body_.outputs) {
    const uint32_t root = roots_[output];
    if (root >= body_.num_inputs && !constant_[root]) copy(root);
  }
  const int64_t launches = reporting_->empty() ? 1 : 2;  // the graph, and CollectChecks()
  return num_launches_ * kSavedPerKernelNanos >
         (launches + copies) * kLaunchNanos + bytes / kCopiedBytesPerNano;
}

bool ProgramGraph::FreeUnused(const MemoryAccount* account) {
  std::unique_ptr<Captured> dropped;
  MutexLock lock(&mu_);
  if (idle_ == nullptr || idle_->memory.empty()) return false;
  const auto gains = [account](const BufferRef& memory) {
    return account == nullptr ||
           (memory->account() != nullptr && account->SharesLimitWith(*memory->account()));
  };
  if (!std::any_of(idle_->memory.begin(), idle_->memory.end(), gains)) return false;
  freed_ = true;
  dropped = std::move(idle_);
  return true;
}

absl::StatusOr<BufferRefs> ProgramGraph::Run(MemoryAccount& account,
                                             absl::Span<const TensorRef> inputs,
                                             absl::Span<Buffer* const> values,
                                             ValueCheckRefs* checks) {
  if (never_) return BufferRefs();
  std::unique_ptr<Captured> captured;
  {
    MutexLock lock(&mu_);
    captured = std::move(idle_);
    if (std::exchange(freed_, false)) runs_to_wait_ = kRunsToWait;
  }
  if (captured != nullptr && (captured->kernels->lost() || !Fits(*captured, inputs))) {
    captured = nullptr;
  }
  if (captured == nullptr) {
    if (!IsDue(inputs)) return BufferRefs();
    captured = Capture(account, inputs, values);
    if (captured == nullptr) return BufferRefs();
  }
  absl::StatusOr<BufferRefs> results = Replay(account, captured.get(), inputs, checks);
  if (results.ok()) {
    MutexLock lock(&mu_);
    idle_ = std::move(captured);
    return results;
  }
  // The run has had no visible effect, so the caller may run the program op by op.
  RecordFailure(results.status());
  if (absl::IsDataLoss(results.status())) return results;
  return BufferRefs();
}

bool ProgramGraph::Fits(const Captured& captured, absl::Span<const TensorRef> inputs) {
  bool fits = true;
  for (size_t i = 0; i < captured.fixed_inputs.size(); ++i) {
    const uint32_t input = captured.fixed_inputs[i];
    if (AddressOf(inputs[input]) == captured.fixed_at[i]) continue;
    fits = false;
    moving_[input] = true;
  }
  if (!fits && ++moves_ >= kMaxMoves) moving_.assign(moving_.size(), true);
  return fits;
}

bool ProgramGraph::IsDue(absl::Span<const TensorRef> inputs) {
  // A restarted device loads the kernels again in its first run.
  const int64_t restarts = device_.health().restarts;
  const bool first = std::exchange(last_restarts_, restarts) != restarts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const void* const address = AddressOf(inputs[i]);
    if (!first && address != last_address_[i]) moving_[i] = true;
    last_address_[i] = address;
  }
  if (first) return false;
  if (runs_to_wait_ > 0) {
    --runs_to_wait_;
    return false;
  }
  never_ = !IsProfitable();
  return !never_;
}

void ProgramGraph::RecordFailure(const absl::Status& failure) {
  if (absl::IsResourceExhausted(failure)) {
    runs_to_wait_ = kRunsToWait;
  } else if (!absl::IsDataLoss(failure)) {
    never_ = true;
    if (!absl::IsOutOfRange(failure)) LogCaptureFailure(device_, body_.steps.size(), failure);
  }
}

std::unique_ptr<ProgramGraph::Captured> ProgramGraph::Capture(MemoryAccount& account,
                                                              absl::Span<const TensorRef> inputs,
                                                              absl::Span<Buffer* const> kept) {
  auto captured = std::make_unique<Captured>();
  captured->values.assign(body_.specs.size(), nullptr);
  absl::Status status = PlaceInputs(account, inputs, captured.get());
  if (status.ok()) status = PlaceResults(account, kept, captured.get());
  if (status.ok()) status = PlaceChecks(account, captured.get());
  if (!status.ok()) {
    RecordFailure(status);
    return nullptr;
  }
  const StopScope never_stops(nullptr);  // the graph must have all kernels
  absl::StatusOr<std::unique_ptr<KernelGraph>> kernels =
      device_.Capture(account, [&] { return LaunchSteps(account, captured.get()); });
  if (!kernels.ok()) {
    RecordFailure(kernels.status());
    return nullptr;
  }
  captured->kernels = *std::move(kernels);
  return captured;
}

absl::Status ProgramGraph::Count(int64_t bytes, Captured* captured) {
  captured->bytes += bytes;
  if (captured->bytes <= kMaxBytes) return absl::OkStatus();
  return absl::OutOfRangeError("the values of the program take too much memory for a graph");
}

absl::StatusOr<Buffer*> ProgramGraph::AllocateMemory(MemoryAccount& account, int64_t bytes,
                                                     Captured* captured) const {
  TENSORD_RETURN_IF_ERROR(Count(bytes, captured));
  TENSORD_ASSIGN_OR_RETURN(BufferRef memory, AllocateSpareFor(account, device_, bytes));
  captured->memory.push_back(std::move(memory));
  return captured->memory.back().get();
}

absl::Status ProgramGraph::PlaceInputs(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                       Captured* captured) {
  for (uint32_t input : read_inputs_) {
    if (moving_[input]) {
      TENSORD_ASSIGN_OR_RETURN(captured->values[input],
                               AllocateMemory(account, body_.specs[input].size_bytes(), captured));
      captured->copied_inputs.push_back(input);
    } else {
      captured->values[input] = inputs[input]->buffer().get();
      captured->fixed_inputs.push_back(input);
      captured->fixed_at.push_back(AddressOf(inputs[input]));
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramGraph::PlaceResults(MemoryAccount& account, absl::Span<Buffer* const> kept,
                                        Captured* captured) {
  absl::flat_hash_map<int64_t, std::vector<Buffer*>> free;  // by size
  for (const ProgramStep& step : body_.steps) {
    if (step.op->is_alias()) PlaceAlias(step, captured);
    for (uint32_t result : step.results()) {
      if (step.op->is_alias()) break;
      Buffer*& memory = captured->values[result];
      const int64_t bytes = body_.specs[result].size_bytes();
      if (step.op->is_constant()) {
        TENSORD_RETURN_IF_ERROR(Count(bytes, captured));
        TENSORD_ASSIGN_OR_RETURN(BufferRef constant, step.op->MakeConstant(account));
        memory = constant.get();
        captured->constants[result] = std::move(constant);
      } else if (body_.places[result] == ValuePlace::kKept) {
        memory = kept[result];
      } else if (std::vector<Buffer*>& fitting = free[bytes]; !fitting.empty()) {
        memory = fitting.back();
        fitting.pop_back();
      } else {
        TENSORD_ASSIGN_OR_RETURN(memory, AllocateMemory(account, bytes, captured));
      }
    }
    // Kernels run in this order, so memory may be reused after the last read of its value.
    for (uint32_t value : step.last_uses) {
      if (!constant_[value]) {
        free[body_.specs[value].size_bytes()].push_back(captured->values[value]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramGraph::PlaceChecks(MemoryAccount& account, Captured* captured) const {
  const auto count = static_cast<int>(reporting_->size());
  if (count == 0) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(
      captured->check_cells,
      AllocateMemory(account, count * static_cast<int64_t>(sizeof(GraphCheckCell)), captured));
  return device_.CollectChecks(*captured->check_cells, count, CheckCell());
}

void ProgramGraph::PlaceAlias(const ProgramStep& step, Captured* captured) {
  Buffer* const source = captured->values[step.operands[0]];
  const int64_t bytes = step.op->output().size_bytes();
  if (source == nullptr || source->size_bytes() == bytes) {
    captured->values[step.result] = source;
    return;
  }
  captured->views.push_back(
      BufferView::MakeUnowned(*source, step.op->plan().alias_offset_bytes, bytes));
  captured->values[step.result] = captured->views.back().get();
}

absl::Status ProgramGraph::LaunchSteps(MemoryAccount& account, Captured* captured) const {
  GraphCheckCell* cell = captured->check_cells == nullptr
                             ? nullptr
                             : static_cast<GraphCheckCell*>(captured->check_cells->data());
  for (const ProgramStep& step : body_.steps) {
    if (!Launches(step)) continue;
    CheckCell check;
    if (step.op->reports_values()) {
      check = {&cell->guard, &cell->record};
      ++cell;
    }
    absl::InlinedVector<const Buffer*, 3> operands;
    for (uint32_t operand : step.operands) operands.push_back(captured->values[operand]);
    absl::InlinedVector<Buffer*, 2> results;
    for (uint32_t result : step.results()) results.push_back(captured->values[result]);
    std::vector<BufferRef> casts;
    TENSORD_RETURN_IF_ERROR(step.chain != nullptr
                                ? step.chain->Launch({account, device_}, operands, results)
                                : step.op->LaunchInto(account, operands, results, check, &casts));
    for (BufferRef& cast : casts) {
      TENSORD_RETURN_IF_ERROR(Count(cast->size_bytes(), captured));
      captured->memory.push_back(std::move(cast));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferRefs> ProgramGraph::Replay(MemoryAccount& account, Captured* captured,
                                                absl::Span<const TensorRef> inputs,
                                                ValueCheckRefs* checks) const {
  TENSORD_ASSIGN_OR_RETURN(RootBuffers made, AllocateRoots(account));
  for (uint32_t input : captured->copied_inputs) {
    TENSORD_RETURN_IF_ERROR(device_.CopyFrom(*captured->values[input], *inputs[input]->buffer(),
                                             body_.specs[input].size_bytes()));
  }
  absl::InlinedVector<const Buffer*, 8> uploaded;
  for (uint32_t input : captured->fixed_inputs) uploaded.push_back(inputs[input]->buffer().get());
  if (!std::exchange(captured->launched, true)) {
    for (const auto& [value, constant] : captured->constants) uploaded.push_back(constant.get());
  }
  TENSORD_RETURN_IF_ERROR(LaunchKernels(captured, uploaded, checks));
  for (const auto& [root, buffer] : made) {
    TENSORD_RETURN_IF_ERROR(
        device_.CopyFrom(*buffer, *captured->values[root], body_.specs[root].size_bytes()));
  }
  BufferRefs outputs;
  for (uint32_t value : body_.outputs) {
    const uint32_t root = roots_[value];
    const BufferRef& buffer = root < body_.num_inputs ? inputs[root]->buffer()
                              : constant_[root]       ? captured->constants.at(root)
                                                      : made[root];
    const int64_t bytes = body_.specs[value].size_bytes();
    outputs.push_back(
        bytes == buffer->size_bytes() ? buffer : BufferView::Make(buffer, offsets_[value], bytes));
  }
  return outputs;
}

absl::Status ProgramGraph::LaunchKernels(Captured* captured,
                                         absl::Span<const Buffer* const> uploaded,
                                         ValueCheckRefs* checks) const {
  if (reporting_->empty()) return captured->kernels->Launch(uploaded);
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<CheckMemory> memory, device_.MakeCheckMemory());
  const auto describe = [ops = reporting_](const CheckRecord& record) {
    const PreparedOp& op = *(*ops)[record.step];
    return WithPrefix(op.BadValueError(record), absl::StrCat(op.name(), ": "));
  };
  checks->push_back(std::make_shared<ValueCheck>(std::move(memory), describe));
  TENSORD_RETURN_IF_ERROR(captured->kernels->Launch(uploaded));
  return device_.CollectChecks(*captured->check_cells, static_cast<int>(reporting_->size()),
                               checks->back()->cell());
}

absl::StatusOr<ProgramGraph::RootBuffers> ProgramGraph::AllocateRoots(
    MemoryAccount& account) const {
  RootBuffers made;
  for (uint32_t value : body_.outputs) {
    const uint32_t root = roots_[value];
    if (root < body_.num_inputs || constant_[root] || made.contains(root)) continue;
    TENSORD_ASSIGN_OR_RETURN(made[root],
                             AllocateFor(account, device_, body_.specs[root].size_bytes()));
  }
  return made;
}

}  // namespace tensord::server
