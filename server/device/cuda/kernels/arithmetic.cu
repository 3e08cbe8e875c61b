#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

constexpr BinaryKernel kKernels[] = {
    {"add", Arithmetic<Add>(AllTypes())},
    {"sub", Arithmetic<Sub>(NumericTypes())},
    {"mul", Arithmetic<Mul>(AllTypes())},
    {"div", Arithmetic<Div>(FloatingTypes())},
};

}  // namespace

std::span<const BinaryKernel> ArithmeticKernels() { return kKernels; }

}  // namespace tensord::server::cuda
