#include "tensord/server/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// A table of handles with at most this capacity keeps its memory.
constexpr size_t kMinShrinkCapacity = 4096;

absl::Status NoSuchTensor(Handle handle) {
  if (handle == 0) return absl::InvalidArgumentError("handle 0 is never valid; use another");
  return absl::NotFoundError(
      absl::StrCat("this session has no tensor ", handle, "; it was never made, or was deleted"));
}

bool HasLowerHandle(const TensorRef& a, const TensorRef& b) { return a->handle() < b->handle(); }

// Returns the tensors that are not done, in order of handle. The order of a hash map differs from
// run to run.
std::vector<TensorRef> PendingOf(const absl::flat_hash_map<Handle, TensorRef>& tensors) {
  std::vector<TensorRef> pending;
  for (const auto& [handle, tensor] : tensors) {
    if (!tensor->done()) pending.push_back(tensor);
  }
  std::sort(pending.begin(), pending.end(), HasLowerHandle);
  return pending;
}

// The error of a tensor whose own error can't be charged. All such tensors share one text.
const absl::Status& NoRoomForError() {
  static const auto* const error = new absl::Status(absl::ResourceExhaustedError(
      "the tensor failed; its error was dropped because a limit of host memory is reached "
      "(--max-host-bytes or --max-host-bytes-per-principal); delete tensors, then repeat the op"));
  return *error;
}

}  // namespace

absl::Status SessionEndedError() {
  return absl::FailedPreconditionError("the session has ended; open another");
}

bool Session::Table::Insert(TensorRef tensor) {
  AssertHeld();
  const Handle handle = tensor->handle();
  const bool full =
      static_cast<int64_t>(session_->tensors_.size()) >= session_->limits_.max_handles_per_session;
  if (handle == 0 || full || session_->closed()) return false;
  const auto [place, is_new] = session_->tensors_.try_emplace(handle);
  if (!is_new) return false;
  if (session_->TakeHandle(*tensor).ok()) {
    place->second = std::move(tensor);
    return true;
  }
  session_->tensors_.erase(place);
  return false;
}

TensorRef Session::Table::TakeOut(Handle handle) {
  AssertHeld();
  return session_->TakeOut(handle);
}

Session::Session(PrincipalRef principal, Charge host, std::string id, uint64_t number,
                 std::string client_name, std::chrono::seconds lease, const Limits& limits,
                 absl::Span<DeviceSlot* const> slots, LeaseClock clock)
    : host_(std::move(host)),
      principal_(std::move(principal)),
      id_(std::move(id)),
      number_(number),
      client_name_(std::move(client_name)),
      lease_(lease),
      limits_(limits),
      counts_handles_(principal_->budget(PrincipalLimit::kHandles).limited() ||
                      principal_->can_have_own_limits()),
      clock_(clock),
      opened_at_(clock()),
      ops_(this->host_budget(), limits.max_ops_in_flight, /*prepaid_bytes=*/0),
      waits_(this->host_budget(), InFlight::kMaxCount, kPrepaidWaitBytes),
      handle_charge_(this->host_budget(), Charge::kBlockBytes),
      last_used_(opened_at_),
      last_active_(opened_at_) {
  const PrincipalCountersRef& counters = principal_->counters_ref();
  const auto on_refused = [counters](const absl::Status& status) {
    counters->CountRefusal(ErrorReason(status));
  };
  for (DeviceSlot* slot : slots) {
    PrincipalCounters::OnDevice& use = counters->on_device(slot->index);
    lanes_.push_back(
        slot->executor->NewLane({principal_, &principal_->weight()}, {counters, &use.nanoseconds}));
    MemoryAccount::Options options{.device = slot->device->name().ToString(),
                                   .session_limit_bytes = limits.max_bytes_per_session,
                                   .principal_limit_source =
                                       [principal = principal_.get()] {
                                         return principal->limit_source("max-bytes-per-principal");
                                       },
                                   .accounts = {counters, &use.accounts},
                                   .on_refused = on_refused};
    // For an anonymous principal without a limit, nothing needs this counter.
    if (principal_->budget(PrincipalLimit::kBytes).limited() ||
        principal_->kind() != Principal::Kind::kAnonymous) {
      options.principal = BudgetRef(principal_, &principal_->device_bytes(slot->index));
    }
    accounts_.push_back(MemoryAccount::Open(std::move(options)));
  }
}

