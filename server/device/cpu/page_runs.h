// Blocks of whole pages that give their memory back to the system when they are freed.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server::cpu {

// Allocates blocks from large areas of address space. A run is a range of adjacent free pages.
// Allocate() takes pages from the smallest run that is large enough. Free() returns the block's
// memory to the system, and joins its pages with adjacent runs. (malloc would keep the memory of
// freed blocks. A mapping for each block would exceed the system's limit of mappings.) Under
// AddressSanitizer each block is an allocation of its own. Thread-safe.
class PageRuns {
 public:
  static constexpr int64_t kPageBytes = 4096;

  PageRuns() = default;
  // All blocks must have been freed.
  ~PageRuns();
  PageRuns(const PageRuns&) = delete;
  PageRuns& operator=(const PageRuns&) = delete;

  // Returns `bytes` bytes, a multiple of kPageBytes. If the system has too little address space,
  // returns null.
  void* Allocate(int64_t bytes);
  // `bytes` is the argument of Allocate().
  void Free(void* block, int64_t bytes);

 private:
  // The size of an area. Free() unmaps a run of at least twice this size.
  static constexpr int64_t kAreaBytes = 32 << 20;

  void AddLocked(char* run, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(char* run, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  // The free runs, in both orders.
  absl::btree_map<char*, int64_t> bytes_of_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<std::pair<int64_t, char*>> by_size_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cpu
