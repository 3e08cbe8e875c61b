// The events that drive a command stream, and the completion queue that they come from.
#pragma once

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace tensord::internal {

// The events of a stream. Their values are the tags of gRPC's completion queue.
enum class StreamEvent : intptr_t {
  kCallStarted = 1,    // the call has started or failed; the first read shows which
  kAttachWritten,      // the message that attaches the call to the session
  kMessageWritten,     // a message of commands
  kMessageRead,        // a message of answers; not ok: the server sends no more
  kHalfClosed,         // the half-close has been sent
  kCallFinished,       // the call's status is known
  kRetryDue,           // the pause before the next call is over; not ok: it was cancelled
  kReconnectTimedOut,  // the time for reconnecting is over
};

inline void* ToTag(StreamEvent event) { return reinterpret_cast<void*>(event); }

// A completion queue of StreamEvents. One thread at a time calls Next…; calls and alarms may be
// started on queue() from any thread.
class StreamEvents {
 public:
  using Clock = std::chrono::steady_clock;
  struct Occurrence {
    StreamEvent event;
    bool ok;
  };

  // SpinForNext polls for an event for the time `spin` before the thread sleeps.
  explicit StreamEvents(std::chrono::nanoseconds spin) : spin_(spin) {}

  grpc::CompletionQueue* queue() { return &queue_; }

  // Each returns the next event. Next and SpinForNext block until there is one and return nullopt
  // after ShutDown. NextUntil also returns nullopt when `deadline` has passed. SpinForNext also
  // returns nullopt if the calling thread has an interruption (interruption.h): after its interval.
  std::optional<Occurrence> Next();
  std::optional<Occurrence> SpinForNext();
  std::optional<Occurrence> NextUntil(Clock::time_point deadline);

  // Drops the events that are still to come, and blocks until all calls and alarms have ended.
  void ShutDown();

 private:
  std::optional<Occurrence> NextWithin(std::chrono::nanoseconds timeout);

  const std::chrono::nanoseconds spin_;
  grpc::CompletionQueue queue_;
};

}  // namespace tensord::internal
