// The library's own thread for what goes on while nobody waits for it.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <deque>
#include <functional>

#include "tensord/common/mutex.h"

namespace tensord::internal {

// One for the process, made when it is first needed, and there till its end: sessions come and go,
// and the last reference to one may be let go of here, as this is no session's own thread.
class Background {
 public:
  static Background& Get();

  // What calls are made with: a tag is an Event, which is told when the call has ended, on the
  // thread.
  grpc::CompletionQueue* queue() { return &queue_; }
  class Event {
   public:
    virtual void Happened() = 0;

   protected:
    ~Event() = default;
  };

  // Runs `work`, which may block, on a second thread, one after another.
  void Post(std::function<void()> work);

 private:
  Background();
  void Serve();
  void Work();

  grpc::CompletionQueue queue_;
  Mutex mu_;
  CondVar posted_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
