// Ends a thread's wait for the server early, for example at Ctrl-C.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tensord/common/util/mutex.h"

namespace grpc {
class ClientContext;
class CompletionQueue;
}  // namespace grpc

namespace tensord::internal {

// While a thread has a Scope, Interrupt() ends the thread's waits for the server with CANCELLED. So
// a caller can end a call of the library that it runs in a Scope. The server still runs the ops
// that the thread has sent before. Uploads under way are dropped.
//
// An interruption ends waits for the command stream (reads of at most 1 MiB, Synchronize, room in
// the command queue), for calls of a session (Tensor::Wait, larger reads, uploads), for connecting
// and closing, for a group, for a copy's report, and for reconnection.
// If the server has stopped reading, an upload over the network ends when
// ConnectOptions::keepalive_timeout is over: gRPC uses the caller's memory until then.
class Interruption {
 public:
  // How often a wait for the command stream, in Tensor::Wait, or for a group calls `check`.
  static constexpr auto kCheckInterval = std::chrono::milliseconds(20);

  // `check` returns whether to interrupt. The thread of the Scope calls it, without a lock held,
  // and only in these waits. If `check` is null, only Interrupt() interrupts.
  explicit Interruption(std::function<bool()> check = nullptr) : check_(std::move(check)) {}
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Ends the waits under way, and each later wait. Thread-safe.
  void Interrupt();
  // Returns whether Interrupt() was called. Thread-safe.
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

  // Makes `interruption` the interruption of the calling thread. The destructor restores the one
  // before. If `check` is null, several threads may have a Scope of it.
  class Scope {
   public:
    explicit Scope(Interruption* interruption) : outer_(std::exchange(current, interruption)) {}
    ~Scope() { current = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interruption* const outer_;
  };
  // Returns the interruption of the calling thread, or null.
  static Interruption* OfThisThread() { return current; }
  // Returns whether the calling thread has an interruption that was interrupted.
  static bool Interrupted() { return current != nullptr && current->interrupted(); }

  // Calls `check`. Returns interrupted().
  bool Check();

  // A gRPC call of the calling thread, which Interrupt() cancels while this object exists.
  class CallScope {
   public:
    explicit CallScope(grpc::ClientContext* context);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    Interruption* const interruption_;
    grpc::ClientContext* const context_;
  };

 private:
  static inline thread_local Interruption* current = nullptr;

  const std::function<bool()> check_;
  std::atomic<bool> interrupted_{false};
  Mutex mu_;
  std::vector<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

// Waits on `changed` like CondVar::Wait. If the calling thread has an interruption, returns after
// at most Interruption::kCheckInterval. `mu` must be held; it isn't held while `check` runs.
void WaitOrCheck(CondVar* changed, Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

// Waits for the next event of `queue`, and returns its tag. If the calling thread has an
// interruption, checks it meanwhile. That cancels the calls that have a CallScope, which then end.
void* NextOrCheck(grpc::CompletionQueue* queue);

// Sleeps. If the calling thread is interrupted, returns earlier.
void SleepUnlessInterrupted(absl::Duration duration);

// Returns the error of a wait that was interrupted.
absl::Status InterruptedError();

// Blocks until `ready` returns true, and calls it repeatedly. If the calling thread is interrupted
// meanwhile, returns CANCELLED.
absl::Status PollUntil(absl::FunctionRef<bool()> ready);

}  // namespace tensord::internal
