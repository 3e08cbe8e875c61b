// Launchers of the kernels that draw random numbers (random_math.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/random_parameters.h"

namespace tensord::server::cuda {

// The stream that a kernel draws from. If `state` isn't null, it is an address in the device's
// memory that holds seed and stream, and `stream` isn't used.
struct RandomSource {
  RandomStream stream;
  const uint64_t* state = nullptr;
};

// Draws numbers that are uniform in [a, b), or normal with mean a and standard deviation b.
using RandomLauncher = cudaError_t (*)(void* out, const RandomSource& source, double a, double b,
                                       int64_t size, cudaStream_t stream);
const ByDType<RandomLauncher>& UniformLaunchers();
const ByDType<RandomLauncher>& NormalLaunchers();

// Draws integers of 1, 2, 4 or 8 bytes.
cudaError_t LaunchRandint(void* out, int element_bytes, const RandomSource& source,
                          const RandintRange& range, int64_t size, cudaStream_t stream);

// `out` may be `in`. If `mask` isn't null, mask[i] is 1 if element i is kept, otherwise 0.
using DropoutLauncher = cudaError_t (*)(const void* in, void* out, uint8_t* mask,
                                        const RandomSource& source, const DropoutRule& rule,
                                        int64_t size, cudaStream_t stream);
const ByDType<DropoutLauncher>& DropoutLaunchers();

}  // namespace tensord::server::cuda
