#include "tensord/client/internal/counters.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tensord::internal {
namespace {

bool Tracing() {
  static const bool tracing = [] {
    const char* value = std::getenv("TENSORD_TRACE");
    return value != nullptr && absl::string_view(value) == "1";
  }();
  return tracing;
}

// "waited 0.061 ms for read of float32[64], handle 7, 256 bytes"
std::string DescribeWait(const WaitSubject& subject, std::chrono::nanoseconds waited) {
  std::string line = absl::StrFormat("waited %.3f ms for ", 1e-6 * waited.count());
  line.append(subject.what.data(), subject.what.size());
  if (subject.spec != nullptr) absl::StrAppend(&line, " of ", subject.spec->ToString());
  if (subject.handle != 0) absl::StrAppend(&line, ", handle ", subject.handle);
  if (subject.spec != nullptr) absl::StrAppend(&line, ", ", subject.spec->size_bytes(), " bytes");
  return line;
}

}  // namespace

void Trace(absl::string_view what) {
  if (!Tracing()) return;
  const std::string line = absl::StrCat("tensord: ", what, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

ClientStats StatsFromCounters(const Counters& counters) {
  ClientStats stats;
  stats.commands_sent = counters.commands;
  stats.messages_sent = counters.messages;
  stats.reconnects = counters.reconnects;
  stats.bytes_uploaded = counters.bytes_uploaded;
  stats.bytes_downloaded = counters.bytes_downloaded;
  stats.bytes_shared = counters.bytes_shared;
  stats.copies_relayed = counters.copies_relayed;
  stats.copies_route_skipped = counters.copies_route_skipped;
  const auto take = [&](WaitKind kind, WaitStats* field) {
    const Counters::Waits& waits = counters.waits[static_cast<size_t>(kind)];
    field->count = waits.count;
    field->time = absl::Nanoseconds(waits.nanoseconds.load());
    stats.waits += field->count;
    stats.waited += field->time;
  };
  take(WaitKind::kRead, &stats.reads);
  take(WaitKind::kUpload, &stats.uploads);
  take(WaitKind::kTensor, &stats.tensor_waits);
  take(WaitKind::kSynchronize, &stats.synchronizes);
  take(WaitKind::kInfoCall, &stats.info_calls);
  take(WaitKind::kFullQueue, &stats.full_queue_waits);
  return stats;
}

WaitTimer::~WaitTimer() {
  const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start_;
  Counters::Waits& waits = counters_->waits[static_cast<size_t>(kind_)];
  waits.count.fetch_add(1, std::memory_order_relaxed);
  waits.nanoseconds.fetch_add(waited.count(), std::memory_order_relaxed);
  if (Tracing()) Trace(DescribeWait(subject_, waited));
}

}  // namespace tensord::internal