Session::~Session() {
  MutexLock lock(&mu_);
  ReturnAllHandles();
}

absl::StatusOr<Charge> Session::BeginUpload(int64_t bytes) {
  const bool counts = principal_->budget(PrincipalLimit::kUploadBytes).limited() ||
                      principal_->can_have_own_limits();
  return counts ? ChargeTo(principal_, PrincipalLimit::kUploadBytes, bytes) : Charge();
}

absl::Status Session::TakeHandle(const Tensor& tensor) {
  TENSORD_RETURN_IF_ERROR(handle_charge_.Add(tensor.host_bytes()));
  if (!counts_handles_) return absl::OkStatus();
  absl::Status counted = principal_->budget(PrincipalLimit::kHandles).Charge(1);
  if (!counted.ok()) handle_charge_.Return(tensor.host_bytes());
  return counted;
}

void Session::ReturnHandle(const Tensor& tensor) {
  handle_charge_.Return(tensor.host_bytes());
  if (counts_handles_) principal_->budget(PrincipalLimit::kHandles).Return(1);
}

void Session::ReturnAllHandles() {
  handle_charge_.Clear();
  if (!counts_handles_) return;
  principal_->budget(PrincipalLimit::kHandles).Return(static_cast<int64_t>(tensors_.size()));
}

absl::StatusOr<TensorRef> Session::Find(Handle handle) const {
  MutexLock lock(&mu_);
  auto it = tensors_.find(handle);
  if (it != tensors_.end()) return it->second;
  const bool refused = handle >= refusal_.first && handle <= refusal_.last;
  return refused && !refusal_.error.ok() ? refusal_.error : NoSuchTensor(handle);
}

void Session::KeepRefusal(Handle handle, const absl::Status& error) {
  // Clients assign handles in ascending order. A handle far above the range begins a new range.
  constexpr Handle kMaxGap = 1 << 16;
  MutexLock lock(&mu_);
  if (refusal_.error.ok() || handle < refusal_.first || handle > refusal_.last + kMaxGap) {
    refusal_.first = refusal_.last = handle;
  }
  refusal_.last = std::max(refusal_.last, handle);
  refusal_.error = error;
}

absl::Status Session::CheckFree(Handle handle) const {
  MutexLock lock(&mu_);
  return CheckFreeLocked(handle);
}

absl::Status Session::CheckFreeLocked(Handle handle) const {
  if (handle == 0) {
    return absl::InvalidArgumentError(
        "handle 0 is never valid; choose another number that is not in use");
  }
  if (closed()) return SessionEndedError();
  if (tensors_.contains(handle)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "tensor ", handle, " exists already; choose another handle, or delete that one first"));
  }
  if (static_cast<int64_t>(tensors_.size()) >= limits_.max_handles_per_session) {
    return principal_->Refuse({.reason = "SESSION_HANDLES_EXCEEDED",
                               .subject = "session",
                               .limit = "max-handles-per-session",
                               .value = limits_.max_handles_per_session,
                               .message = absl::StrCat("the session holds ", tensors_.size(),
                                                       " tensors, its limit; delete some")});
  }
  return absl::OkStatus();
}

absl::Status Session::Insert(TensorRef tensor) {
  MutexLock lock(&mu_);
  TENSORD_RETURN_IF_ERROR(CheckFreeLocked(tensor->handle()));
  TENSORD_RETURN_IF_ERROR(TakeHandle(*tensor));
  const Handle handle = tensor->handle();
  tensors_.emplace(handle, std::move(tensor));
  UpdateNumHandles();
  return absl::OkStatus();
}

void Session::Remove(const TensorRef& tensor) {
  MutexLock lock(&mu_);
  auto it = tensors_.find(tensor->handle());
  if (it == tensors_.end() || it->second != tensor) return;
  tensors_.erase(it);
  UpdateNumHandles();
  ReturnHandle(*tensor);
}

absl::Status Session::ChargeError(const TensorRef& tensor, absl::Status error) {
  MutexLock lock(&mu_);
  const auto it = tensors_.find(tensor->handle());
  if (it == tensors_.end() || it->second != tensor) return error;
  const int64_t bytes = HostBytesOf(error);
  const RefusalCountingPause pause;  // the request has failed already
  if (!handle_charge_.Add(bytes).ok()) return NoRoomForError();
  tensor->AddHostBytes(bytes);
  return error;
}

