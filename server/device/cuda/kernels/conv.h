// Launcher of the kernel that copies the windows of a convolution to the columns of a matrix.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::server::cuda {

// `from` is (images, channels, size…), `to` is (images, channels, kernel…, positions). Each
// position is an index of `grid`, in row-major order. Element t of the window of position p is
//   from[p * stride - low + t * dilation], or
//   from[(p + low - t * dilation) / stride] if `transposed`,
// along each axis. If that index isn't whole or is outside, it is 0.
struct ConvColumnsJob {
  static constexpr int kAxes = 3;

  const void* from = nullptr;
  void* to = nullptr;
  int64_t images = 1, channels = 1;
  int64_t size[kAxes], kernel[kAxes], grid[kAxes];
  int64_t stride[kAxes], dilation[kAxes], low[kAxes];
  bool transposed = false;
  int64_t first_position = 0, positions = 0;  // the positions of `to`

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// Elements have 2, 4 or 8 bytes. Returns the error of the launch.
cudaError_t LaunchConvColumns(const ConvColumnsJob& job, int element_bytes, cudaStream_t stream);

}  // namespace tensord::server::cuda
