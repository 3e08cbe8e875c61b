// A thread writes an element of the matrix. Neighbouring threads write neighbouring positions.
#include "tensord/server/device/cuda/kernels/conv.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

// Replaces `value` by value / divisor. Returns the remainder.
template <typename Index>
__device__ Index TakeRemainder(Index& value, int64_t divisor) {
  const auto by = static_cast<Index>(divisor);
  const Index quotient = value / by, remainder = value - quotient * by;
  value = quotient;
  return remainder;
}

// Returns the index in `from` along an axis; -1 if there is no such element.
__device__ int64_t SourceIndex(const ConvColumnsJob& job, int axis, int64_t position, int64_t tap) {
  int64_t index;
  if (job.transposed) {
    const int64_t scaled = position + job.low[axis] - tap * job.dilation[axis];
    if (scaled < 0) return -1;
    index = scaled / job.stride[axis];
    if (index * job.stride[axis] != scaled) return -1;
  } else {
    index = position * job.stride[axis] - job.low[axis] + tap * job.dilation[axis];
  }
  return index >= 0 && index < job.size[axis] ? index : -1;
}

// `Index` must be able to represent the number of elements of `to`.
template <typename Unit, typename Index>
__global__ void ConvColumnsKernel(ConvColumnsJob job, int64_t count) {
  const auto* from = static_cast<const Unit*>(job.from);
  auto* to = static_cast<Unit*>(job.to);
  const int64_t channel_elements = job.size[0] * job.size[1] * job.size[2];
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    auto row = static_cast<Index>(i);  // of the matrix: image, channel and tap
    int64_t position = job.first_position + TakeRemainder(row, job.positions);
    int64_t offset = 0, scale = 1;
    bool is_inside = true;
    for (int axis = ConvColumnsJob::kAxes - 1; axis >= 0; --axis) {
      const int64_t tap = TakeRemainder(row, job.kernel[axis]);
      int64_t at = position;
      if (axis > 0) {
        position /= job.grid[axis];
        at -= position * job.grid[axis];
      }
      const int64_t index = SourceIndex(job, axis, at, tap);
      is_inside &= index >= 0;
      offset += index * scale;
      scale *= job.size[axis];
    }
    to[i] = is_inside ? from[static_cast<int64_t>(row) * channel_elements + offset] : Unit(0);
  }
}

template <typename Unit>
cudaError_t Launch(const ConvColumnsJob& job, cudaStream_t stream) {
  const int64_t count = job.images * job.channels * job.taps() * job.positions;
  constexpr int64_t kMaxNarrow = int64_t{1} << 31;
  return count < kMaxNarrow ? LaunchKernel(ConvColumnsKernel<Unit, uint32_t>, GridSize(count),
                                           kThreads, stream, job, count)
                            : LaunchKernel(ConvColumnsKernel<Unit, int64_t>, GridSize(count),
                                           kThreads, stream, job, count);
}

}  // namespace

cudaError_t LaunchConvColumns(const ConvColumnsJob& job, int element_bytes, cudaStream_t stream) {
  switch (element_bytes) {
    case 2:
      return Launch<uint16_t>(job, stream);
    case 4:
      return Launch<uint32_t>(job, stream);
    case 8:
      return Launch<uint64_t>(job, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tensord::server::cuda
