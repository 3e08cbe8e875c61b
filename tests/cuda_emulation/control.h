// Options and reports of the CUDA emulation, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tensord::cuda_emulation {

inline constexpr int kMaxDevices = 16;

// The emulated machine. Each value comes from the environment variable named beside it, which is
// read once. A test may change values while no emulated call is active.
struct Options {
  int devices = 2;                          // TENSORD_EMULATED_DEVICES, at most kMaxDevices
  int64_t memory_bytes = int64_t{4} << 30;  // TENSORD_EMULATED_MEMORY_MIB, of each device
  int multiprocessors = 4;                  // TENSORD_EMULATED_MULTIPROCESSORS
  // TENSORD_EMULATED_THREAD_ORDER: the order in which the threads of a block run up to their first
  // barrier. With 0 it is ascending, with 1 descending, and with n > 1 a permutation chosen by n.
  int thread_order = 0;
  // TENSORD_EMULATED_MAX_DELAY_US: a stream sleeps up to this long before each task. The delays are
  // pseudo-random. The emulated NCCL sleeps exactly this long before it enqueues an operation, and
  // before an aborted operation ends.
  int max_delay_us = 0;
  // TENSORD_EMULATED_CATCH_FAULTS: if it is 1, a SIGSEGV, SIGBUS or SIGILL in a kernel becomes an
  // error of CUDA. With 0 the signal ends the process, which ThreadSanitizer needs.
  bool catch_faults = true;
  bool refuse_epilogues =
      false;  // TENSORD_EMULATED_REFUSE_EPILOGUES: neither cuBLASLt nor cuDNN has them
  bool refuse_batches = false;       // TENSORD_EMULATED_REFUSE_BATCHES: cuBLASLt has no batches
  bool refuse_convolutions = false;  // TENSORD_EMULATED_REFUSE_CONVOLUTIONS: cuDNN has no engines
  bool peers = true;  // TENSORD_EMULATED_PEERS: whether devices can access each other's memory
};
// Returns the options of this process. They are never destroyed.
Options& TheOptions();

// Reports a misuse of CUDA: prints `text` on standard error and counts the report. The caller also
// returns the error that CUDA documents. Unless ExpectReports() is called later, a report in a
// GoogleTest test makes the test fail (report_listener.cc), and a report in another program makes
// the program exit with kExitCodeOfMisuse. Thread-safe.
void Report(absl::string_view text);
inline constexpr int kExitCodeOfMisuse = 86;
// Marks all reports so far as expected. Thread-safe.
void ExpectReports();
// Returns how many reports there have been since the last ExpectReports(). Thread-safe.
int64_t UnexpectedReports();
// Returns how many reports there have been in this process. Thread-safe.
int64_t ReportCount();
// Returns the text of the last report; empty if there was none. Thread-safe.
std::string LastReport();

// Returns how many calls of the CUDA runtime this process has made. Only calls that need a context,
// cudaGetDevice() and cudaGetLastError() are counted. Thread-safe.
int64_t RuntimeCalls();
void CountRuntimeCall();

// Returns whether `device` has a primary context. A call that needs one creates it. Thread-safe.
bool HasContext(int device);
// Returns how many bytes of device memory are allocated on `device`. Thread-safe.
int64_t UsedBytes(int device);
// Returns how many bytes of the device's memory are allocated, or freed but still held by pools.
// Thread-safe.
int64_t ReservedBytes(int device);

// Lists the objects and memory, on all devices, that the process has not destroyed or freed, for
// example "2 streams, 48 bytes of device memory". Returns "" if there are none. Thread-safe.
std::string LiveObjects();

}  // namespace tensord::cuda_emulation
