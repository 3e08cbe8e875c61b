#include "tensord/server/device/cuda/kernels/integer_matmul.h"
#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

constexpr int kSide = 16;      // threads along each side of a block
constexpr int kPerThread = 4;  // results of a thread along each side
constexpr int kTile = kSide * kPerThread;
constexpr int kDepth = 16;  // the part of k that a tile covers
constexpr unsigned kMaxGridY = 65535, kMaxGridZ = 65535;

// Loads rows [row0, row0 + kTile) and columns [k0, k0 + kDepth) of a matrix. Elements outside the
// matrix are 0. Neighbouring threads load along the axis that is contiguous in memory.
template <typename T, typename U>
__device__ void LoadTile(U (&tile)[kDepth][kTile], const T* matrix, int64_t rows, int64_t depth,
                         int64_t row_stride, int64_t k_stride, int64_t row0, int64_t k0) {
  const int thread = static_cast<int>(threadIdx.y * kSide + threadIdx.x);
  const bool along_k = k_stride == 1;
  for (int i = thread; i < kTile * kDepth; i += kSide * kSide) {
    const int r = along_k ? i / kDepth : i % kTile;
    const int k = along_k ? i % kDepth : i / kTile;
    const bool inside = row0 + r < rows && k0 + k < depth;
    tile[k][r] =
        inside ? static_cast<U>(matrix[(row0 + r) * row_stride + (k0 + k) * k_stride]) : U{0};
  }
}

// Computes a tile of an item's result. Products and sums are computed in an unsigned type, which
// wraps around. Their low bits are those of the result in T.
template <typename T>
__device__ void MultiplyTile(const IntegerMatmulJob& job, int64_t item, int64_t row0,
                             int64_t column0) {
  using U = Wrapping<T>;
  __shared__ U a_tile[kDepth][kTile];
  __shared__ U b_tile[kDepth][kTile];
  int64_t offset[2];
  job.batch.Offsets(item, offset);
  const T* a = static_cast<const T*>(job.a) + offset[0];
  const T* b = static_cast<const T*>(job.b) + offset[1];
  U sum[kPerThread][kPerThread] = {};
  for (int64_t k0 = 0; k0 < job.k; k0 += kDepth) {
    LoadTile(a_tile, a, job.m, job.k, job.a_row_stride, job.a_column_stride, row0, k0);
    LoadTile(b_tile, b, job.n, job.k, job.b_column_stride, job.b_row_stride, column0, k0);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          sum[i][j] += a_tile[k][threadIdx.y + i * kSide] * b_tile[k][threadIdx.x + j * kSide];
        }
      }
    }
    __syncthreads();
  }
  T* out = static_cast<T*>(job.out) + item * job.m * job.n;
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t row = row0 + threadIdx.y + i * kSide;
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t column = column0 + threadIdx.x + j * kSide;
      if (row < job.m && column < job.n) out[row * job.n + column] = static_cast<T>(sum[i][j]);
    }
  }
}

template <typename T>
__global__ void MatmulKernel(IntegerMatmulJob job) {
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t item = blockIdx.z; item < job.batch.size; item += gridDim.z) {
    for (int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTile; row0 < job.m;
         row0 += static_cast<int64_t>(gridDim.y) * kTile) {
      MultiplyTile<T>(job, item, row0, column0);
    }
  }
}

struct Matmul {
  template <typename T>
  static cudaError_t Launch(const IntegerMatmulJob& job, cudaStream_t stream) {
    const int64_t column_tiles = (job.n + kTile - 1) / kTile;
    if (column_tiles > kMaxGridX) return cudaErrorInvalidConfiguration;
    const int64_t row_tiles = (job.m + kTile - 1) / kTile;
    const dim3 grid(static_cast<unsigned>(column_tiles),
                    static_cast<unsigned>(std::min<int64_t>(row_tiles, kMaxGridY)),
                    static_cast<unsigned>(std::min<int64_t>(job.batch.size, kMaxGridZ)));
    return LaunchKernel(MatmulKernel<SignedOf<T>>, grid, dim3(kSide, kSide), stream, job);
  }
};

constexpr ByDType<IntegerMatmulLauncher> kLaunchers =
    LaunchersFor<IntegerMatmulLauncher, Matmul>(IntegerTypes());

}  // namespace

const ByDType<IntegerMatmulLauncher>& IntegerMatmulLaunchers() { return kLaunchers; }

}  // namespace tensord::server::cuda
