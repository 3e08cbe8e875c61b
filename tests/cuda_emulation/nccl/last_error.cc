#include "tensord/tests/cuda_emulation/nccl/last_error.h"

#include <string>

#include "tensord/common/util/mutex.h"

namespace tensord::nccl_emulation {
namespace {

struct Last {
  Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);
};

Last& TheLast() {
  static auto* last = new Last;  // never destroyed
  return *last;
}

}  // namespace

void SetLastError(absl::string_view text) {
  Last& last = TheLast();
  MutexLock lock(&last.mu);
  last.text = std::string(text);
}

const char* LastError() {
  thread_local std::string copy;
  Last& last = TheLast();
  MutexLock lock(&last.mu);
  copy = last.text;
  return copy.c_str();
}

}  // namespace tensord::nccl_emulation
