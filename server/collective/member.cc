#include "tensord/server/collective/member.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// The estimated host memory of an accepted operation, which counts as an op in flight of its
// session.
constexpr int64_t kOperationHostBytes = InFlight::BytesOfOp(1, 1);
// The estimated host memory of a refused operation, without its error.
constexpr int64_t kRefusedHostBytes = 512;

absl::Status NotConnected() {
  return absl::FailedPreconditionError(
      "the member isn't connected with its group; call ConnectGroup first");
}

absl::Status HasLeft() { return absl::CancelledError("the member has left its group"); }

}  // namespace

CollectiveMember::CollectiveMember(Engine* engine, DeviceSlot* slot, const GroupPlace& place,
                                   std::unique_ptr<Communicator> communicator, Charge charge,
                                   Charge counted)
    : engine_(engine),
      slot_(slot),
      place_(place),
      communicator_(std::move(communicator)),
      charge_(std::move(charge)),
      counted_(std::move(counted)) {}

void CollectiveMember::Connect(std::vector<std::string> addresses,
                               std::function<void(absl::Status)> done) {
  absl::Status state;
  bool waits = false;
  {
    MutexLock lock(&mu_);
    state = ended_;
    waits = state.ok() && !connected_;
    if (waits) {
      if (!asked_to_connect_) addresses_ = std::move(addresses);
      asked_to_connect_ = true;
      connecting_.push_back(std::move(done));
    }
  }
  if (waits) {
    communicator_->Wake();
  } else {
    done(state);
  }
}

absl::StatusOr<TensorRef> CollectiveMember::FindInput(const Session& session,
                                                      const CollectiveRequest& request) const {
  if (!request.op.HasInput(place_.rank)) {
    if (request.input == 0) return TensorRef();
    return absl::InvalidArgumentError(absl::StrCat(
        place_.names.Describe(place_.rank), " must have no input in a ", request.op.ToString()));
  }
  TENSORD_ASSIGN_OR_RETURN(TensorRef input, session.Find(request.input));
  if (input->slot() == nullptr) return input->status();
  if (input->slot() == slot_ && input->spec() == request.op.spec) return input;
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", request.input, " is ", input->spec().ToString(), " on ",
      input->device().name().ToString(), "; the request is for ", request.op.spec.ToString(),
      ", and the member is on ", slot_->device->name().ToString()));
}

absl::StatusOr<CollectiveMember::WorkRef> CollectiveMember::Promise(
    const SessionRef& session, const CollectiveRequest& request) {
  TENSORD_RETURN_IF_ERROR(request.refused);
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, PlanCollective(request.op, place_.size));
  TENSORD_ASSIGN_OR_RETURN(TensorRef input, FindInput(*session, request));
  if (input != nullptr && input->done() && !input->status().ok()) return input->status();
  auto work = std::make_shared<Work>();
  work->op = request.op;
  work->input = std::move(input);
  work->output = Tensor::Make(request.output, spec, slot_);
  TENSORD_RETURN_IF_ERROR(session->ops().Begin(kOperationHostBytes));
  if (absl::Status taken = session->Insert(work->output); !taken.ok()) {
    session->ops().End(kOperationHostBytes);
    return taken;
  }
  work->session = session;
  return work;
}

absl::StatusOr<TensorRef> CollectiveMember::Run(const SessionRef& session,
                                                const CollectiveRequest& request) {
  absl::StatusOr<TensorRef> result = TensorRef();
  WorkRef work;
  TensorRef input;  // a copy: once the work is queued, the member's thread may reset work->input
  {
    // Promises the result and queues the operation under one lock, so that both have the same
    // order.
    MutexLock lock(&mu_);
    TENSORD_RETURN_IF_ERROR(ended_);
    if (leaving_) return HasLeft();
    if (!asked_to_connect_) return NotConnected();
    absl::StatusOr<WorkRef> promised = Promise(session, request);
    if (promised.ok()) {
      work = *promised;
      result = work->output;
    } else {
      result = WithPrefix(promised.status(), "collective: ");
      work = std::make_shared<Work>();
      work->op = request.op;
      work->status = promised.status();
      work->charge = Charge(session->host_budget());
      TENSORD_RETURN_IF_ERROR(work->charge.Add(kRefusedHostBytes + HostBytesOf(work->status)));
    }
    work->sequence = ++sequence_;
    input = work->input;
    work->ready = input == nullptr;
    queue_.push_back(work);
  }
  if (input == nullptr) {
    communicator_->Wake();
  } else {
    AwaitInput(work, input);
  }
  return result;
}

void CollectiveMember::AwaitInput(const WorkRef& work, const TensorRef& input) {
  engine_->WhenReadable(input, [self = shared_from_this(), work](const absl::Status& status) {
    {
      MutexLock lock(&self->mu_);
      work->status = status;
      work->ready = true;
    }
    self->communicator_->Wake();
  });
}

void CollectiveMember::LeaveWhenDone() {
  {
    MutexLock lock(&mu_);
    leaving_ = true;
  }
  communicator_->Wake();
}

bool CollectiveMember::IsConnected() {
  MutexLock lock(&mu_);
  return connected_;
}

absl::Status CollectiveMember::LeaveStatus() {
  MutexLock lock(&mu_);
  if (leaving_ && queue_.empty()) return HasLeft();
  const bool can_run = connected_ && IsFrontReadyLocked() && queue_.front()->status.ok();
  return can_run ? absl::OkStatus() : leave_after_ready_;
}

