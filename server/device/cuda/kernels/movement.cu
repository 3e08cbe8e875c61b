#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/movement.h"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

constexpr int kTile = 32;     // the side of a tile that is transposed in shared memory
constexpr int kTileRows = 8;  // the number of rows of a tile that a block moves at a time

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

// A block moves one tile at a time. It reads along the input's contiguous axis, and writes along
// the output's.
template <typename T>
__global__ void TransposeKernel(const T* in, T* out, TransposeJob job, int64_t row_tiles,
                                int64_t column_tiles) {
  // The extra column puts the elements of a column in different banks.
  __shared__ T tile[kTile][kTile + 1];
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

// A tile of 8-bit or 16-bit elements. A thread moves 4 bytes (kWidth elements) at a time.
template <typename T>
struct PackedTile {
  static constexpr int kWidth = 4 / sizeof(T);
  static constexpr int kSide = 64;
  static constexpr int kPacks = kSide / kWidth;  // in a row or column of the tile
  static constexpr int kRows = kThreads / kPacks;
  using Packed = Pack<T, kWidth>;
};

// Returns kWidth elements that begin at `in`. Doesn't read elements at index `end` and above, and
// returns zeros for them. `aligned` says that `in` is aligned to the size of a pack.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> LoadUpTo(const T* in, int64_t end, bool aligned) {
  if (aligned && end >= kWidth) return *reinterpret_cast<const Pack<T, kWidth>*>(in);
  Pack<T, kWidth> pack = {};
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (j < end) pack.value[j] = in[j];
  }
  return pack;
}

// Stores the elements of `pack` below index `end`.
template <typename T, int kWidth>
__device__ void StoreUpTo(T* out, int64_t end, bool aligned, const Pack<T, kWidth>& pack) {
  if (aligned && end >= kWidth) {
    *reinterpret_cast<Pack<T, kWidth>*>(out) = pack;
    return;
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (j < end) out[j] = pack.value[j];
  }
}

// Does the same as TransposeKernel(). A block of kPacks x kRows threads reads packs along the
// input's contiguous axis into shared memory. Then each thread reads kWidth packs, one of each of
// kWidth neighbouring columns, and writes their elements as kWidth packs, one of each of kWidth
// neighbouring rows. Neighbouring columns are kPacks rows apart in shared memory, so that the
// threads of a warp read from different banks.
template <typename T>
__global__ void PackedTransposeKernel(const T* in, T* out, TransposeJob job, int64_t row_tiles,
                                      int64_t column_tiles, bool in_aligned, bool out_aligned) {
  using Tile = PackedTile<T>;
  constexpr int kWidth = Tile::kWidth;
  using Packed = typename Tile::Packed;
  __shared__ Packed tile[Tile::kSide][Tile::kPacks + 1];
  const int64_t tiles = row_tiles * column_tiles * job.batch.size;
  const int pack = static_cast<int>(threadIdx.x);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t matrix = t / (row_tiles * column_tiles);
    const int64_t within = t - matrix * row_tiles * column_tiles;
    const int64_t row0 = within / column_tiles * Tile::kSide;
    const int64_t column0 = within % column_tiles * Tile::kSide;
    int64_t offset[2];
    job.batch.Offsets(matrix, offset);
    const int64_t in_row = row0 + pack * kWidth;
    for (int j = threadIdx.y; j < Tile::kSide; j += Tile::kRows) {
      const int64_t column = column0 + j;
      const int64_t rows = column < job.columns ? job.rows - in_row : 0;
      tile[j % kWidth * Tile::kPacks + j / kWidth][pack] = LoadUpTo<T, kWidth>(
          in + offset[0] + column * job.in_column_stride + in_row, rows, in_aligned);
    }
    __syncthreads();
    const int64_t out_column = column0 + pack * kWidth;
    for (int i = threadIdx.y; i < Tile::kPacks; i += Tile::kRows) {
      Packed columns[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) columns[k] = tile[k * Tile::kPacks + pack][i];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const int64_t row = row0 + i * kWidth + k;
        Packed result;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) result.value[j] = columns[j].value[k];
        StoreUpTo(out + offset[1] + row * job.out_row_stride + out_column,
                  row < job.rows ? job.columns - out_column : 0, out_aligned, result);
      }
    }
    __syncthreads();  // the next tile overwrites this one
  }
}

// Returns true if all packs of an operand are aligned to their size. `line_stride` is the distance
// in elements between its lines, the rows or columns along which packs lie.
bool PacksAreAligned(const void* data, int64_t line_stride, const int64_t* batch_stride, int rank,
                     int width, int pack_bytes) {
  bool aligned = reinterpret_cast<uintptr_t>(data) % pack_bytes == 0 && line_stride % width == 0;
  for (int d = 0; d < rank; ++d) aligned = aligned && batch_stride[d] % width == 0;
  return aligned;
}

template <typename T>
cudaError_t Transpose(const void* in, void* out, const TransposeJob& job, cudaStream_t stream) {
  const auto launch = [&](auto kernel, int side, dim3 block, auto... more) {
    const int64_t row_tiles = (job.rows + side - 1) / side;
    const int64_t column_tiles = (job.columns + side - 1) / side;
    const int64_t tiles = row_tiles * column_tiles * job.batch.size;
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 24));
    return LaunchKernel(kernel, blocks, block, stream, static_cast<const T*>(in),
                        static_cast<T*>(out), job, row_tiles, column_tiles, more...);
  };
  if constexpr (sizeof(T) < 4) {
    using Tile = PackedTile<T>;
    // A smaller matrix would leave most of a large tile empty.
    if (job.rows > kTile && job.columns > kTile) {
      const auto aligned = [&](const void* data, int64_t line_stride, int operand) {
        return PacksAreAligned(data, line_stride, job.batch.stride[operand], job.batch.rank,
                               Tile::kWidth, sizeof(typename Tile::Packed));
      };
      return launch(PackedTransposeKernel<T>, Tile::kSide, dim3(Tile::kPacks, Tile::kRows),
                    aligned(in, job.in_column_stride, 0), aligned(out, job.out_row_stride, 1));
    }
  }
  return launch(TransposeKernel<T>, kTile, dim3(kTile, kTileRows));
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
