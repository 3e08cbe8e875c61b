// Launchers of the elementwise kernels. Operands are addresses on the stream's device. A launcher
// doesn't block, and returns only errors of the launch.
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
// The functions that have a file of their own. FindUnaryLauncher() finds them, too.
UnaryLauncher FindMathLauncher(UnaryFunction function, int dtype_number);

// out[i] = f(a[i], b[i]). Both operands have the same dtype. The output is dense. `loop` has the
// operands' strides. `out` may be an operand that is dense and has the output's shape.
using BinaryLauncher = cudaError_t (*)(const void* a, const void* b, void* out,
                                       const StridedLoop<2>& loop, cudaStream_t stream);

// `dtype_number` is the operands' dtype. Returns null if the function doesn't take it. Arithmetic
// functions are all that aren't comparisons. Their results have the operands' dtype. The results of
// comparisons are bool.
BinaryLauncher FindArithmeticLauncher(BinaryFunction function, int dtype_number);
BinaryLauncher FindComparisonLauncher(BinaryFunction function, int dtype_number);
// The functions that have files of their own. FindArithmeticLauncher() finds them, too.
BinaryLauncher FindPairLauncher(BinaryFunction function, int dtype_number);
BinaryLauncher FindBitLauncher(BinaryFunction function, int dtype_number);
inline BinaryLauncher FindBinaryLauncher(BinaryFunction function, int dtype_number) {
  return IsComparison(function) ? FindComparisonLauncher(function, dtype_number)
                                : FindArithmeticLauncher(function, dtype_number);
}

// Returns the launcher of a cast between two dtypes, which are given by number. If there is none,
// returns null.
UnaryLauncher CastLauncher(int from_dtype, int to_dtype);

// out[i] = condition[i] ? x[i] : y[i], for elements of 1, 2, 4, 8 or 16 bytes. `loop` has the
// strides of condition, x and y. The output is dense.
cudaError_t LaunchWhere(const void* condition, const void* x, const void* y, void* out,
                        int element_bytes, const StridedLoop<3>& loop, cudaStream_t stream);

}  // namespace tensord::server::cuda
