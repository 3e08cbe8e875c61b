#include "tensord/server/device/cuda/kernels/indexing.h"

#include "tensord/server/device/cuda/kernels/launch.cuh"
#include "tensord/server/device/cuda/kernels/unit.h"
#include "tensord/server/device/cuda/kernels/value_check.cuh"

namespace tensord::server::cuda {
namespace {

template <typename T>
__global__ void SelectRowsKernel(const T* indices, IndexTensor tensor, SelectJob job, int64_t* rows,
                                 CheckCell check) {
  for (int64_t i = FirstIndex(); i < job.loop.size; i += IndexStep()) {
    int64_t offset[1];
    job.loop.Offsets(i, offset);
    const int64_t index = CheckedIndex(check, tensor.input, offset[0], int64_t{indices[offset[0]]},
                                       tensor.axis, tensor.size, tensor.from_end);
    const int64_t before = job.accumulate        ? rows[i]
                           : job.group_rows == 0 ? 0
                                                 : i / job.count * job.group_rows;
    rows[i] = before + index * job.stride;
  }
}

template <typename T>
cudaError_t SelectRows(const IndexTensor& indices, const SelectJob& job, int64_t* rows,
                       const CheckCell& check, cudaStream_t stream) {
  return LaunchKernel(SelectRowsKernel<T>, GridSize(job.loop.size), kThreads, stream,
                      static_cast<const T*>(indices.data), indices, job, rows, check);
}

// Dividers for i = (group · count + update) · width + column.
struct RowsDividers {
  bool narrow;
  Divider width, count;
};

template <typename T>
__global__ void CopyRowsKernel(const T* in, const int64_t* rows, T* out, RowsJob job,
                               RowsDividers by) {
  const int64_t size = job.groups * job.count * job.width;
  for (int64_t i = FirstIndex(); i < size; i += IndexStep()) {
    const int64_t row = by.narrow ? int64_t{by.width.DivideNarrow(static_cast<uint32_t>(i))}
                                  : static_cast<int64_t>(by.width.DivideWide(i));
    const int64_t group = by.narrow ? int64_t{by.count.DivideNarrow(static_cast<uint32_t>(row))}
                                    : static_cast<int64_t>(by.count.DivideWide(row));
    const int64_t from = group * job.in_rows + rows[row - group * job.count];
    out[i] = in[from * job.width + (i - row * job.width)];
  }
}

template <typename T>
cudaError_t CopyRows(const void* in, const int64_t* rows, void* out, const RowsJob& job,
                     cudaStream_t stream) {
  const int64_t size = job.groups * job.count * job.width;
  const bool narrow = size < (int64_t{1} << 31);
  const RowsDividers by = {narrow, Divider(job.width, narrow), Divider(job.count, narrow)};
  return LaunchKernel(CopyRowsKernel<T>, GridSize(size), kThreads, stream,
                      static_cast<const T*>(in), rows, static_cast<T*>(out), job, by);
}

template <typename T, typename Index>
__global__ void GatherKernel(const T* in, const Index* indices, IndexTensor tensor,
                             int64_t axis_stride, StridedLoop<1> loop, T* out, CheckCell check) {
  for (int64_t i = FirstIndex(); i < loop.size; i += IndexStep()) {
    int64_t offset[1];
    loop.Offsets(i, offset);
    const int64_t index = CheckedIndex(check, tensor.input, i, int64_t{indices[i]}, tensor.axis,
                                       tensor.size, tensor.from_end);
    out[i] = in[offset[0] + index * axis_stride];
  }
}

template <typename T, typename Index>
cudaError_t Gather(const void* in, const IndexTensor& indices, int64_t axis_stride,
                   const StridedLoop<1>& loop, void* out, const CheckCell& check,
                   cudaStream_t stream) {
  return LaunchKernel(GatherKernel<T, Index>, GridSize(loop.size), kThreads, stream,
                      static_cast<const T*>(in), static_cast<const Index*>(indices.data), indices,
                      axis_stride, loop, static_cast<T*>(out), check);
}

}  // namespace

cudaError_t LaunchSelectRows(const IndexTensor& indices, const SelectJob& job, int64_t* rows,
                             const CheckCell& check, cudaStream_t stream) {
  return indices.wide ? SelectRows<int64_t>(indices, job, rows, check, stream)
                      : SelectRows<int32_t>(indices, job, rows, check, stream);
}

cudaError_t LaunchCopyRows(const void* in, const int64_t* rows, void* out, int unit_bytes,
                           const RowsJob& job, cudaStream_t stream) {
  if (unit_bytes == 16) return CopyRows<uint4>(in, rows, out, job, stream);
  return WithUnit(unit_bytes,
                  [&]<typename T>(T) { return CopyRows<T>(in, rows, out, job, stream); });
}

cudaError_t LaunchGather(const void* in, const IndexTensor& indices, int64_t axis_stride,
                         const StridedLoop<1>& loop, void* out, int element_bytes,
                         const CheckCell& check, cudaStream_t stream) {
  const auto launch = [&]<typename T>(T) {
    return indices.wide ? Gather<T, int64_t>(in, indices, axis_stride, loop, out, check, stream)
                        : Gather<T, int32_t>(in, indices, axis_stride, loop, out, check, stream);
  };
  return element_bytes == 16 ? launch(uint4{}) : WithUnit(element_bytes, launch);
}

}  // namespace tensord::server::cuda
