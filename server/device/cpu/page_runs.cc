#include "tensord/server/device/cpu/page_runs.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>

#include "tensord/server/device/slabs.h"

namespace tensord::server::cpu {

#if defined(TENSORD_ADDRESS_SANITIZER)

PageRuns::~PageRuns() = default;
void* PageRuns::Allocate(int64_t bytes) { return std::aligned_alloc(kPageBytes, bytes); }
void PageRuns::Free(void* block, int64_t /*bytes*/) { std::free(block); }

#else

PageRuns::~PageRuns() {
  for (const auto& [run, bytes] : bytes_of_) munmap(run, bytes);
}

void PageRuns::AddLocked(char* run, int64_t bytes) {
  bytes_of_.emplace(run, bytes);
  by_size_.emplace(bytes, run);
}

void PageRuns::RemoveLocked(char* run, int64_t bytes) {
  bytes_of_.erase(run);
  by_size_.erase({bytes, run});
}

void* PageRuns::Allocate(int64_t bytes) {
  MutexLock lock(&mu_);
  auto fit = by_size_.lower_bound({bytes, nullptr});
  if (fit == by_size_.end()) {
    for (const int64_t area : {kAreaBytes, bytes}) {
      void* const mapped =
          mmap(nullptr, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) continue;
      madvise(mapped, area, MADV_NOHUGEPAGE);  // a huge page would also use memory of free pages
      AddLocked(static_cast<char*>(mapped), area);
      break;
    }
    fit = by_size_.lower_bound({bytes, nullptr});
    if (fit == by_size_.end()) return nullptr;
  }
  const auto [run_bytes, run] = *fit;
  RemoveLocked(run, run_bytes);
  if (run_bytes > bytes) AddLocked(run + bytes, run_bytes - bytes);
  return run;
}

void PageRuns::Free(void* block, int64_t bytes) {
  madvise(block, bytes, MADV_DONTNEED);
  char* run = static_cast<char*>(block);
  MutexLock lock(&mu_);
  const auto next = bytes_of_.lower_bound(run);
  if (next != bytes_of_.end() && next->first == run + bytes) {
    const int64_t next_bytes = next->second;
    RemoveLocked(run + bytes, next_bytes);
    bytes += next_bytes;
  }
  const auto after = bytes_of_.lower_bound(run);
  if (after != bytes_of_.begin()) {
    const auto [previous, previous_bytes] = *std::prev(after);
    if (previous + previous_bytes == run) {
      RemoveLocked(previous, previous_bytes);
      run = previous;
      bytes += previous_bytes;
    }
  }
  if (bytes >= 2 * kAreaBytes && munmap(run, bytes) == 0) return;
  AddLocked(run, bytes);
}

#endif

}  // namespace tensord::server::cpu
