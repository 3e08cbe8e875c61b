// The launcher of the kernel that collects the reports of a graph.
#pragma once

#include <cuda_runtime_api.h>

#include "tensord/server/device/check_cell.h"

namespace tensord::server::cuda {

// Copies the first of `cells` that has a record to `to`, with its number as the record's `step`.
// Then makes all `count` cells zero. `to` may have null pointers.
cudaError_t LaunchCollectChecks(GraphCheckCell* cells, int count, CheckCell to,
                                cudaStream_t stream);

}  // namespace tensord::server::cuda
