#include "tensord/server/engine/op_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/server/engine/readiness.h"
#include "tensord/server/engine/resolve_checks.h"

namespace tensord::server {
namespace {

// Returns why the op that makes `output` was stopped.
absl::Status StopReason(const Session& session, const Tensor& output) {
  if (session.closed()) return SessionEndedError();
  if (output.stop_flag()) {
    return absl::CancelledError(
        "the call was cancelled, or its deadline passed, before the op had finished");
  }
  const int64_t limit = session.max_op_time().count();
  return session.principal()->Refuse(
      {.reason = "OP_SECONDS_EXCEEDED",
       .subject = "server",
       .limit = "max-op-seconds",
       .value = limit,
       .message = absl::StrCat("the op was stopped after ", limit,
                               " s, the longest that one op or program may run; divide "
                               "it into smaller ones"),
       .retry_seconds = 0});
}

// Calls `run`, which stops early if the session ends, a call gives up `output`, or the time limit
// of an op is reached. If it had to stop, returns the reason instead of its result. `output` is
// made by the op.
template <typename Run>
auto RunStoppable(const Session& session, const Tensor& output, Run run) -> decltype(run()) {
  StopToken token = {.flags = {&session.closed_flag(), &output.stop_flag()}};
  if (session.max_op_time().count() > 0) {
    token.deadline = StopToken::Clock::now() + session.max_op_time();
  }
  if (token.stopped()) return StopReason(session, output);
  const StopScope scope(&token);
  auto result = run();
  if (token.stopped()) return StopReason(session, output);
  return result;
}

// Adds the op and its output to the text of the op's error. Ops that depend on the output pass the
// error on unchanged, so its text is charged once.
absl::Status Annotate(Session& session, const absl::Status& error, absl::string_view op,
                      const TensorRef& output) {
  return session.ChargeError(
      output, WithPrefix(error, absl::StrCat(op, " (tensor ", output->handle(), "): ")));
}

void FinishAll(absl::StatusOr<BufferRefs> results, const CheckListRef& checks,
               absl::Span<const TensorRef> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (results.ok()) {
      outputs[i]->Finish(std::move((*results)[i]), checks);
    } else {
      outputs[i]->Finish(results.status());
    }
  }
}

// Returns the error of the first input that has failed.
absl::Status StatusOf(absl::Span<const TensorRef> inputs) {
  for (const TensorRef& input : inputs) TENSORD_RETURN_IF_ERROR(input->status());
  return absl::OkStatus();
}

// Counts an op whose results have `checks`, which may be null. Enqueues a fence from time to time,
// so that checks don't collect if nothing is read.
void CountChecked(DeviceSlot& slot, const CheckListRef& checks) {
  if (checks == nullptr || !slot.checks.CountOp()) return;
  FenceAndResolve(slot, [](const absl::Status&) {});
}

}  // namespace

OpNode::OpNode(SessionRef session, std::shared_ptr<Executable> executable, TensorRefs inputs,
               TensorRefs outputs, ChainKernels* chains, int64_t host_bytes)
    : session_(std::move(session)),
      executable_(std::move(executable)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      chains_(chains),
      host_bytes_(host_bytes),
      op_(std::dynamic_pointer_cast<PreparedOp>(executable_)) {}

void OpNode::Schedule() {
  const Executor::Lane* lane = session_->lane(*executable_->slot()).get();
  for (const TensorRef& input : inputs_) {
    if (StateOf(*input, lane) != InputState::kPending) continue;
    pending_.fetch_add(1, std::memory_order_relaxed);
    input->WhenDone([self = shared_from_this()] { self->OnInputDone(); });
  }
  OnInputDone();
}

void OpNode::OnInputDone() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  DeviceSlot& slot = *executable_->slot();
  const std::shared_ptr<Executor::Lane> lane = session_->lane(slot);
  const TensorRefs outputs = outputs_;  // the node may be destroyed once it is posted
  const std::shared_ptr<OpNode> self = shared_from_this();
  // If exactly one input is not computed yet, the op that computes it may run this op in its own
  // chain, from SetReader() on.
  Tensor* posted = nullptr;
  bool only_one = true;
  for (const TensorRef& input : inputs_) {
    if (StateOf(*input, lane.get()) != InputState::kPosted || input.get() == posted) continue;
    only_one = only_one && posted == nullptr;
    posted = input.get();
  }
  if (posted != nullptr && only_one) posted->SetReader(this);
  const bool is_short = executable_->runs_inline();
  slot.executor->Post(
      lane, [self] { self->RunOnExecutor(); },
      is_short ? Executor::Length::kShort : Executor::Length::kAny);
  for (const TensorRef& output : outputs) output->SetPosted(lane.get());
}

