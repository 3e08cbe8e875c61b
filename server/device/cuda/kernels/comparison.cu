#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

template <typename F>
constexpr ByDType<BinaryLauncher> Comparison() {
  return LaunchersFor<BinaryLauncher, ComparisonFamily<F>>(AllTypes());
}

constexpr BinaryKernel kKernels[] = {
    {"eq", Comparison<Eq>()}, {"ne", Comparison<Ne>()}, {"lt", Comparison<Lt>()},
    {"le", Comparison<Le>()}, {"gt", Comparison<Gt>()}, {"ge", Comparison<Ge>()},
};

}  // namespace

std::span<const BinaryKernel> ComparisonKernels() { return kKernels; }

}  // namespace tensord::server::cuda