absl::Status Session::Delete(absl::Span<const Handle> handles) {
  std::vector<TensorRef> removed;  // destroyed after the lock: freeing memory may be slow
  {
    MutexLock lock(&mu_);
    for (Handle handle : handles) {
      if (!tensors_.contains(handle)) return NoSuchTensor(handle);
    }
    removed = TakeOut(handles);
  }
  AbandonUploads(removed);
  return absl::OkStatus();
}

void Session::Drop(absl::Span<const Handle> handles) {
  std::vector<TensorRef> removed;
  {
    MutexLock lock(&mu_);
    removed = TakeOut(handles);
  }
  AbandonUploads(removed);
}

void Session::Abandon(TensorRef tensor) {
  // The caller, the op, and the function that waits for the tensor on the call's behalf have a
  // reference each.
  constexpr int64_t kOwnReferences = 3;
  MutexLock lock(&mu_);
  const auto it = tensors_.find(tensor->handle());
  const bool listed = it != tensors_.end() && it->second == tensor;
  // The three references exist until the tensor is done. So if it isn't done after the count, the
  // count included them. While the lock is held, no other thread can get a reference from the
  // table.
  const bool unused = tensor.use_count() == kOwnReferences + (listed ? 1 : 0);
  if (!unused || tensor->done()) return;
  if (listed) TakeOut(tensor->handle());
  tensor->RequestStop();
}

std::vector<TensorRef> Session::TakeOut(absl::Span<const Handle> handles) {
  std::vector<TensorRef> removed;
  for (Handle handle : handles) {
    TensorRef tensor = TakeOut(handle);
    if (tensor != nullptr) removed.push_back(std::move(tensor));
  }
  return removed;
}

TensorRef Session::TakeOut(Handle handle) {
  const auto it = tensors_.find(handle);
  if (it == tensors_.end()) return nullptr;
  TensorRef tensor = std::move(it->second);
  tensors_.erase(it);
  // Shrinks a table that has become nearly empty. Otherwise it would keep its memory.
  if (tensors_.capacity() > kMinShrinkCapacity && tensors_.size() < tensors_.capacity() / 16) {
    tensors_.rehash(0);
  }
  ReturnHandle(*tensor);
  UpdateNumHandles();
  return tensor;
}

std::vector<TensorRef> Session::List(Handle after, size_t limit) const {
  std::vector<TensorRef> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, tensor] : tensors_) {
      if (handle > after) all.push_back(tensor);
    }
  }
  const size_t count = std::min(limit, all.size());
  std::partial_sort(all.begin(), all.begin() + count, all.end(), HasLowerHandle);
  all.resize(count);
  return all;
}

std::vector<TensorRef> Session::Pending() const {
  std::vector<TensorRef> pending;
  std::shared_ptr<SessionMembers> members;
  {
    MutexLock lock(&mu_);
    pending = PendingOf(tensors_);
    members = members_;
  }
  if (members == nullptr) return pending;
  members->AppendUnfinished(&pending);
  std::sort(pending.begin(), pending.end(), [](const TensorRef& a, const TensorRef& b) {
    return std::make_pair(a->handle(), a.get()) < std::make_pair(b->handle(), b.get());
  });
  pending.erase(std::unique(pending.begin(), pending.end()), pending.end());
  return pending;
}

void Session::FailWaiting(const DeviceSlot& slot, const absl::Status& error) {
  for (const TensorRef& tensor : Pending()) {
    if (tensor->slot() == &slot && tensor->PostedTo(nullptr)) tensor->Finish(error);
  }
}

