// A session: a client's handles and tensors, which are freed together when it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"
#include "tensord/server/session/in_flight.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// The state that a session keeps for its stream. rpc/ defines the class. The state may hold a
// reference to its session: Close() ends this cycle, because it drops the state.
class StreamState {
 public:
  virtual ~StreamState() = default;
  // Session::Close() calls this function. If `error` isn't OK, the stream must end with `error`.
  // Must not block.
  virtual void OnSessionClosed(const absl::Status& error) = 0;
};

// The session's members of groups. collective/ defines the class.
class SessionMembers {
 public:
  virtual ~SessionMembers() = default;
  // Appends the results of the operations that haven't ended, also if their handles were deleted.
  virtual void AppendUnfinished(std::vector<TensorRef>* results) = 0;
  // Session::Close() calls this function. Must not block.
  virtual void End() = 0;
};

// Returns FAILED_PRECONDITION: the error of work whose session has been closed.
absl::Status SessionEndedError();

// The clock of leases. It never goes back. Thread-safe.
using LeaseClock = std::chrono::steady_clock::time_point (*)();

// Thread-safe.
class Session {
 public:
  // The bytes that are charged in advance, when the session opens, for its stream's answers.
  static constexpr int64_t kPrepaidAnswerBytes = 32 << 10;

  // Returns the host memory that is charged for a session when it opens: an estimate for this
  // object, its lanes, its accounts and the state of its stream. It includes some memory for
  // callbacks that wait, and for answers, so that a caller at its limit can still read and delete
  // its tensors.
  static constexpr int64_t HostBytesFor(size_t devices) {
    return 4096 + 1536 * static_cast<int64_t>(devices) + kPrepaidWaitBytes + kPrepaidAnswerBytes;
  }

  // `principal` owns the session. `host` is the charge for HostBytesFor(). Its budget is also
  // charged for handles and ops. `slots` outlive the session.
  Session(PrincipalRef principal, Charge host, std::string id, uint64_t number,
          std::string client_name, std::chrono::seconds lease, const Limits& limits,
          absl::Span<DeviceSlot* const> slots, LeaseClock clock = &std::chrono::steady_clock::now);
  ~Session();

  // Returns the owner. No other principal can use the session.
  const PrincipalRef& principal() const { return principal_; }
  // Returns the budget that the session's host memory is charged to.
  const BudgetRef& host_budget() const { return host_.budget(); }
  const std::string& id() const { return id_; }
  uint64_t number() const { return number_; }
  const std::string& client_name() const { return client_name_; }
  std::chrono::seconds lease() const { return lease_; }

  // The state of the session at one time.
  struct Activity {
    std::chrono::steady_clock::duration age;   // since it was opened
    bool in_use;                               // a call or a stream uses it
    std::chrono::steady_clock::duration idle;  // since its last use ended; 0 if in_use
    int64_t ops_in_flight;
  };
  Activity activity() const;

  // Returns the session's lane on a device.
  const std::shared_ptr<Executor::Lane>& lane(const DeviceSlot& slot) const {
    return lanes_[slot.index];
  }

  // Returns the account that the session's memory on a device is charged to.
  MemoryAccount& account(const DeviceSlot& slot) const { return *accounts_[slot.index]; }

  // Counts an upload of `bytes` until the result is destroyed. Past max_upload_bytes_per_principal,
  // returns RESOURCE_EXHAUSTED.
  absl::StatusOr<Charge> BeginUpload(int64_t bytes);

  // If the session has no such handle, returns NOT_FOUND, or the error of KeepRefusal(). The
  // message does not depend on whether another session has it. For handle 0, returns
  // INVALID_ARGUMENT.
  absl::StatusOr<TensorRef> Find(Handle handle) const;
  // Remembers that Insert() refused `handle` with `error`, because of a limit. Adds the handle to
  // one range of refused handles. For each handle of the range that the session lacks, Find()
  // returns the latest error. So this takes the same memory for any number of handles.
  void KeepRefusal(Handle handle, const absl::Status& error);

  // Returns the error that Insert() would return for this handle, except for
  // max_handles_per_principal and the limits of host_budget().
  absl::Status CheckFree(Handle handle) const;

  // Adds a tensor under its handle. If the handle is 0, returns INVALID_ARGUMENT; if it is in use,
  // ALREADY_EXISTS. Past max_handles_per_session, max_handles_per_principal or a limit of
  // host_budget(), returns RESOURCE_EXHAUSTED. If the session is closed, returns
  // FAILED_PRECONDITION.
  absl::Status Insert(TensorRef tensor);

  // Charges the host memory of `error`, with which `tensor` is about to fail, and returns `error`.
  // If the tensor has no handle in this session, charges nothing. If a limit of host_budget() is
  // exceeded, charges nothing and returns a RESOURCE_EXHAUSTED that replaces `error`.
  absl::Status ChargeError(const TensorRef& tensor, absl::Status error);

