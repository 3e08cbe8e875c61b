// A session: the room in which handles are unique, and all that is freed together.
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
#include "tensord/common/mutex.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// What a session keeps for its stream; rpc/ knows what that is. May hold its session: Close() lets
// go of it.
class StreamState {
 public:
  virtual ~StreamState() = default;
};

// A session's members of groups; collective/ knows what that is.
class SessionMembers {
 public:
  virtual ~SessionMembers() = default;
  // The session is closed. Must not block.
  virtual void End() = 0;
};

// The time that leases run by: std::chrono::steady_clock::now, or what a test has instead.
using LeaseClock = std::chrono::steady_clock::time_point (*)();

// Thread-safe.
class Session {
 public:
  // `slots` outlive the session.
  Session(PrincipalRef principal, std::string id, uint64_t number, std::string client_name,
          std::chrono::seconds lease, const Limits& limits, absl::Span<DeviceSlot* const> slots,
          LeaseClock clock = &std::chrono::steady_clock::now);
  ~Session();

  // Whose it is: nobody else reaches it.
  const PrincipalRef& principal() const { return principal_; }
  const std::string& id() const { return id_; }
  uint64_t number() const { return number_; }
  const std::string& client_name() const { return client_name_; }
  std::chrono::seconds lease() const { return lease_; }

  // The session's lane on a device.
  const std::shared_ptr<Executor::Lane>& lane(const DeviceSlot& slot) const {
    return lanes_[slot.index];
  }

  // What the session's memory on a device is charged to.
  MemoryAccount& account(const DeviceSlot& slot) const { return *accounts_[slot.index]; }

  // Counts an upload as under way for as long as what it returns is held. RESOURCE_EXHAUSTED past
  // max_upload_bytes_per_principal.
  absl::StatusOr<UsageHold> BeginUpload(int64_t bytes);

  // NOT_FOUND where the session has no such handle, in the same words whether another has it or
  // not.
  absl::StatusOr<TensorRef> Find(Handle handle) const;

  // Whether Insert would take this handle.
  absl::Status CheckFree(Handle handle) const;

  // Takes a tensor in under its handle. INVALID_ARGUMENT for handle 0, ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED past max_handles_per_session and max_handles_per_principal,
  // FAILED_PRECONDITION once the session is closed.
  absl::Status Insert(TensorRef tensor);

  // Lets go of `handle` if it still is this tensor.
  void Remove(const TensorRef& tensor);

  // All or none: NOT_FOUND names the first handle that isn't there. Here and in Drop, a promised
  // tensor fails for all that wait for it, unless an upload is under way that brings it after all.
  absl::Status Delete(absl::Span<const Handle> handles);

  // Lets go of those that are there.
  void Drop(absl::Span<const Handle> handles);

  // The handles, under one lock for many steps. Take an executor's Turn before it, never while it
  // is held; and hold it for microseconds.
  class Table;

  // Up to `limit` tensors with handles above `after`, in order of handle.
  std::vector<TensorRef> List(Handle after, size_t limit) const;

  // Returns the tensors that are not done yet, in order of handle.
  std::vector<TensorRef> Pending() const;

  // Fails what is promised on a device and waits for an upload or for another device: whoever waits
  // for it is told. What its executor has been given fails there.
  void FailWaiting(const DeviceSlot& slot, const absl::Status& error);

  // Counts an op that has been taken in until it has run. RESOURCE_EXHAUSTED past
  // max_ops_in_flight.
  absl::Status BeginOp();
  void EndOp() { ops_in_flight_.fetch_sub(1, std::memory_order_relaxed); }

  // Has a promised tensor fail when the session ends, even where its handle has been let go by
  // then, and only what waits for it holds it. FAILED_PRECONDITION once the session is closed.
  absl::Status FailAtEnd(const TensorRef& tensor);

  // What the session's stream leaves behind for the next one, made by `make` where there is nothing
  // yet. FAILED_PRECONDITION once the session is closed.
  absl::StatusOr<std::shared_ptr<StreamState>> Stream(
      absl::FunctionRef<std::shared_ptr<StreamState>()> make);
  // Likewise its members of groups.
  absl::StatusOr<std::shared_ptr<SessionMembers>> Members(
      absl::FunctionRef<std::shared_ptr<SessionMembers>()> make);
  // Whether a stream uses the session, for HasCalls.
  void SetStreamAttached(bool attached);

  // Commands of the stream are numbered from 1. The first `number` commands have taken effect: runs
  // callers of WhenReceived that waited for them. Called after a batch.
  void NotifyReceived(uint64_t number);

  // Calls back when command `number` has been taken in: at once where it has, otherwise from the
  // thread that takes it in; with FAILED_PRECONDITION when the session ends before.
  // RESOURCE_EXHAUSTED, without a call back, past max_waiting_calls_per_session.
  absl::Status WhenReceived(uint64_t number, std::function<void(absl::Status)> callback);

  // Frees everything: returns the number of handles. Ops that haven't begun won't.
  int64_t Close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // While at least one call or stream uses the session its lease doesn't run.
  void BeginUse();
  void EndUse();
  // Whether a call uses it now, besides its stream.
  bool HasCalls() const;
  bool Expired(std::chrono::steady_clock::time_point now) const;

 private:
  std::vector<TensorRef> TakeOut(absl::Span<const Handle> handles)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckFreeLocked(Handle handle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Handles as the principal's are counted.
  bool TakeHandle();
  void ReturnHandles(size_t count);
  absl::Status TooManyHandles() const;

  struct Waiting {
    uint64_t number;
    std::function<void(absl::Status)> callback;
  };

  const PrincipalRef principal_;
  const std::string id_;
  const uint64_t number_;
  const std::string client_name_;
  const std::chrono::seconds lease_;
  const Limits limits_;
  const LeaseClock clock_;
  std::vector<std::shared_ptr<Executor::Lane>> lanes_;
  std::vector<MemoryAccount::Ref> accounts_;  // by device, as lanes_
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> ops_in_flight_{0};

  mutable Mutex mu_;
  absl::flat_hash_map<Handle, TensorRef> tensors_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t commands_received_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<StreamState> stream_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<Tensor>> fail_at_end_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;  // those that have gone or are done
  std::shared_ptr<SessionMembers> members_ ABSL_GUARDED_BY(mu_);
  bool stream_attached_ ABSL_GUARDED_BY(mu_) = false;
  int uses_ ABSL_GUARDED_BY(mu_) = 0;
  std::chrono::steady_clock::time_point last_used_ ABSL_GUARDED_BY(mu_);
};

using SessionRef = std::shared_ptr<Session>;

class ABSL_SCOPED_LOCKABLE Session::Table {
 public:
  explicit Table(Session* session) ABSL_EXCLUSIVE_LOCK_FUNCTION(session->mu_)
      : session_(session), lock_(&session->mu_) {}
  ~Table() ABSL_UNLOCK_FUNCTION() {}

  // nullptr where there is no such handle. Good until the next Reserve or TakeOut.
  const TensorRef* Find(Handle handle) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = session_->tensors_.find(handle);
    return it == session_->tensors_.end() ? nullptr : &it->second;
  }

  // A place for a tensor to be put into before the lock goes; nullptr where Insert would refuse it.
  TensorRef* Reserve(Handle handle) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Lets go of the handle; null where there is none. Give up the tensor's upload and let go of it
  // after the lock.
  TensorRef TakeOut(Handle handle) ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  Session* const session_;
  const MutexLock lock_;
};

// Keeps a session's lease from running while a call uses it.
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
