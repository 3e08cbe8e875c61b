#include "tensord/server/device/cuda/kernels/recurrent.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"

namespace tensord::server::cuda {
namespace {

template <typename Cell, typename Storage>
__global__ void CellKernel(CellJob job) {
  using T = MathOf<Storage>;
  const int64_t count = job.rows * job.size;
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    const int64_t row = i / job.size, column = i % job.size;
    T in[Cell::kInputs], out[Cell::kOutputs];
#pragma unroll
    for (int j = 0; j < Cell::kInputs; ++j) {
      in[j] = Load(static_cast<const Storage*>(job.in[j])[job.in_strides[j] * row + column]);
    }
    Cell::template Run<T>(in, out);
#pragma unroll
    for (int j = 0; j < Cell::kOutputs; ++j) {
      static_cast<Storage*>(job.out[j])[job.out_strides[j] * row + column] = Store<Storage>(out[j]);
    }
  }
}

template <typename Cell>
struct CellFamily {
  template <typename Storage>
  static cudaError_t Launch(const CellJob& job, cudaStream_t stream) {
    return LaunchKernel(CellKernel<Cell, Storage>, GridSize(job.rows * job.size), kThreads, stream,
                        job);
  }
};

template <template <bool> typename Cell>
CellLaunchers LaunchersOf() {
  return {{LaunchersFor<CellLauncher, CellFamily<Cell<false>>>(FloatingTypes()),
           LaunchersFor<CellLauncher, CellFamily<Cell<true>>>(FloatingTypes())}};
}

}  // namespace

CellLaunchers LstmCellKernels() { return LaunchersOf<LstmCell>(); }
CellLaunchers LstmGatesBackwardKernels() { return LaunchersOf<LstmGatesBackward>(); }
CellLaunchers GruCellKernels() { return LaunchersOf<GruCell>(); }
CellLaunchers GruGatesBackwardKernels() { return LaunchersOf<GruGatesBackward>(); }

}  // namespace tensord::server::cuda