  // Removes the tensor's handle, if the handle still belongs to this tensor.
  void Remove(const TensorRef& tensor);

  // Removes all handles or none. If a handle does not exist, returns NOT_FOUND, which names the
  // first such handle; if that handle is 0, INVALID_ARGUMENT. If a removed tensor is promised for
  // an upload and no upload is active, the tensor fails.
  absl::Status Delete(absl::Span<const Handle> handles);

  // Removes handles as Delete() does, but ignores those that do not exist.
  void Drop(absl::Span<const Handle> handles);

  // Gives up the tensor that a call has made, after the call has ended early. If the tensor isn't
  // done, and no other call or command uses it, removes its handle and stops the op that makes it.
  // Otherwise does nothing. On behalf of the call, only the caller of this function, the op and one
  // waiter may hold references to the tensor.
  void Abandon(TensorRef tensor);

  // Locks the handles for many operations. Acquire an executor's InlineLock before the Table, never
  // while a Table exists. Hold both for microseconds.
  class Table;

  // Returns up to `limit` tensors with handles above `after`, in order of handle.
  std::vector<TensorRef> List(Handle after, size_t limit) const;

  // Returns how many handles there are. While another thread adds or removes some, the value may be
  // an earlier one. Never blocks.
  int64_t num_handles() const { return num_handles_.load(std::memory_order_relaxed); }

  // Returns the tensors that are not done yet, in order of handle. Includes the results of group
  // operations whose handles were deleted: the other members need these operations.
  std::vector<TensorRef> Pending() const;

  // Fails the pending tensors of a device that were not posted to its executor: they wait for an
  // upload, another device or another lane. Ops that were posted fail on the executor.
  void FailWaiting(const DeviceSlot& slot, const absl::Status& error);

  // Returns the counter of ops that were accepted and have not ended. Their limit is
  // max_ops_in_flight.
  InFlight& ops() { return ops_; }
  // Returns the counter of callbacks that wait for tensors, for calls and for the stream.
  InFlight& waits() { return waits_; }

  // Makes a promised tensor fail when the session ends, even if its handle is removed by then.
  // Holds the tensor only weakly. If the session is closed, returns FAILED_PRECONDITION.
  absl::Status FailAtEnd(const TensorRef& tensor);

  // Returns the state that the connections of the session's stream share, one after another. The
  // first call creates it with `make`. If the session is closed, returns FAILED_PRECONDITION.
  absl::StatusOr<std::shared_ptr<StreamState>> Stream(
      absl::FunctionRef<std::shared_ptr<StreamState>()> make);
  // Returns the session's members of groups. Otherwise works as Stream() does.
  absl::StatusOr<std::shared_ptr<SessionMembers>> Members(
      absl::FunctionRef<std::shared_ptr<SessionMembers>()> make);
  // Records whether a stream uses the session. HasCalls() doesn't count that stream.
  void SetStreamAttached(bool attached);

  // Records that the stream's first `number` commands have taken effect, and runs the callbacks of
  // WhenReceived() that waited for them. Commands are numbered from 1. Call it after each batch.
  void NotifyReceived(uint64_t number);

  // Runs `callback` when command `number` has taken effect: at once if it already has, otherwise on
  // the thread that calls NotifyReceived(). If the session ends while the callback waits, the
  // callback gets FAILED_PRECONDITION. If the callback would have to wait, but the session is
  // closed, returns FAILED_PRECONDITION; past max_waiting_calls_per_session, RESOURCE_EXHAUSTED. If
  // this returns an error, the callback never runs.
  absl::Status WhenReceived(uint64_t number, std::function<void(absl::Status)> callback);

  // Ends the session: removes all handles and fails the tensors that wait for uploads. Ops that
  // have not begun never run, and the running op stops (stop_token.h). Returns the number of
  // handles. If `error` isn't OK, the session's stream ends with it.
  int64_t Close(const absl::Status& error = absl::OkStatus());
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Returns the flag that closed() reads.
  const std::atomic<bool>& closed_flag() const { return closed_; }

  // Returns the time limit of one op or program. 0 means no limit.
  std::chrono::seconds max_op_time() const { return std::chrono::seconds(limits_.max_op_seconds); }

  // The lease does not run between BeginUse() and EndUse(). Uses may overlap.
  void BeginUse();
  void EndUse();
  // Returns whether a call other than the session's stream uses the session.
  bool HasCalls() const;
  bool Expired(std::chrono::steady_clock::time_point now) const;
  // Returns the time since the last activity: a message of the stream, the end of a use, or a call
  // of this function that found a call, an op or a wait in progress. So call it regularly. Unlike
  // Activity::idle, the time passes while a stream is attached.
  std::chrono::steady_clock::duration TimeSinceActivity(std::chrono::steady_clock::time_point now);

 private:
  using Tensors = absl::flat_hash_map<Handle, TensorRef>;

  static constexpr int64_t kPrepaidWaitBytes = 32 << 10;

