#include "tensord/tests/cuda_emulation/failure.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"

namespace tensord::cuda_emulation {
namespace {

bool IsOneOf(absl::string_view call, std::initializer_list<absl::string_view> calls) {
  return std::find(calls.begin(), calls.end(), call) != calls.end();
}

bool IsOfKind(absl::string_view call, absl::string_view kind) {
  if (kind == "allocation") {
    return IsOneOf(call, {"cudaMalloc", "cudaMallocFromPoolAsync", "cudaHostAlloc"});
  }
  if (kind == "launch") {
    return IsOneOf(call, {"a launch", "cublasLtMatmul", "cudnnBackendExecute", "cudaGraphLaunch"});
  }
  if (kind == "copy") {
    return IsOneOf(call, {"cudaMemcpyAsync", "cudaMemcpyPeerAsync", "cudaMemsetAsync"});
  }
  if (kind == "any") return !IsOneOf(call, {"cudaEventQuery", "cudaStreamQuery"});
  return call == kind;
}

Failure FailureOfEnvironment() {
  const char* text = std::getenv("TENSORD_EMULATED_FAIL");
  if (text == nullptr || *text == '\0') return {};
  Failure failure;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() >= 3 && parts.size() <= 4 && absl::SimpleAtoi(parts[1], &failure.at) &&
      absl::SimpleAtoi(parts[2], &failure.error) &&
      (parts.size() == 3 || absl::SimpleAtoi(parts[3], &failure.times))) {
    failure.call = parts[0];
    return failure;
  }
  std::fprintf(
      stderr,
      "cuda emulation: TENSORD_EMULATED_FAIL=%s doesn't have the form CALL:AT:ERROR[:TIMES]\n",
      text);
  std::abort();
}

struct Injection {
  Mutex mu;
  Failure failure ABSL_GUARDED_BY(mu) = FailureOfEnvironment();
  int64_t calls ABSL_GUARDED_BY(mu) = 0;
  int64_t failed ABSL_GUARDED_BY(mu) = 0;
  std::atomic<bool> active = false;  // calls are counted only while this is true

  Injection() {
    MutexLock lock(&mu);
    active = failure.at > 0;
  }
};

Injection& TheInjection() {
  static auto* injection = new Injection;  // never destroyed
  return *injection;
}

}  // namespace

void InjectFailure(Failure failure) {
  Injection& injection = TheInjection();
  MutexLock lock(&injection.mu);
  injection.failure = std::move(failure);
  injection.calls = 0;
  injection.failed = 0;
  injection.active = injection.failure.at > 0;
}

int64_t InjectedFailures() {
  Injection& injection = TheInjection();
  MutexLock lock(&injection.mu);
  return injection.failed;
}

int CountCall(const char* call) {
  Injection& injection = TheInjection();
  if (!injection.active) return 0;
  MutexLock lock(&injection.mu);
  const Failure failure = injection.failure;
  if (!IsOfKind(call, failure.call)) return 0;
  ++injection.calls;
  const bool fails = injection.calls >= failure.at && injection.calls - failure.at < failure.times;
  if (!fails) return 0;
  ++injection.failed;
  return failure.error;
}

}  // namespace tensord::cuda_emulation