absl::Status Session::FailAtEnd(const TensorRef& tensor) {
  MutexLock lock(&mu_);
  if (closed()) return SessionEndedError();
  if (fail_at_end_.size() >= sweep_at_) {
    const auto over = [](const std::weak_ptr<Tensor>& weak) {
      const TensorRef held = weak.lock();
      return held == nullptr || held->done();
    };
    fail_at_end_.erase(std::remove_if(fail_at_end_.begin(), fail_at_end_.end(), over),
                       fail_at_end_.end());
    sweep_at_ = std::max<size_t>(64, 2 * fail_at_end_.size());
  }
  fail_at_end_.push_back(tensor);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StreamState>> Session::Stream(
    absl::FunctionRef<std::shared_ptr<StreamState>()> make) {
  MutexLock lock(&mu_);
  if (closed()) return SessionEndedError();
  if (stream_ == nullptr) stream_ = make();
  return stream_;
}

absl::StatusOr<std::shared_ptr<SessionMembers>> Session::Members(
    absl::FunctionRef<std::shared_ptr<SessionMembers>()> make) {
  MutexLock lock(&mu_);
  if (closed()) return SessionEndedError();
  if (members_ == nullptr) members_ = make();
  return members_;
}

void Session::SetStreamAttached(bool attached) {
  MutexLock lock(&mu_);
  stream_attached_ = attached;
}

void Session::NotifyReceived(uint64_t number) {
  std::vector<Waiting> due;
  {
    MutexLock lock(&mu_);
    commands_received_ = number;
    last_active_ = clock_();
    auto later = std::partition(waiting_.begin(), waiting_.end(), [number](const Waiting& waiting) {
      return waiting.number > number;
    });
    std::move(later, waiting_.end(), std::back_inserter(due));
    waiting_.erase(later, waiting_.end());
  }
  for (Waiting& waiting : due) waiting.callback(absl::OkStatus());
}

absl::Status Session::WhenReceived(uint64_t number, std::function<void(absl::Status)> callback) {
  {
    MutexLock lock(&mu_);
    if (number > commands_received_) {
      if (closed()) return SessionEndedError();
      if (static_cast<int64_t>(waiting_.size()) >= limits_.max_waiting_calls_per_session) {
        return absl::ResourceExhaustedError(
            absl::StrCat(limits_.max_waiting_calls_per_session,
                         " calls of this session wait for commands of its stream, the limit; send "
                         "these commands first"));
      }
      waiting_.push_back({number, std::move(callback)});
      return absl::OkStatus();
    }
  }
  callback(absl::OkStatus());
  return absl::OkStatus();
}

int64_t Session::Close(const absl::Status& error) {
  absl::flat_hash_map<Handle, TensorRef> tensors;
  std::vector<Waiting> waiting;
  std::shared_ptr<StreamState> stream;
  std::vector<std::weak_ptr<Tensor>> fail;
  std::shared_ptr<SessionMembers> members;
  {
    MutexLock lock(&mu_);
    closed_.store(true, std::memory_order_release);
    ReturnAllHandles();
    tensors.swap(tensors_);
    UpdateNumHandles();
    waiting.swap(waiting_);
    stream.swap(stream_);
    fail.swap(fail_at_end_);
    members.swap(members_);
  }
  if (members != nullptr) members->End();
  if (stream != nullptr) stream->OnSessionClosed(error);
  const absl::Status ended = SessionEndedError();
  for (Waiting& w : waiting) w.callback(ended);
  // No upload can complete a promise any more. So the promises fail, and so do the ops that wait
  // for them.
  for (const TensorRef& tensor : PendingOf(tensors)) {
    if (tensor->PostedTo(nullptr)) tensor->Finish(ended);
  }
  for (const std::weak_ptr<Tensor>& weak : fail) {
    const TensorRef tensor = weak.lock();
    if (tensor != nullptr && tensor->upload() != nullptr) tensor->upload()->Fail(ended);
  }
  return static_cast<int64_t>(tensors.size());
}

void Session::BeginUse() {
  MutexLock lock(&mu_);
  ++uses_;
}

void Session::EndUse() {
  MutexLock lock(&mu_);
  --uses_;
  last_used_ = last_active_ = clock_();
}

Session::Activity Session::activity() const {
  const auto now = clock_();
  MutexLock lock(&mu_);
  Activity activity = {
      .age = now - opened_at_, .in_use = uses_ > 0, .idle = {}, .ops_in_flight = ops_.count()};
  if (!activity.in_use) activity.idle = std::max(activity.idle, now - last_used_);
  return activity;
}

bool Session::HasCalls() const {
  MutexLock lock(&mu_);
  return uses_ > (stream_attached_ ? 1 : 0);
}

std::chrono::steady_clock::duration Session::TimeSinceActivity(
    std::chrono::steady_clock::time_point now) {
  MutexLock lock(&mu_);
  const bool active = uses_ > (stream_attached_ ? 1 : 0) || ops_.count() > 0 || waits_.count() > 0;
  if (active) last_active_ = now;
  return now - last_active_;
}

bool Session::Expired(std::chrono::steady_clock::time_point now) const {
  MutexLock lock(&mu_);
  return uses_ == 0 && now - last_used_ > lease_;
}

}  // namespace tensord::server