void OpNode::RunOnExecutor() {
  if (!has_run_ && !RunChain()) {
    CheckListRef checks;
    absl::StatusOr<BufferRefs> results = RunAlone(&checks);
    inputs_.clear();  // free their memory before waiters run
    FinishAll(std::move(results), checks, outputs_);
    CountChecked(*executable_->slot(), checks);
  }
  session_->ops().End(host_bytes_);
  session_.reset();
}

OpNode* OpNode::FindNext() {
  const TensorRef& output = outputs_[0];
  OpNode* next = output->reader();
  if (next == nullptr || next->op_ == nullptr) return nullptr;
  if (!ChainKernels::MayFollow(*op_, *next->op_)) return nullptr;
  int64_t num_reads = 0;
  for (const TensorRef& input : next->inputs_) {
    if (input == output) {
      ++num_reads;
    } else if (!IsReady(*input)) {
      return nullptr;
    }
  }
  // If only this op and the next one refer to the tensor, no other op can read it.
  return output.use_count() == 1 + num_reads ? next : nullptr;
}

std::vector<OpNode*> OpNode::FindChain() {
  std::vector<OpNode*> chain = {this};
  const size_t max_steps = ChainKernels::MaxSteps(*op_);
  size_t num_steps = ChainKernels::NumSteps(*op_);
  while (num_steps < max_steps) {
    OpNode* next = chain.back()->FindNext();
    if (next == nullptr) break;
    num_steps += ChainKernels::NumSteps(*next->op_);
    if (num_steps <= max_steps) chain.push_back(next);
  }
  return chain;
}

bool OpNode::RunChain() {
  if (chains_ == nullptr || op_ == nullptr) return false;
  if (ChainKernels::MaxSteps(*op_) == 0) return false;
  if (!AllReady(inputs_)) return false;
  const std::vector<OpNode*> chain = FindChain();
  if (chain.size() == 1) return false;
  absl::InlinedVector<ChainLink, 8> links;
  CheckCollector collector;
  for (OpNode* node : chain) {
    links.push_back({&node->op_, node->inputs_, node->outputs_[0].get()});
    for (const TensorRef& input : node->inputs_) {
      if (input->done()) collector.Inherit(input->checks());
    }
  }
  if (collector.size() > CheckList::kMaxChecks) return false;
  const TensorRef& output = chain.back()->outputs_[0];
  absl::StatusOr<BufferRef> result = RunStoppable(*session_, *output, [&] {
    return chains_->Run(session_->account(*executable_->slot()), links);
  });
  if (result.ok() && *result == nullptr) return false;
  if (!result.ok())
    result = Annotate(*session_, result.status(), chain.back()->executable_->name(), output);
  for (OpNode* node : chain) {
    node->has_run_ = true;
    node->inputs_.clear();
  }
  const CheckListRef checks = collector.Finish({}, session_->host_budget());
  output->Finish(std::move(result), checks);
  CountChecked(*executable_->slot(), checks);
  return true;
}

absl::StatusOr<BufferRefs> OpNode::RunAlone(CheckListRef* checks) {
  TENSORD_RETURN_IF_ERROR(StatusOf(inputs_));
  DeviceSlot& slot = *executable_->slot();
  CheckCollector collector;
  for (const TensorRef& input : inputs_) collector.Inherit(input->checks());
  if (collector.size() > CheckList::kMaxChecks) {
    const absl::Status fenced = AwaitFence(slot);
    for (const TensorRef& input : inputs_) {
      if (input->checks() != nullptr) input->checks()->Resolve(fenced);
    }
    TENSORD_RETURN_IF_ERROR(StatusOf(inputs_));
    collector = CheckCollector();
  }
  ValueCheckRefs own;
  absl::StatusOr<BufferRefs> results = RunStoppable(*session_, *outputs_[0], [&] {
    return executable_->Run(session_->account(slot), inputs_, &own);
  });
  for (const ValueCheckRef& check : own) {
    check->SetSubject(executable_->name(), outputs_[0]->handle(), session_->host_budget());
    slot.checks.Add(check);
  }
  *checks = collector.Finish(own, session_->host_budget());
  if (results.ok()) return results;
  return Annotate(*session_, results.status(), executable_->name(), outputs_[0]);
}

