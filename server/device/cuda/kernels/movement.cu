#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/movement.h"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

constexpr int kTile = 32;     // side of a tile that is transposed in shared memory
constexpr int kTileRows = 8;  // rows of it that a block moves at a time

template <typename T>
__global__ void StridedCopyKernel(const T* in, T* out, StridedLoop<2> loop) {
  for (int64_t i = FirstIndex(); i < loop.size; i += IndexStep()) {
    int64_t offset[2];
    loop.Offsets(i, offset);
    out[offset[1]] = in[offset[0]];
  }
}

template <typename T>
cudaError_t StridedCopy(const void* in, void* out, const StridedLoop<2>& loop,
                        cudaStream_t stream) {
  return LaunchKernel(StridedCopyKernel<T>, GridSize(loop.size), kThreads, stream,
                      static_cast<const T*>(in), static_cast<T*>(out), loop);
}

// A block per tile: read along the input's fast axis, written along the output's.
template <typename T>
__global__ void TransposeKernel(const T* in, T* out, TransposeJob job, int64_t row_tiles,
                                int64_t column_tiles) {
  __shared__ T tile[kTile][kTile + 1];  // the extra column keeps a column off one bank
  const int64_t tiles = row_tiles * column_tiles * job.batch.size;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t matrix = t / (row_tiles * column_tiles);
    const int64_t within = t - matrix * row_tiles * column_tiles;
    const int64_t row0 = within / column_tiles * kTile;
    const int64_t column0 = within % column_tiles * kTile;
    int64_t offset[2];
    job.batch.Offsets(matrix, offset);
    const int64_t in_row = row0 + threadIdx.x;
    for (int j = threadIdx.y; j < kTile; j += kTileRows) {
      const int64_t column = column0 + j;
      if (in_row < job.rows && column < job.columns) {
        tile[j][threadIdx.x] = in[offset[0] + column * job.in_column_stride + in_row];
      }
    }
    __syncthreads();
    const int64_t out_column = column0 + threadIdx.x;
    for (int j = threadIdx.y; j < kTile; j += kTileRows) {
      const int64_t row = row0 + j;
      if (row < job.rows && out_column < job.columns) {
        out[offset[1] + row * job.out_row_stride + out_column] = tile[threadIdx.x][j];
      }
    }
    __syncthreads();  // the next tile overwrites this one
  }
}

template <typename T>
cudaError_t Transpose(const void* in, void* out, const TransposeJob& job, cudaStream_t stream) {
  const int64_t row_tiles = (job.rows + kTile - 1) / kTile;
  const int64_t column_tiles = (job.columns + kTile - 1) / kTile;
  const int64_t tiles = row_tiles * column_tiles * job.batch.size;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 24));
  return LaunchKernel(TransposeKernel<T>, blocks, dim3(kTile, kTileRows), stream,
                      static_cast<const T*>(in), static_cast<T*>(out), job, row_tiles,
                      column_tiles);
}

// blockIdx.y is the part.
template <typename T>
__global__ void ConcatKernel(ConcatJob job) {
  const ConcatJob::Part& part = job.parts[blockIdx.y];
  const auto* in = static_cast<const T*>(part.data);
  auto* out = static_cast<T*>(job.out) + part.column;
  const int64_t size = job.rows * part.width;
  const bool narrow = size < (int64_t{1} << 31);
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const int64_t row = narrow
                            ? int64_t{static_cast<uint32_t>(i) / static_cast<uint32_t>(part.width)}
                            : i / part.width;
    out[row * job.pitch + (i - row * part.width)] = in[i];
  }
}

template <typename T>
cudaError_t Concat(const ConcatJob& job, cudaStream_t stream) {
  int64_t widest = 0;
  for (int i = 0; i < job.count; ++i) widest = std::max(widest, job.parts[i].width);
  const dim3 grid(GridSize(job.rows * widest), job.count);
  return LaunchKernel(ConcatKernel<T>, grid, kThreads, stream, job);
}

}  // namespace

cudaError_t LaunchStridedCopy(const void* in, void* out, int unit_bytes, const StridedLoop<2>& loop,
                              cudaStream_t stream) {
  if (unit_bytes == 16) return StridedCopy<uint4>(in, out, loop, stream);
  return WithUnit(unit_bytes, [&]<typename T>(T) { return StridedCopy<T>(in, out, loop, stream); });
}

cudaError_t LaunchTranspose(const void* in, void* out, int unit_bytes, const TransposeJob& job,
                            cudaStream_t stream) {
  return WithUnit(unit_bytes, [&]<typename T>(T) { return Transpose<T>(in, out, job, stream); });
}

cudaError_t LaunchConcat(const ConcatJob& job, int unit_bytes, cudaStream_t stream) {
  if (unit_bytes == 16) return Concat<uint4>(job, stream);
  return WithUnit(unit_bytes, [&]<typename T>(T) { return Concat<T>(job, stream); });
}

}  // namespace tensord::server::cuda