  TensorRef TakeOut(Handle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<TensorRef> TakeOut(absl::Span<const Handle> handles)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckFreeLocked(Handle handle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateNumHandles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    num_handles_.store(static_cast<int64_t>(tensors_.size()), std::memory_order_relaxed);
  }

  // TakeHandle() counts the handle of `tensor` against the principal's limit, and charges its host
  // memory. At a limit, it changes nothing and returns RESOURCE_EXHAUSTED. ReturnHandle() undoes
  // this for one handle, ReturnAllHandles() for all of tensors_.
  absl::Status TakeHandle(const Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReturnHandle(const Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReturnAllHandles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Waiting {
    uint64_t number;
    std::function<void(absl::Status)> callback;
  };

  const Charge host_;
  const PrincipalRef principal_;
  const std::string id_;
  const uint64_t number_;
  const std::string client_name_;
  const std::chrono::seconds lease_;
  const Limits limits_;
  const bool counts_handles_;  // the principal's budget counts the handles
  const LeaseClock clock_;
  const std::chrono::steady_clock::time_point opened_at_;
  std::vector<std::shared_ptr<Executor::Lane>> lanes_;
  std::vector<MemoryAccount::Ref> accounts_;  // by device, like lanes_
  std::atomic<bool> closed_{false};
  InFlight ops_;
  InFlight waits_;
  std::atomic<int64_t> num_handles_{0};  // tensors_.size()

  mutable Mutex mu_;
  Tensors tensors_ ABSL_GUARDED_BY(mu_);
  // The handles from `first` to `last` that `tensors_` lacks have this error.
  struct Refusal {
    Handle first = 0, last = 0;
    absl::Status error;
  };
  Refusal refusal_ ABSL_GUARDED_BY(mu_);
  Charge handle_charge_ ABSL_GUARDED_BY(mu_);  // for `tensors_`
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t commands_received_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<StreamState> stream_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<Tensor>> fail_at_end_ ABSL_GUARDED_BY(mu_);
  // At this size, done and destroyed tensors are removed from fail_at_end_.
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
  std::shared_ptr<SessionMembers> members_ ABSL_GUARDED_BY(mu_);
  bool stream_attached_ ABSL_GUARDED_BY(mu_) = false;
  int uses_ ABSL_GUARDED_BY(mu_) = 0;
  std::chrono::steady_clock::time_point last_used_ ABSL_GUARDED_BY(mu_);
  // TimeSinceActivity() counts from this time.
  std::chrono::steady_clock::time_point last_active_ ABSL_GUARDED_BY(mu_);
};

using SessionRef = std::shared_ptr<Session>;

class ABSL_SCOPED_LOCKABLE Session::Table {
 public:
  explicit Table(Session* session) ABSL_EXCLUSIVE_LOCK_FUNCTION(session->mu_)
      : session_(session), lock_(&session->mu_) {}
  ~Table() ABSL_UNLOCK_FUNCTION() {
    AssertHeld();
    session_->UpdateNumHandles();
  }

  // Returns nullptr if there is no such handle. The pointer is valid until the next Insert() or
  // TakeOut().
  const TensorRef* Find(Handle handle) const {
    AssertHeld();
    const auto it = session_->tensors_.find(handle);
    return it == session_->tensors_.end() ? nullptr : &it->second;
  }

  // Adds the tensor under its handle. If Session::Insert() would refuse it, returns false.
  bool Insert(TensorRef tensor);

  // DetachTensor() drops the table's reference to the tensor of a handle, which the caller holds.
  // AttachTensor() restores it; until then, only it and DetachTensor() may be called. Both do
  // nothing if there is no such handle.
  void DetachTensor(Handle handle) { AttachTensor(handle, nullptr); }
  void AttachTensor(Handle handle, const TensorRef& tensor) {
    AssertHeld();
    const auto it = session_->tensors_.find(handle);
    if (it != session_->tensors_.end()) it->second = tensor;
  }

  // Removes the handle and returns its tensor; null if there is none. After the Table is destroyed,
  // the caller must call AbandonUploads() and drop the tensor.
  TensorRef TakeOut(Handle handle);

 private:
  // Tells the compiler's analysis that lock_ holds the session's mutex.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK(session_->mu_) {}

  Session* const session_;
  const MutexLock lock_;
};

// A use of a session: the lease does not run while it exists.
class SessionUse {
 public:
  SessionUse() = default;
  explicit SessionUse(SessionRef session) : session_(std::move(session)) { session_->BeginUse(); }
  ~SessionUse() {
    if (session_) session_->EndUse();
  }
  SessionUse(SessionUse&& other) noexcept = default;
  SessionUse& operator=(SessionUse&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }

  Session& operator*() const { return *session_; }
  Session* operator->() const { return session_.get(); }
  const SessionRef& ref() const { return session_; }

 private:
  SessionRef session_;
};

}  // namespace tensord::server
