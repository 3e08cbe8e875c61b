// What the calls of Write, Read and SharedMemory have in common: they wait now and then, and may be
// cancelled or refused meanwhile.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "tensord/server/rpc/bulk_service.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/cancellable_wait.h"

namespace tensord::server {

class BulkCall : public QueuedCall {
 protected:
  BulkCall(BulkContext* bulk, CallQueue* queue) : QueuedCall(queue), bulk_(bulk) {}

  // Ends the call, unless it has ended.
  virtual void Fail(const absl::Status& status) = 0;

  static absl::Status ClientGone() { return absl::CancelledError("the client has gone"); }

  // Runs `start` with a copy of the wait, for a call back that ends it by EndWait, from any thread;
  // kWoken comes then. CANCELLED where the client has gone.
  template <typename Start>
  absl::Status Wait(const Start& start) {
    if (!wait_.Begin()) return ClientGone();
    busy_ = true;
    Begin(kWoken);
    start(wait_);
    return absl::OkStatus();
  }

  // Has `work`, which may wait for the device, run by a worker; kWoken comes then.
  template <typename Work>
  void RunByWorker(Work work) {
    busy_ = true;
    Begin(kWoken);
    bulk_->service->workers->Post([this, work = std::move(work)]() mutable {
      outcome_ = work();
      Wake();
    });
  }

  // At kWoken: whether to go on. Otherwise the call has ended.
  bool GoesOn() {
    busy_ = false;
    if (finished_) return false;
    if (!refused_.ok()) outcome_ = refused_;
    if (!outcome_.ok()) Fail(outcome_);
    return outcome_.ok();
  }

  // At kDone: true where the client has cancelled what the call waits for, which is then to end.
  bool CancelledWait() {
    if (!context().IsCancelled() || !wait_.Cancel()) return false;
    Abandon(kWoken);
    busy_ = false;
    return true;
  }

  // Ends the call as soon as it can: not while a worker is at it.
  void Refuse(const absl::Status& status) final {
    if (finished_) return;
    if (busy_ && !wait_.Cancel()) {
      refused_ = status;  // kWoken is on its way
      return;
    }
    if (busy_) Abandon(kWoken);
    busy_ = false;
    Fail(status);
  }

  BulkContext* const bulk_;
  CancellableWait wait_;  // else a broken stream ends the call
  absl::Status outcome_;  // of what the call was busy with
  bool busy_ = false;     // kWoken is to come
  bool finished_ = false;

 private:
  absl::Status refused_;  // while the call was busy
};

}  // namespace tensord::server
