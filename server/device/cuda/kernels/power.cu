#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

constexpr BinaryKernel kKernels[] = {
    {"pow", Arithmetic<Pow>(NumericTypes())},
    {"maximum", Arithmetic<Maximum>(AllTypes())},
    {"minimum", Arithmetic<Minimum>(AllTypes())},
};

}  // namespace

std::span<const BinaryKernel> PowerKernels() { return kKernels; }

}  // namespace tensord::server::cuda
