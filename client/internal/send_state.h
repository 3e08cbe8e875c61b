// Decides which thread may send on a stream, and whether sending is still allowed.
#pragma once

#include <atomic>

namespace tensord::internal {

// The right to send on the stream's call. One thread at a time holds it. Threads acquire it without
// a lock. It belongs to the stream, not to one call, so it also guards the replacement of the call.
//
//             TryAcquire, TryAcquireForHalfClose
//     free ────────────────────────────────────────▶ held (a write is under way)
//      ▲ │ ◀──────────────── Release ──────────────── ▲
//        │ TryAcquireToFinish, once reads are closed  │ Reopen: the next call may attach
//        └──────────▶ held until the call is replaced ┘
//
// At first the right is held: nothing may be sent before the first call is attached. While a thread
// tries to acquire the right, another thread may replace the call. So after acquiring the right, a
// thread must check the other states again. Thread-safe.
class SendState {
 public:
  bool held() const { return held_.load(std::memory_order_seq_cst); }
  // Acquires the right for a message of commands. Returns false if it is held, or sends are closed.
  // Afterwards the caller must check sends_closed() again.
  bool TryAcquire() {
    return !sends_closed_.load(std::memory_order_acquire) && !held_.exchange(true);
  }
  void Release() { held_.store(false); }

  // Acquires the right to half-close the call. Returns true only once for the stream, and only
  // while the server still sends.
  bool TryAcquireForHalfClose() {
    if (half_closed_.load() || reads_closed_.load() || held_.exchange(true)) return false;
    if (!half_closed_.exchange(true)) return true;
    Release();
    return false;
  }

  // If the server sends no more and no write is under way, acquires the right to finish the call.
  // The right is released when the next call is attached.
  bool TryAcquireToFinish() {
    while (reads_closed_.load() && !held_.exchange(true)) {
      if (reads_closed_.load()) return true;
      Release();  // reads_closed_ belonged to the previous call
    }
    return false;
  }

  // Records that no more commands may be sent on this call.
  void CloseSends() { sends_closed_.store(true, std::memory_order_release); }
  bool sends_closed() const { return sends_closed_.load(); }
  // Records that the server sends no more on this call.
  void CloseReads() {
    CloseSends();
    reads_closed_.store(true);
  }
  bool reads_closed() const { return reads_closed_.load(); }

  // Records that the server is shutting down and accepts no more commands: no call follows this
  // one.
  void SetDraining() {
    CloseSends();
    draining_.store(true);
  }
  bool draining() const { return draining_.load(); }

  // Records that another call follows. Only the thread that has acquired the right to finish may
  // call it. The thread keeps the right.
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