void RunInline(Session& session, Executable& executable, absl::Span<const TensorRef> inputs,
               absl::Span<const TensorRef> outputs, InlineWatch* watch) {
  // An op that runs inline computes in host memory, so its status is final.
  absl::StatusOr<BufferRefs> results = watch->Measure(executable, [&] {
    return executable.Run(session.account(*executable.slot()), inputs, /*checks=*/nullptr);
  });
  if (!results.ok()) {
    results = Annotate(session, results.status(), executable.name(), outputs[0]);
  }
  FinishAll(std::move(results), /*checks=*/nullptr, outputs);
}

namespace {

// If the input's device was lost during a copy, records the loss. The copy's error then names that
// device.
void DetectLoss(const Tensor& input) {
  RestartableDevice* const device = input.device().restartable();
  if (device != nullptr) device->Poll();
}

absl::StatusOr<BufferRef> CopyOnExecutor(Session& session, const Tensor& input,
                                         const Tensor& output) {
  TENSORD_RETURN_IF_ERROR(input.status());
  const int64_t bytes = output.spec().size_bytes();
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer,
                           AllocateFor(session.account(*output.slot()), output.device(), bytes));
  if (bytes > 0) {
    TENSORD_RETURN_IF_ERROR(output.device().CopyFrom(*buffer, *input.buffer(), bytes));
  }
  return buffer;
}

// Finishes `output` with the result of a copy. If the input has an error, `output` gets that error.
void FinishCopy(Session& session, const TensorRef& input, const TensorRef& output,
                absl::StatusOr<BufferRef> result) {
  if (absl::IsDataLoss(result.status())) DetectLoss(*input);
  if (!input->status().ok()) {
    result = input->status();
  } else if (!result.ok()) {
    result = Annotate(session, result.status(), "copy_to_device", output);
  }
  output->Finish(std::move(result));
}

// Copies from host memory to a device that the host can't access. Each part is one task of the
// device's executor, so that the executor can run other work between the parts.
class UploadingCopy final : public std::enable_shared_from_this<UploadingCopy> {
 public:
  UploadingCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output)
      : session_(session), input_(input), output_(output) {}

  void PostNext() {
    DeviceSlot& slot = *output_->slot();
    slot.executor->Post(session_->lane(slot), [self = shared_from_this()] { self->CopyPart(); });
  }

 private:
  static constexpr int64_t kPartBytes = int64_t{4} << 20;

  void CopyPart() {
    const absl::Status status = RunStoppable(*session_, *output_, [this] { return TryCopyPart(); });
    if (!status.ok()) return FinishCopy(*session_, input_, output_, status);
    if (copied_bytes_ < output_->spec().size_bytes()) return PostNext();
    FinishCopy(*session_, input_, output_, std::move(buffer_));
  }

  absl::Status TryCopyPart() {
    TENSORD_RETURN_IF_ERROR(input_->status());
    const int64_t bytes = output_->spec().size_bytes();
    if (buffer_ == nullptr) {
      TENSORD_ASSIGN_OR_RETURN(buffer_, AllocateFor(session_->account(*output_->slot()),
                                                    output_->device(), bytes, FirstUse::kTransfer));
    }
    const int64_t part = std::min(kPartBytes, bytes - copied_bytes_);
    if (part == 0) return absl::OkStatus();
    const auto* source = static_cast<const char*>(input_->buffer()->data()) + copied_bytes_;
    TENSORD_RETURN_IF_ERROR(output_->device().Write(*buffer_, copied_bytes_, source, part));
    copied_bytes_ += part;
    return absl::OkStatus();
  }

  const SessionRef session_;
  const TensorRef input_;
  const TensorRef output_;
  BufferRef buffer_;
  int64_t copied_bytes_ = 0;
};

}  // namespace

void PostCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output) {
  if (input->device().host_accessible() && !output->device().host_accessible()) {
    std::make_shared<UploadingCopy>(session, input, output)->PostNext();
    return;
  }
  DeviceSlot& slot = *output->slot();
  const auto& lane = session->lane(slot);
  constexpr int64_t kMaxShortBytes = 64 << 10;
  const bool is_short = output->spec().size_bytes() <= kMaxShortBytes;
  slot.executor->Post(
      lane,
      [session, input, output] {
        FinishCopy(*session, input, output, RunStoppable(*session, *output, [&] {
          return CopyOnExecutor(*session, *input, *output);
        }));
      },
      is_short ? Executor::Length::kShort : Executor::Length::kAny);
  output->SetPosted(lane.get());
}

}  // namespace tensord::server
