// Launchers of the kernels that move elements and don't interpret them. Sizes and strides are in
// units of `unit_bytes`, which is 1, 2, 4, 8 or 16 and divides all addresses and strides.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// out[o] = in[i] over a loop with the strides of (in, out).
cudaError_t LaunchStridedCopy(const void* in, void* out, int unit_bytes, const StridedLoop<2>& loop,
                              cudaStream_t stream);

// A batch of transpositions, for units of up to 8 bytes: out[r, c] = in[c, r]. The input's stride
// along r and the output's stride along c are 1.
struct TransposeJob {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t in_column_stride = 0;
  int64_t out_row_stride = 0;
  StridedLoop<2> batch;  // strides of (in, out)
};
cudaError_t LaunchTranspose(const void* in, void* out, int unit_bytes, const TransposeJob& job,
                            cudaStream_t stream);

// Copies several dense matrices of `rows` rows side by side to a matrix whose rows have `pitch`
// units.
struct ConcatJob {
  static constexpr int kMaxParts = 64;
  struct Part {
    const void* data;
    int64_t width;   // of a row, in units
    int64_t column;  // the part's first column in the output
  };
  void* out = nullptr;
  int64_t rows = 0;
  int64_t pitch = 0;
  int count = 0;  // the number of parts
  Part parts[kMaxParts];
};
cudaError_t LaunchConcat(const ConcatJob& job, int unit_bytes, cudaStream_t stream);

}  // namespace tensord::server::cuda
