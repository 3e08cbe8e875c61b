// The statistics of a connection, and the trace.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "tensord/client/client.h"

namespace tensord::internal {

// Why a call waited; ClientStats has a field for each.
enum class WaitKind { kRead, kUpload, kTensor, kSynchronize, kInfoCall, kFullQueue };
inline constexpr int kNumWaitKinds = 6;

struct Counters {
  std::atomic<int64_t> commands{0};
  std::atomic<int64_t> messages{0};
  std::atomic<int64_t> reconnects{0};
  std::atomic<int64_t> bytes_uploaded{0};
  std::atomic<int64_t> bytes_downloaded{0};
  std::atomic<int64_t> bytes_shared{0};  // the part of both that went through shared memory
  std::atomic<int64_t> copies_relayed{0};
  std::atomic<int64_t> copies_route_skipped{0};

  struct Waits {
    std::atomic<int64_t> count{0};
    std::atomic<int64_t> nanoseconds{0};
  };
  std::array<Waits, kNumWaitKinds> waits;  // by WaitKind
};

// Prints a line to standard error if the environment has TENSORD_TRACE=1.
void Trace(absl::string_view what);

ClientStats StatsFromCounters(const Counters& counters);

// The subject of a wait, for the trace.
struct WaitSubject {
  absl::string_view what;            // "read", "ListDevices"; must outlive the wait
  uint64_t handle = 0;               // 0: no tensor
  const TensorSpec* spec = nullptr;  // of that tensor, if it is known; must outlive the wait
};

// Counts the time from its construction to its destruction as one wait for the server, and traces
// it.
class WaitTimer {
 public:
  WaitTimer(Counters* counters, WaitKind kind, const WaitSubject& subject)
      : counters_(counters),
        kind_(kind),
        subject_(subject),
        start_(std::chrono::steady_clock::now()) {}
  ~WaitTimer();
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  Counters* const counters_;
  const WaitKind kind_;
  const WaitSubject subject_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace tensord::internal
