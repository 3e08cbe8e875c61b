// One accepted TCP connection: how much gRPC may read from it, and how many of its calls failed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/limited_socket.h"

namespace tensord::server {

// Returns the error of a message that is larger than `max_message_bytes`.
absl::Status MessageTooLarge(int64_t max_message_bytes);

// Counts events. Each second, the count falls by `per_second`, but not below 0. Not thread-safe.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;
  void Add(double per_second) {
    const Clock::time_point now = Clock::now();
    events_ = EventsAt(now, per_second) + 1;
    counted_at_ = now;
  }
  void Remove() { events_ = std::max(events_ - 1, 0.0); }
  // Returns whether the count is above `max`. Reads the clock only if it was after the last event.
  bool Exceeds(double max, double per_second) const {
    return events_ > max && EventsAt(Clock::now(), per_second) > max;
  }

 private:
  double EventsAt(Clock::time_point now, double per_second) const {
    const double seconds = std::chrono::duration<double>(now - counted_at_).count();
    return std::max(events_ - seconds * per_second, 0.0);
  }

  double events_ = 0;             // as of counted_at_
  Clock::time_point counted_at_;  // of the last event
};

// Bounds the bytes that gRPC holds of a connection: those that it has read, but not yet passed to a
// handler. The object estimates them as received - credit:
//
//   received   what gRPC has read (LimitedSocket)
//   credit     what gRPC no longer holds: messages that handlers have received, their framing, the
//              headers of calls, control frames, and what calls leave behind when they end
//   limit      credit + window: what gRPC may read
//
// Before the authenticator has admitted a call of the connection (unadmitted), the window is
// constant (8 MiB larger after a call has ended early), and the bytes of all such connections
// together are limited by a pool. After that (admitted), each message sets the window to 64 times
// its size, but at least to kMinWindow and at most to 32 MiB. If the connection is stalled although
// handlers have handled everything that has arrived, the window grows in two cases. If a handler
// waits for a message, the rest of the message is missing. If no call is open, the rest of calls
// that ended early is missing. The window grows up to kMinWindow, plus one message for each open
// call, plus 64 MiB after a call has ended early. A call ends early if it ends before its request
// is complete; gRPC drops the remaining bytes. If the largest window remains full, one message is
// larger than a message may be: the newest call that waits for a message ends with
// RESOURCE_EXHAUSTED. The bytes of all connections of a principal together are limited by the
// principal's pool. The pool also counts messages that handlers hold, because they can't use them
// yet. If the pool remains full, and no message can be completed or used, the newest call that
// holds one ends, or else the newest call that waits for a message. If the connection has no open
// call and its window remains full, the server closes the connection.
//
// "Remains" means that handlers have received nothing for three seconds. A shorter time isn't
// sufficient, even if all queues are empty: on a busy machine, gRPC's own threads may not have
// passed on complete messages yet.
//
// A limit delays bytes, but no byte is lost: the peer's TCP connection waits. No decision depends
// on how fast bytes arrive.
//
// Thread-safe.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // The window of an unadmitted connection. It suffices for a TLS handshake with a client's
  // certificates and for the headers of a first call (8 KiB at most).
  static constexpr int64_t kUnadmittedWindow = 32 << 10;
  // The smallest window of an admitted connection. A call that is cancelled at once takes 30 bytes
  // on the wire and 3.4 kB of gRPC's memory, so a larger window would let gRPC hold many such calls
  // before handlers see them. If the principal's pool is full, the connection still has this much.
  static constexpr int64_t kMinWindow = 128 << 10;

  // The maximum of open calls of a connection. A client that knows the server's limit on concurrent
  // calls (1024) stays far below, also if the server is slow to notice that calls have ended. A
  // call takes 13 kB of memory.
  static constexpr size_t kMaxOpenCalls = 4096;

  // kAtWork: the handler is at work and doesn't read. kReading: it waits for a message, of which
  // gRPC may hold a part. kBlocked: it holds a message that it can't process yet, and doesn't read.
  // kComplete: it has received all messages.
  enum class CallState { kAtWork, kReading, kBlocked, kComplete };
  // An open call of the connection. Its owner adds and removes it.
  struct Call {
    // Ends the call with an error. Called at most once. Must not block.
    std::function<void(const absl::Status&)> end;
    bool admitted = false;
    std::atomic<CallState> state = CallState::kAtWork;
    bool answered = false;  // as a refused call; guarded by Connection::mu_
    // Of messages that the handler holds: see HoldMessage(). Guarded by Connection::mu_.
    int64_t held_bytes = 0;
  };

  // `host` and `address` are the peer's, such as "10.0.0.1" and "10.0.0.1:5000".
  // `max_message_bytes` is the size of the largest message. When a handler begins to read a
  // message, this object adds its id to `stalled`, because ResolveStall() may then have an effect.
  // It adds 0 when the principal's pool has room again.
  Connection(uint64_t id, std::string host, std::string address, int64_t max_message_bytes,
             std::unique_ptr<LimitedSocket> socket, StalledSockets* stalled)
      : id_(id),
        host_(std::move(host)),
        address_(std::move(address)),
        max_message_bytes_(max_message_bytes),
        accepted_at_(Clock::now()),
        socket_(std::move(socket)),
        stalled_sockets_(stalled) {}

  uint64_t id() const { return id_; }
  const std::string& host() const { return host_; }
  const std::string& address() const { return address_; }
  Clock::time_point accepted_at() const { return accepted_at_; }
  bool admitted() const;
  // Returns whether the connection has kMaxOpenCalls.
  bool has_max_calls() const;
  // Returns whether the connection has ended, or is unadmitted and the client has closed its end.
  bool ended() const;
  LimitedSocket::Reader reader() const { return socket_->reader(); }
  // Returns how many bytes gRPC has read.
  int64_t received_bytes() const { return socket_->received_bytes(); }
  // Returns how many bytes the pool counts for this connection.
  int64_t pool_bytes() const { return socket_->pool_bytes(); }

  // Events of calls. If AddRefused() or CountCancelled() returns false, a token bucket is used up,
  // which doesn't happen to clients that work as intended. The caller must then close the
  // connection.
  //
  // Adds a call that the authenticator has admitted. `headers_bytes` is the size of its headers. If
  // it is the connection's first one, the function returns true, the connection leaves the pool of
  // unadmitted connections for `pool`, and it keeps `charges`, which count it.
  struct Charges {
    Charge slot;    // PrincipalLimit::kConnections
    Charge memory;  // PrincipalLimit::kHostBytes
  };
  bool AddAdmitted(Call* call, int64_t headers_bytes, const ReceivePool& pool, Charges charges);
  // Adds a refused call. `at_limit` means that the caller was authenticated and has reached a
  // limit. Such a call doesn't count in the token bucket: a client that works as intended may make
  // many.
  bool AddRefused(Call* call, bool at_limit);
  // Reports that a refused call is served, because its request is public. The call then doesn't
  // count as refused. If there are too many such calls, the server doesn't read from the connection
  // until their token bucket has been refilled.
  void ServedAsPublic();
  // Reports that gRPC has the answer to a refused call. The answer is unsent until Remove(). If
  // there are too many unsent ones, the server doesn't read from the connection until some have
  // been sent.
  void RefusedCallAnswered(Call* call);
  // Reports that the client has cancelled a call. Don't report a call that has a deadline and was
  // open for kMaxCountedTime: it has probably expired. If there are too many reported calls, the
  // server doesn't read from the connection until their token bucket has been refilled. No byte is
  // lost. The result is false only for calls without a deadline: a call that has a deadline may
  // have waited in a buffer until it expired.
  static constexpr std::chrono::milliseconds kMaxCountedTime{100};
  bool CountCancelled(bool has_deadline);
  // Reports that handlers have received `messages` messages of `bytes` bytes in all, or have sent
  // messages that the peer acknowledges with control frames of `bytes` bytes.
  void AddCredit(int64_t bytes, int64_t messages);
  // Reports that the handler of an open call holds a message of `bytes` bytes that it hasn't
  // processed yet. The message counts in the pool, but no longer in the window. If `bytes` is
  // negative, the handler no longer holds the message.
  void HoldMessage(Call* call, int64_t bytes);
  // Sets the state of an open call.
  void SetState(Call* call, CallState state);
  // Removes a call that gRPC has finished.
  void Remove(Call* call);

  // Begins a round: the caller waits until handlers have handled all earlier events, and then calls
  // ResolveStall(). If a round is under way, returns false.
  bool BeginRound();
  // Ends a round. If the connection is stalled, a handler waits for a message, and handlers have
  // made no progress in the round, lets gRPC read more, up to the largest window. Returns whether
  // the caller must begin another round.
  bool ResolveStall();
  bool stalled() const { return socket_->stalled(); }
  // Lets gRPC read again, if there is room by now.
  void Resume();
  // kWindowFull: the window is full, but there is no open call, so it will remain full. kEnded:
  // ended() returned true.
  enum class Inspection { kOpen, kWindowFull, kEnded };
  // Adds credit for bytes that belong to no call, such as pings. Ends a call if the pool or the
  // largest window remains full and no message can be completed. If the call ends because of the
  // pool, adds the pool's budget to `relieved`. If `relieved` contains it already, ends no call for
  // that reason: the pool may have room now. Call it every kInspectInterval. The caller must close
  // the connection if the result isn't kOpen.
  static constexpr std::chrono::milliseconds kInspectInterval{500};
  Inspection Inspect(std::set<BudgetRef>* relieved);

  void RemoveLimit() { socket_->RemoveLimit(); }
  void Reset() { socket_->Reset(); }

 private:
  int64_t HeldBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether the server must not read from the connection now, because of many cancelled or
  // public calls, or many unsent answers.
  bool ThrottledLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether a handler waits for a message of the connection.
  bool AnyReadingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether a handler is busy with a message, or a call is ending.
  bool AnyBusyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether the largest window is full.
  bool WindowFullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether gRPC may read no more, and no handler of the connection is at work. If that
  // lasts, no handler will receive anything.
  bool DeadlockedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t MaxWindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the newest call that waits for a message. Returns false if there is none.
  bool EndNewestReaderLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the newest call that holds a message and isn't at work. If there is none, does the same as
  // EndNewestReaderLocked().
  bool EndNewestHolderLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Condition>
  bool EndNewestLocked(const absl::Status& status, const Condition& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t id_;
  const std::string host_;
  const std::string address_;
  const int64_t max_message_bytes_;
  const Clock::time_point accepted_at_;
  const std::unique_ptr<LimitedSocket> socket_;
  StalledSockets* const stalled_sockets_;

  mutable Mutex mu_;
  bool admitted_ ABSL_GUARDED_BY(mu_) = false;
  ReceivePool pool_ ABSL_GUARDED_BY(mu_);  // the principal's; none if unadmitted
  Charges charges_ ABSL_GUARDED_BY(mu_);
  std::vector<Call*> calls_ ABSL_GUARDED_BY(mu_);  // the oldest first
  bool any_call_ended_early_ ABSL_GUARDED_BY(mu_) = false;
  int64_t credit_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t handler_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // the sum of Call::held_bytes
  int64_t window_bytes_ ABSL_GUARDED_BY(mu_) = kUnadmittedWindow;
  // True if the connection is stalled, but no call reads. SetState() then reports it as stalled
  // again.
  std::atomic<bool> waits_for_reader_ = false;
  bool in_round_ ABSL_GUARDED_BY(mu_) = false;
  // True if a handler has received a message, or a call has begun or ended, since the round began.
  std::atomic<bool> progressed_ = false;
  int deadlocked_inspections_ ABSL_GUARDED_BY(mu_) = 0;  // consecutive ones
  int64_t inspected_credit_ ABSL_GUARDED_BY(mu_) = 0;    // at the last inspection
  // How many bytes of calls that ended early may still be credited.
  int64_t forgiven_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int num_unsent_answers_ ABSL_GUARDED_BY(mu_) = 0;  // to refused calls
  TokenBucket refused_ ABSL_GUARDED_BY(mu_);
  TokenBucket public_ ABSL_GUARDED_BY(mu_);
  TokenBucket cancelled_ ABSL_GUARDED_BY(mu_);  // with and without a deadline
  TokenBucket resets_ ABSL_GUARDED_BY(mu_);     // cancelled calls without a deadline
};

using ConnectionRef = std::shared_ptr<Connection>;

}  // namespace tensord::server
