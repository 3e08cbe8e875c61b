// Fused elementwise kernels of one GPU, compiled at their first use.
#pragma once

#include <cuda_runtime_api.h>

#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server::cuda {

// A kernel and the library that contains it, loaded on the GPU.
struct FusedCode {
  absl::StatusOr<cudaKernel_t> kernel;
  cudaLibrary_t cuda_library = nullptr;
};
// FusedKernels doesn't evict a kernel while another object holds a reference to it.
using FusedCodeRef = std::shared_ptr<const FusedCode>;

// A cache of compiled kernels. Thread-safe. When it is destroyed, no kernel may be queued or
// running.
class FusedKernels {
 public:
  // `major` and `minor` are the GPU's compute capability. All kernels must be launched on `stream`.
  FusedKernels(int major, int minor, cudaStream_t stream)
      : major_(major), minor_(minor), stream_(stream) {}
  ~FusedKernels();
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

  // Returns the kernel `name` of `source`. The first call for a source compiles the kernel, which
  // may take seconds. If the cache is full, unloads the least recently used kernel without
  // references, which may block until the stream is idle. If the kernel can't be compiled or
  // loaded, or the cache is full and all kernels have references, returns UNIMPLEMENTED. If the
  // source can't be compiled, or the driver rejects the code, later calls return the same error at
  // once.
  absl::StatusOr<FusedCodeRef> Find(const std::string& source, const char* name);

 private:
  static constexpr size_t kMaxKernels = 1024;

  struct Entry {
    std::string source;
    FusedCodeRef code;
  };
  using Entries = std::list<Entry>;

  // Compiles and loads a kernel. If the source can't be compiled, the driver rejects the code, or
  // this build can't load code, returns code without a kernel, and the caller keeps it. If loading
  // fails for another reason, such as a lack of memory, returns UNIMPLEMENTED, and a later call may
  // succeed.
  absl::StatusOr<FusedCode> Make(const std::string& source, const char* name) const;
  // Unloads one kernel. Returns false if all kernels have references.
  bool Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the entry the most recently used, and returns its code, or the error of its compilation.
  absl::StatusOr<FusedCodeRef> Use(Entries::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int major_, minor_;
  const cudaStream_t stream_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // the most recently used first
  absl::flat_hash_map<absl::string_view, Entries::iterator> by_source_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cuda
