#include "tensord/server/device/cuda/kernels/updates.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/unit.h"
#include "tensord/server/device/cuda/kernels/value_check.cuh"

namespace tensord::server::cuda {
namespace {

__global__ void MakeUpdatesKernel(const int64_t* rows, RowUpdate* updates, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) updates[i] = {rows[i], i};
}

template <typename T>
__global__ void MakeScatterUpdatesKernel(const T* indices, IndexTensor tensor, int64_t axis_stride,
                                         StridedLoop<2> loop, RowUpdate* updates, CheckCell check) {
  for (int64_t i = FirstIndex(); i < loop.size; i += IndexStep()) {
    int64_t offset[2];
    loop.Offsets(i, offset);
    const int64_t index = CheckedIndex(check, tensor.input, i, int64_t{indices[i]}, tensor.axis,
                                       tensor.size, tensor.from_end);
    updates[i] = {offset[0] + index * axis_stride, offset[1]};
  }
}

template <typename T>
cudaError_t MakeScatterUpdates(const IndexTensor& indices, int64_t axis_stride,
                               const StridedLoop<2>& loop, RowUpdate* updates,
                               const CheckCell& check, cudaStream_t stream) {
  return LaunchKernel(MakeScatterUpdatesKernel<T>, GridSize(loop.size), kThreads, stream,
                      static_cast<const T*>(indices.data), indices, axis_stride, loop, updates,
                      check);
}

template <typename T>
__global__ void ReplaceRowsKernel(UpdateJob job, const T* values, T* target) {
  const int64_t size = job.count * job.width;
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const int64_t at = i / job.width, column = i - at * job.width;
    const RowUpdate update = job.updates[at];
    if (at + 1 < job.count && job.updates[at + 1].row == update.row) continue;
    target[update.row * job.width + column] =
        values[job.one_value ? 0 : update.source * job.width + column];
  }
}

template <typename T>
cudaError_t ReplaceRows(const UpdateJob& job, const void* values, void* target,
                        cudaStream_t stream) {
  return LaunchKernel(ReplaceRowsKernel<T>, GridSize(job.count * job.width), kThreads, stream, job,
                      static_cast<const T*>(values), static_cast<T*>(target));
}

// Combines `element` with its values in all updates of its row, which begin with update `at`.
// Returns the result.
template <typename F, typename T>
__device__ T CombineColumn(const UpdateJob& job, int64_t at, int64_t column, const T* values,
                           T element) {
  const int64_t row = job.updates[at].row;
  MathOf<T> result = Load(element);
  for (; at < job.count && job.updates[at].row == row; ++at) {
    const int64_t source = job.one_value ? 0 : job.updates[at].source * job.width + column;
    result = F()(result, Load(values[source]));
  }
  return Store<T>(result);
}

// The thread of a row's first update and of a column combines that element with all its values.
template <typename T>
__global__ void CombineRowsKernel(Combine combine, UpdateJob job, const T* values, T* target) {
  const int64_t size = job.count * job.width;
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const int64_t at = i / job.width, column = i - at * job.width;
    const int64_t row = job.updates[at].row;
    if (at > 0 && job.updates[at - 1].row == row) continue;
    T& element = target[row * job.width + column];
    switch (combine) {
      case Combine::kAdd:
        element = CombineColumn<Add>(job, at, column, values, element);
        break;
      case Combine::kMul:
        element = CombineColumn<Mul>(job, at, column, values, element);
        break;
      case Combine::kMax:
        element = CombineColumn<Maximum>(job, at, column, values, element);
        break;
      case Combine::kMin:
        element = CombineColumn<Minimum>(job, at, column, values, element);
        break;
    }
  }
}

struct CombineRowsFamily {
  template <typename T>
  static cudaError_t Launch(Combine combine, const UpdateJob& job, const void* values, void* target,
                            cudaStream_t stream) {
    return LaunchKernel(CombineRowsKernel<T>, GridSize(job.count * job.width), kThreads, stream,
                        combine, job, static_cast<const T*>(values), static_cast<T*>(target));
  }
};

}  // namespace

cudaError_t LaunchMakeUpdates(const int64_t* rows, RowUpdate* updates, int64_t count,
                              cudaStream_t stream) {
  return LaunchKernel(MakeUpdatesKernel, GridSize(count), kThreads, stream, rows, updates, count);
}

cudaError_t LaunchMakeScatterUpdates(const IndexTensor& indices, int64_t axis_stride,
                                     const StridedLoop<2>& loop, RowUpdate* updates,
                                     const CheckCell& check, cudaStream_t stream) {
  return indices.wide
             ? MakeScatterUpdates<int64_t>(indices, axis_stride, loop, updates, check, stream)
             : MakeScatterUpdates<int32_t>(indices, axis_stride, loop, updates, check, stream);
}

cudaError_t LaunchReplaceRows(const UpdateJob& job, const void* values, void* target,
                              int unit_bytes, cudaStream_t stream) {
  if (unit_bytes == 16) return ReplaceRows<uint4>(job, values, target, stream);
  return WithUnit(unit_bytes,
                  [&]<typename T>(T) { return ReplaceRows<T>(job, values, target, stream); });
}

const ByDType<CombineRowsLauncher>& CombineRowsLaunchers() {
  static constexpr ByDType<CombineRowsLauncher> kLaunchers =
      LaunchersFor<CombineRowsLauncher, CombineRowsFamily>(AllTypes());
  return kLaunchers;
}

}  // namespace tensord::server::cuda
