// Device code that is compiled while the program runs.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tensord::server::cuda {

// `source` as binary code for GPUs of that compute capability. It may include
// kernels/storage.cuh and what that includes, by their paths from the project's root, and nothing
// else. Products and sums aren't contracted. UNIMPLEMENTED where the compiler can't be
// loaded or doesn't know the GPU; INTERNAL with the compiler's words where it refuses.
// Thread-safe, needs no GPU, and takes a good part of a second.
absl::StatusOr<std::string> CompileForGpu(const std::string& source, int major, int minor);

}  // namespace tensord::server::cuda
