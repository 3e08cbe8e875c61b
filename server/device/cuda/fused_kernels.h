// Fused elementwise kernels of one GPU, compiled when they are first asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"

namespace tensord::server::cuda {

// Thread-safe. Destroyed with the GPU's work done.
class FusedKernels {
 public:
  FusedKernels(int major, int minor) : major_(major), minor_(minor) {}
  ~FusedKernels();
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

  // The kernel `name` of `source`, by which it is known from its first compilation on; what failed
  // then fails again at once. UNIMPLEMENTED where it can't be compiled or loaded here, or where
  // there are too many already.
  absl::StatusOr<cudaKernel_t> Find(const std::string& source, const char* name);

 private:
  // What was compiled stays for good: programs ask for the same few again and again.
  static constexpr size_t kMaxKernels = 512;

  struct Entry {
    absl::StatusOr<cudaKernel_t> kernel;
    cudaLibrary_t code = nullptr;
  };

  Entry Make(const std::string& source, const char* name) const;

  const int major_, minor_;
  Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);  // by source
};

}  // namespace tensord::server::cuda
