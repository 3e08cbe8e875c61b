// Launchers of the elementwise kernels. Operands are addresses of the device that the stream
// belongs to; nothing waits, and the result is that of the launch alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// out[i] = f(in[i]), 0 <= i < size, both of one dtype. `out` may be `in`.
using UnaryLauncher = cudaError_t (*)(const void* in, void* out, int64_t size, cudaStream_t stream);

// Returns null if the function doesn't take the dtype.
UnaryLauncher FindUnaryLauncher(UnaryFunction function, int dtype_number);

// Both operands have one dtype, by which the table is keyed. The output is dense. `loop` has the
// operands' strides. `out` may be an operand that is dense and of the output's shape.
using BinaryLauncher = cudaError_t (*)(const void* a, const void* b, void* out,
                                       const StridedLoop<2>& loop, cudaStream_t stream);

// Returns null if the function doesn't take the dtype, which is the operands'. The first is for
// functions that aren't comparisons, whose results have the operands' dtype; results of comparisons
// are bool.
BinaryLauncher FindArithmeticLauncher(BinaryFunction function, int dtype_number);
BinaryLauncher FindComparisonLauncher(BinaryFunction function, int dtype_number);
inline BinaryLauncher FindBinaryLauncher(BinaryFunction function, int dtype_number) {
  return IsComparison(function) ? FindComparisonLauncher(function, dtype_number)
                                : FindArithmeticLauncher(function, dtype_number);
}

// The launcher of a cast between two dtypes given by number; null where there is none.
UnaryLauncher CastLauncher(int from_dtype, int to_dtype);

// out[i] = condition ? x : y, for elements of 1, 2, 4 or 8 bytes. `loop` has the strides of
// condition, x and y; the output is dense.
cudaError_t LaunchWhere(const void* condition, const void* x, const void* y, void* out,
                        int element_bytes, const StridedLoop<3>& loop, cudaStream_t stream);

}  // namespace tensord::server::cuda