void CollectiveMember::Leave(absl::Status why) {
  {
    MutexLock lock(&mu_);
    if (ended_.ok()) ended_ = why;
  }
  communicator_->Cancel(std::move(why));
}

void CollectiveMember::LeaveAfterReady(absl::Status why) {
  bool may_run = false;
  {
    MutexLock lock(&mu_);
    may_run = connected_;
    if (may_run) leave_after_ready_ = why;
  }
  may_run ? communicator_->Wake() : Leave(std::move(why));
}

void CollectiveMember::AppendUnfinished(std::vector<TensorRef>* results) {
  MutexLock lock(&mu_);
  if (running_ != nullptr) results->push_back(running_);
  for (const WorkRef& work : queue_) {
    if (work->output != nullptr) results->push_back(work->output);
  }
}

CollectiveMember::WorkRef CollectiveMember::TakeReady() {
  MutexLock lock(&mu_);
  if (!connected_ || !IsFrontReadyLocked()) return nullptr;
  WorkRef work = std::move(queue_.front());
  queue_.pop_front();
  running_ = work->output;
  return work;
}

void CollectiveMember::Serve() {
  absl::Status status;
  while (status.ok()) {
    status = ConnectNow();
    if (!status.ok()) break;
    status = LeaveStatus();
    // Other members may still run the last operation. So this member waits for their messages
    // before it leaves.
    if (absl::IsCancelled(status) && IsConnected()) {
      communicator_->Exchange(EncodeLeaveIntent()).IgnoreError();
    }
    if (!status.ok()) break;
    const WorkRef work = TakeReady();
    status = work == nullptr ? communicator_->Watch() : RunNow(*work);
    if (work != nullptr && !status.ok()) Finish(*work, status);
  }
  End(status);
}

absl::Status CollectiveMember::ConnectNow() {
  std::vector<std::string> addresses;
  {
    MutexLock lock(&mu_);
    if (connected_ || !asked_to_connect_) return absl::OkStatus();
    addresses.swap(addresses_);
  }
  const absl::Status status = communicator_->Connect(addresses);
  std::vector<std::function<void(absl::Status)>> done;
  std::deque<WorkRef> failed;
  bool leaving = false;
  // After these errors, the client may call ConnectGroup again with other addresses.
  const bool again = absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
  if (status.ok() || again) {
    MutexLock lock(&mu_);
    connected_ = status.ok();
    asked_to_connect_ = connected_;
    done.swap(connecting_);
    if (again) failed.swap(queue_);
    leaving = leaving_;
  }
  for (const auto& callback : done) callback(status);
  for (const WorkRef& work : failed) Finish(*work, status);
  return again && !leaving ? absl::OkStatus() : status;
}

absl::Status CollectiveMember::Exchange(Work& work, BufferRef* output, absl::Status* verdict) {
  absl::Status mine = work.status;
  const bool has_result =
      work.op.kind != CollectiveKind::kBroadcast || !work.op.HasInput(place_.rank);
  if (mine.ok() && has_result) {
    absl::StatusOr<BufferRef> buffer =
        AllocateFor(work.session->account(*slot_), *slot_->device, work.output->spec().size_bytes(),
                    FirstUse::kTransfer);
    mine = buffer.status();
    if (buffer.ok()) *output = *std::move(buffer);
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<std::string> intents,
                           communicator_->Exchange(EncodeIntent(work.sequence, work.op, mine)));
  *verdict = mine.ok() ? CompareIntents(intents, place_.names) : mine;
  return absl::OkStatus();
}

absl::Status CollectiveMember::RunNow(Work& work) {
  BufferRef output;
  absl::Status verdict;
  TENSORD_RETURN_IF_ERROR(Exchange(work, &output, &verdict));
  if (!verdict.ok()) {
    if (work.session != nullptr) verdict = work.session->ChargeError(work.output, verdict);
    Finish(work, verdict);
    return absl::OkStatus();
  }
  if (work.op.kind != CollectiveKind::kBarrier) {
    const Buffer* input = work.input == nullptr ? nullptr : work.input->buffer().get();
    TENSORD_RETURN_IF_ERROR(communicator_->Run(work.op, input, output.get()));
  }
  // The result of a broadcast's root is its input.
  if (output == nullptr) output = work.input->buffer();
  const absl::Status* loss = output->device().loss();
  if (loss != nullptr) {
    Finish(work, *loss);
  } else {
    Finish(work, std::move(output));
  }
  return absl::OkStatus();
}

void CollectiveMember::Finish(Work& work, absl::StatusOr<BufferRef> result) {
  if (work.session == nullptr) return;
  work.input.reset();
  {
    MutexLock lock(&mu_);
    running_.reset();
  }
  work.output->Finish(std::move(result));
  work.session->ops().End(kOperationHostBytes);
}

void CollectiveMember::End(const absl::Status& why) {
  std::deque<WorkRef> queue;
  std::vector<std::function<void(absl::Status)>> connecting;
  absl::Status ended;
  {
    MutexLock lock(&mu_);
    if (ended_.ok()) ended_ = why;
    ended = ended_;
    queue.swap(queue_);
    connecting.swap(connecting_);
  }
  communicator_->Leave(ended);
  for (const auto& callback : connecting) callback(ended);
  for (const WorkRef& work : queue) Finish(*work, ended);
}

}  // namespace tensord::server
