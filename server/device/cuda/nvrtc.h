// Compiles device code at run time.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tensord::server::cuda {

// Compiles `source` to binary code for GPUs of compute capability `major`.`minor`. `source` may
// include only the embedded headers (embedded_headers.h). Products and sums aren't contracted to
// fused multiply-adds. If the compiler can't be loaded or doesn't support the GPU, returns
// UNIMPLEMENTED. If the compiler rejects `source`, returns INTERNAL with its messages. Blocks for
// about a second. Needs no GPU. Thread-safe.
absl::StatusOr<std::string> CompileForGpu(const std::string& source, int major, int minor);

}  // namespace tensord::server::cuda
