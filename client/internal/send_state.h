// Which thread may send on a stream, and what may still be sent.
#pragma once

#include <atomic>

namespace tensord::internal {

// The right to send on the stream's call, which one thread at a time has. Threads take it without a
// lock; it belongs to the stream, not to one call, so that it also guards the call's replacement.
//
//             TryAcquire, TryAcquireForHalfClose
//     free ────────────────────────────────────────▶ held (a write is under way)
//      ▲ │ ◀──────────────── Release ──────────────── ▲
//        │ TryAcquireToFinish, once reads are closed  │ Reopen: the next call may attach
//        └──────────▶ held until the call is replaced ┘
//
// Created held: nothing may be sent before the first call is attached. Because the call may be
// replaced while a thread waits for the right, a thread that has acquired it looks at the other
// states anew. Thread-safe.
class SendState {
 public:
  bool held() const { return held_.load(std::memory_order_seq_cst); }
  // Acquires the right for a message of commands. Returns false if it is held, or sends are closed.
  // Afterwards sends_closed() must be asked again.
  bool TryAcquire() {
    return !sends_closed_.load(std::memory_order_acquire) && !held_.exchange(true);
  }
  void Release() { held_.store(false); }

  // Acquires the right to half-close the call. Returns true once in the stream's life, and only
  // while the server still sends.
  bool TryAcquireForHalfClose() {
    if (half_closed_.load() || reads_closed_.load() || held_.exchange(true)) return false;
    if (!half_closed_.exchange(true)) return true;
    Release();
    return false;
  }

  // If the server sends no more, acquires the right to finish the call, once no write is under way.
  // It is released when the next call is attached.
  bool TryAcquireToFinish() {
    while (reads_closed_.load() && !held_.exchange(true)) {
      if (reads_closed_.load()) return true;
      Release();  // reads_closed_ was of the call before this one
    }
    return false;
  }

  // No more commands may be sent on this call.
  void CloseSends() { sends_closed_.store(true, std::memory_order_release); }
  bool sends_closed() const { return sends_closed_.load(); }
  // The server sends no more on this call.
  void CloseReads() {
    CloseSends();
    reads_closed_.store(true);
  }
  bool reads_closed() const { return reads_closed_.load(); }

  // The server is shutting down and accepts no more commands: no call follows this one.
  void SetDraining() {
    CloseSends();
    draining_.store(true);
  }
  bool draining() const { return draining_.load(); }

  // Another call follows. For the thread that acquired the right to finish, which it keeps.
  void Reopen() {
    sends_closed_.store(false);
    reads_closed_.store(false);
  }

 private:
  std::atomic<bool> held_{true};
  std::atomic<bool> sends_closed_{false};
  std::atomic<bool> reads_closed_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> half_closed_{false};
};

}  // namespace tensord::internal
