// Device code that is compiled while the program runs.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tensord::server::cuda {

// Compiles `source` to binary code for GPUs of compute capability `major`.`minor`. `source` may
// include only kernels/storage.cuh and the headers that it includes, by their paths from the
// project's root. Products and sums aren't contracted to fused multiply-adds. Returns UNIMPLEMENTED
// if the compiler can't be loaded or doesn't support the GPU. If the compiler rejects `source`,
// returns INTERNAL with its messages. Blocks for up to a second or so. Needs no GPU. Thread-safe.
absl::StatusOr<std::string> CompileForGpu(const std::string& source, int major, int minor);

}  // namespace tensord::server::cuda
