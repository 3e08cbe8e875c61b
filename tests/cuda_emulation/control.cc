#include "tensord/tests/cuda_emulation/control.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "tensord/common/util/mutex.h"

namespace tensord::cuda_emulation {
namespace {

int64_t FromEnvironment(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= 0) return value;
  std::fprintf(stderr, "cuda emulation: %s=%s is not a non-negative integer\n", name, text);
  std::abort();
}

int IntFromEnvironment(const char* name, int fallback) {
  return static_cast<int>(std::min<int64_t>(FromEnvironment(name, fallback), 1 << 30));
}

Options ReadOptions() {
  Options options;
  options.devices =
      std::min(IntFromEnvironment("TENSORD_EMULATED_DEVICES", options.devices), kMaxDevices);
  options.memory_bytes = FromEnvironment("TENSORD_EMULATED_MEMORY_MIB", options.memory_bytes >> 20)
                         << 20;
  options.multiprocessors =
      IntFromEnvironment("TENSORD_EMULATED_MULTIPROCESSORS", options.multiprocessors);
  options.thread_order = IntFromEnvironment("TENSORD_EMULATED_THREAD_ORDER", 0);
  options.max_delay_us = IntFromEnvironment("TENSORD_EMULATED_MAX_DELAY_US", 0);
  options.catch_faults = FromEnvironment("TENSORD_EMULATED_CATCH_FAULTS", 1) != 0;
  options.refuse_epilogues = FromEnvironment("TENSORD_EMULATED_REFUSE_EPILOGUES", 0) != 0;
  options.refuse_batches = FromEnvironment("TENSORD_EMULATED_REFUSE_BATCHES", 0) != 0;
  options.refuse_convolutions = FromEnvironment("TENSORD_EMULATED_REFUSE_CONVOLUTIONS", 0) != 0;
  options.peers = FromEnvironment("TENSORD_EMULATED_PEERS", 1) != 0;
  return options;
}

struct Reports {
  Mutex mu;
  int64_t count ABSL_GUARDED_BY(mu) = 0;
  int64_t expected ABSL_GUARDED_BY(mu) = 0;
  std::string last ABSL_GUARDED_BY(mu);
};

Reports& TheReports() {
  static auto* reports = new Reports;  // never destroyed
  return *reports;
}

std::atomic<int64_t> runtime_calls = 0;

// Runs at exit. If there are unexpected reports, replaces the program's exit code. A program that
// ends by a signal or _exit() doesn't call this function.
void ExitWithCodeOfMisuse() {
  if (UnexpectedReports() == 0) return;
  std::fprintf(stderr, "cuda emulation: the exit code is %d because of the reports above\n",
               kExitCodeOfMisuse);
  std::fflush(nullptr);
  _exit(kExitCodeOfMisuse);
}

}  // namespace

Options& TheOptions() {
  static auto* options = new Options(ReadOptions());  // never destroyed
  return *options;
}

int64_t RuntimeCalls() { return runtime_calls; }

void CountRuntimeCall() { ++runtime_calls; }

void Report(absl::string_view text) {
  Reports& reports = TheReports();
  static const int registered = std::atexit(&ExitWithCodeOfMisuse);
  static_cast<void>(registered);
  MutexLock lock(&reports.mu);
  ++reports.count;
  reports.last = std::string(text);
  std::fprintf(stderr, "cuda emulation: %s\n", reports.last.c_str());
}

void ExpectReports() {
  Reports& reports = TheReports();
  MutexLock lock(&reports.mu);
  reports.expected = reports.count;
}

int64_t UnexpectedReports() {
  Reports& reports = TheReports();
  MutexLock lock(&reports.mu);
  return reports.count - reports.expected;
}

int64_t ReportCount() {
  Reports& reports = TheReports();
  MutexLock lock(&reports.mu);
  return reports.count;
}

std::string LastReport() {
  Reports& reports = TheReports();
  MutexLock lock(&reports.mu);
  return reports.last;
}

}  // namespace tensord::cuda_emulation
