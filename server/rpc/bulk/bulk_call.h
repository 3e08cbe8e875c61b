// The base of the handlers of Write, Read, Fetch and SharedMemory.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/server/rpc/bulk/bulk_service.h"
#include "tensord/server/rpc/server_call.h"

namespace tensord::server {

// A call that may wait for a tensor or for a worker. Its functions run on the thread of the call's
// queue.
class BulkCall : public ServerCall {
 public:
  BulkCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)), bulk_(bulk) {}

 protected:
  // Ends the call with an error and gives up its transfer. If the call has finished, does nothing.
  virtual void Fail(const absl::Status& status) = 0;
  // Ends the call, because the client has cancelled it while it waited.
  virtual void OnWaitCancelled() { Fail(ClientDisconnected()); }

  // Begins a wait: calls `start` with a callback that ends the wait. After the callback has run,
  // `then` runs with the callback's arguments on the queue's thread, unless the call has finished.
  // The callback may run on any thread, also within `start`, and at most once. It may outlive the
  // call.
  template <typename Start, typename Then>
  void Wait(Start start, Then then) {
    if (done()) return Fail(ClientDisconnected());  // no OnDone will end this wait
    waiting_ = true;
    start([this, weak = weak_from_this(), then = std::move(then)](const auto&... result) {
      Post(weak.lock(), [this, then, result...] {
        waiting_ = false;
        if (!finished()) then(result...);
      });
    });
  }

  // Makes a worker run `work`, which returns a status and may block. If the status is OK, runs
  // `then` on the queue's thread afterwards. Otherwise ends the call with the error.
  template <typename Work, typename Then>
  void RunByWorker(Work work, Then then) {
    working_ = true;
    bulk_->service->workers->Post(
        principal().get(), [this, call = shared_from_this(), work = std::move(work),
                            then = std::move(then)]() mutable {
          const absl::Status status = work();
          Post(std::move(call), [this, then, status] {
            working_ = false;
            if (finished()) return;
            const absl::Status& outcome = failure_.ok() ? status : failure_;
            if (!outcome.ok()) return Fail(outcome);
            then();
          });
        });
  }

  // Returns whether the call waits or a worker works for it.
  bool busy() const { return waiting_ || working_; }
  // Returns whether a Wait() is under way. Waits for a worker or for the client don't count.
  bool waiting() const { return waiting_; }

  // Ends the call with an error: at once, or when the worker that works for it has finished.
  void FailWhenIdle(const absl::Status& status) {
    if (finished()) return;
    if (working_) {
      failure_ = status;
    } else {
      Fail(status);
    }
  }

  // Ends a call that waits. Any other call reads, writes, or waits for its worker. Its next read or
  // write fails and ends the call.
  void OnDone() override {
    if (cancelled() && waiting_ && !finished()) OnWaitCancelled();
  }

  BulkContext* const bulk_;

 private:
  void OnRevoked(const absl::Status& status) final { FailWhenIdle(status); }

  bool waiting_ = false;
  bool working_ = false;
  absl::Status failure_;  // the error that FailWhenIdle() has deferred
};

}  // namespace tensord::server
