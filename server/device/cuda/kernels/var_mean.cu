// The variance with the mean, by sums over the distances of the elements from an origin (Chan,
// Golub and LeVeque, "Algorithms for computing the sample variance", 1983). The first element of an
// output is its origin. So the distances of equal elements are zero, and the sums lose at most as
// many bits as log2 of the number of elements. In float64 that may be too many. A second pass then
// takes the mean of the first one as the origin.
#include "tensord/server/device/cuda/kernels/reduction.cuh"

namespace tensord::server::cuda {
namespace {

struct DistanceSums {
  double distances, squares;
};
static_assert(sizeof(DistanceSums) <= kPartialBytes);

__device__ DistanceSums Add(DistanceSums a, DistanceSums b) {
  return {a.distances + b.distances, a.squares + b.squares};
}

// An op of TakePacks() and TakeColumns().
template <typename T>
struct DistanceOp {
  using In = T;
  using Acc = DistanceSums;

  double origin;

  __device__ Acc Identity() const { return {0, 0}; }
  __device__ Acc Accumulate(Acc acc, In x, int64_t) const {
    const double distance = static_cast<double>(Load(x)) - origin;
    return {acc.distances + distance, acc.squares + distance * distance};
  }
};

// The pass over the elements, or over the partial results of `splits` blocks for each output.
enum class Part { kElements, kPartials };

// Returns the origin of an output. If it were an infinity or NaN, all distances would be NaN, so
// the origin is then zero.
template <typename T>
__device__ double OriginOf(const VarMeanJob& job, int64_t output) {
  double origin = 0;
  if (job.mean_is_origin) {
    origin = static_cast<double>(Load(static_cast<const T*>(job.mean)[output]));
  } else if (job.over.size > 0) {
    int64_t base[1];
    job.kept.Offsets(output, base);
    origin = static_cast<double>(Load(static_cast<const T*>(job.in)[base[0]]));
  }
  return origin - origin == 0 ? origin : 0;
}

template <typename T>
__device__ void Finish(const VarMeanJob& job, int64_t output, double origin, DistanceSums sums) {
  const auto count = static_cast<double>(job.over.size);
  const double mean = sums.distances / count;  // of no elements: NaN
  double squares = sums.squares - sums.distances * mean;
  if (squares < 0) squares = 0;
  const double divisor = count - job.correction;
  using Math = MathOf<T>;
  static_cast<T*>(job.out)[output] =
      Store<T>(static_cast<Math>(squares / (divisor > 0 ? divisor : 0)));
  static_cast<T*>(job.mean)[output] = Store<T>(static_cast<Math>(origin + mean));
}

// blockIdx.x is the tile, and blockIdx.y the split.
template <typename T>
__global__ void VarMeanKernel(VarMeanJob job, ReduceTile tile, Part part) {
  __shared__ DistanceSums shared[kThreads];
  const TilePosition at(tile);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * at.outputs + at.output;
  const bool inside = output < job.kept.size;
  auto* partials = static_cast<DistanceSums*>(job.partials) + output * job.tile.splits;
  const DistanceOp<T> op{inside ? OriginOf<T>(job, output) : 0};
  DistanceSums acc[1] = {op.Identity()};
  if (inside && part == Part::kPartials) {
    for (int i = at.lane; i < job.tile.splits; i += at.lanes) acc[0] = Add(acc[0], partials[i]);
  } else if (inside) {
    int64_t base[1];
    job.kept.Offsets(output, base);
    const int64_t begin = blockIdx.y * tile.chunk;
    const int64_t end = min(begin + tile.chunk, job.over.size);
    const T* in = static_cast<const T*>(job.in) + base[0];
    if (job.packed) {
      acc[0] = TakePacks(op, in, job.over, begin, end, at);
    } else {
      TakeColumns<DistanceOp<T>, 1>(op, in, job.over, begin, end, at, acc);
    }
  }
  const DistanceSums sums = CombineLanes(acc[0], at, shared, Add);
  if (at.lane != 0 || !inside) return;
  if (part == Part::kElements && job.tile.splits > 1) {
    partials[blockIdx.y] = sums;
  } else {
    Finish<T>(job, output, op.origin, sums);
  }
}

template <typename T>
cudaError_t LaunchPass(const VarMeanJob& job, cudaStream_t stream) {
  const int64_t blocks = TileCount(job.kept.size, job.tile);
  if (blocks > kMaxGridX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks), job.tile.splits);
  const cudaError_t error =
      LaunchKernel(VarMeanKernel<T>, grid, kThreads, stream, job, job.tile, Part::kElements);
  if (error != cudaSuccess || job.tile.splits == 1) return error;
  const ReduceTile tile = TileOfPartials(job.tile.splits);
  return LaunchKernel(VarMeanKernel<T>, static_cast<unsigned>(TileCount(job.kept.size, tile)),
                      kThreads, stream, job, tile, Part::kPartials);
}

struct VarMeanFamily {
  template <typename T>
  static cudaError_t Launch(const VarMeanJob& job, cudaStream_t stream) {
    const cudaError_t error = LaunchPass<T>(job, stream);
    if (error != cudaSuccess || !std::is_same_v<T, double>) return error;
    VarMeanJob second = job;
    second.mean_is_origin = true;
    return LaunchPass<T>(second, stream);
  }
};

}  // namespace

ByDType<VarMeanLauncher> VarMeanKernels() {
  return LaunchersFor<VarMeanLauncher, VarMeanFamily>(FloatingTypes());
}

}  // namespace tensord::server::cuda
