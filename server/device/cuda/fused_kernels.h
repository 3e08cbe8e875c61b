// Fused elementwise kernels of one GPU, compiled when they are first asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"

namespace tensord::server::cuda {

// Code that is loaded on the GPU.
struct FusedCode {
  absl::StatusOr<cudaKernel_t> kernel;
  cudaLibrary_t library = nullptr;
};
// Holders may launch the kernel.
using FusedCodeRef = std::shared_ptr<const FusedCode>;

// Thread-safe. Destroyed with the GPU's work done.
class FusedKernels {
 public:
  // `stream` is where the kernels are launched.
  FusedKernels(int major, int minor, cudaStream_t stream)
      : major_(major), minor_(minor), stream_(stream) {}
  ~FusedKernels();
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

  // Returns the kernel `name` of `source`. Compiles it at the first call, which may take seconds;
  // what fails then fails again at once. If there are too many kernels, unloads the one that was
  // used least recently, which may block until the stream is idle. Returns UNIMPLEMENTED if the
  // kernel can't be compiled or loaded here, or if all other kernels are held.
  absl::StatusOr<FusedCodeRef> Find(const std::string& source, const char* name);

 private:
  static constexpr size_t kMaxKernels = 1024;

  struct Entry {
    std::string source;
    FusedCodeRef code;
  };
  using Entries = std::list<Entry>;

  FusedCode Make(const std::string& source, const char* name) const;
  // Makes room for another kernel. Returns false if all are held.
  bool Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int major_, minor_;
  const cudaStream_t stream_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // the last used first
  absl::flat_hash_map<absl::string_view, Entries::iterator> by_source_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cuda
