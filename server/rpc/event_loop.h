// The order in which the thread of a completion queue handles the events of its callers.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

namespace tensord::server {

// The tag of an operation on a queue.
class QueueEvent {
 public:
  enum class Kind {
    kOfOwner,  // part of an owner's work
    kNewCall,  // a call has arrived, and further ones may be waiting in gRPC
    kBarrier,  // comes after all events that the queue has returned before
  };

  // Runs on the queue's thread when the operation has ended. `ok` is the value that
  // CompletionQueue::Next() has set.
  virtual void OnCompleted(bool ok) = 0;
  virtual Kind kind() const { return Kind::kOfOwner; }
  // Returns the address of the principal whose work the event is part of. If there is none, returns
  // null. Call it on the queue's thread, after the operation has ended.
  virtual const void* owner() const { return nullptr; }

 protected:
  ~QueueEvent() = default;
};

// Handles the events of a queue on one thread. It handles one event of each owner in rotation. The
// events of one owner keep their order. So an owner waits for at most one event of each other
// owner, for any number of streams.
//
// gRPC reads from connections only if the thread asks for an event and none is waiting. An owner
// whose messages are handled in many slices could therefore stop gRPC from reading other
// connections. So every 60 us the loop takes the waiting events, at most 256, so that gRPC reads.
// While new calls are waiting, it doesn't: gRPC would read more calls, and nothing bounds their
// memory.
//
// Not thread-safe.
class EventLoop {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class TakeResult { kEvent, kNothing, kEnd };

  // Where events come from.
  class Source {
   public:
    // Takes the next event. If none is waiting and `wait` is true, blocks until there is one. If
    // `wait` is false, lets gRPC read from one connection, and returns kNothing if that gives no
    // event. After the last event, returns kEnd.
    virtual TakeResult Take(bool wait, QueueEvent** event, bool* ok) = 0;
    virtual Time Now() = 0;

   protected:
    ~Source() = default;
  };

  // The longest time for which the loop handles events before it lets gRPC read. An event that
  // takes longer delays the read.
  static constexpr std::chrono::microseconds kMaxTimeWithoutInput{60};

  // `source` outlives this object.
  explicit EventLoop(Source* source) : source_(source) {}

  // Handles events until the source ends.
  void Run();

 private:
  // The bounds of one Drain(). gRPC reads from one connection each time it is asked.
  static constexpr int kConnectionsAtOnce = 16;
  static constexpr size_t kMaxReady = 256;
  // If Take() takes this long, it has waited, and gRPC has read.
  static constexpr std::chrono::microseconds kMinWait{50};

  struct Ready {
    QueueEvent* event;
    bool ok;
  };
  // The events of one owner: at least one.
  struct Lane {
    const void* owner;
    std::deque<Ready> events;
  };

  // Takes events until there are none, or one that must be handled first.
  void Drain();
  void Add(Ready ready);
  // Handles the next event in turn.
  void RunNext();

  Source* const source_;
  std::deque<Lane> lanes_;  // the next one in turn first
  size_t ready_ = 0;        // the events in lanes_
  size_t new_calls_ = 0;    // those that are new calls
  Ready barrier_ = {};      // handled when lanes_ is empty; none if `event` is null
  Time last_drain_;         // when Drain() ended, or Take() last waited
};

}  // namespace tensord::server
