// The process's two background threads. They do work for which no thread of the program waits.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <deque>
#include <functional>

#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// One object per process, made at the first use and never destroyed. It belongs to no session, so
// its threads may release the last reference to a session. Thread-safe.
class Background {
 public:
  static Background& Get();

  // The queue for gRPC calls and alarms. Each tag must be an Event*. When the operation has ended,
  // the event thread calls Event::OnEvent, which must not block.
  grpc::CompletionQueue* queue() { return &queue_; }
  class Event {
   public:
    virtual void OnEvent() = 0;

   protected:
    ~Event() = default;
  };

  // Runs `work`, which may block, on the work thread, in the order of the calls.
  void Post(std::function<void()> work);

 private:
  Background();
  void RunEvents();
  void RunWork();

  grpc::CompletionQueue queue_;
  Mutex mu_;
  CondVar posted_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
