#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

#define TENSORD_LAUNCHERS(name, Function, typing, cost, doc) \
  LaunchersFor<BinaryLauncher, ComparisonFamily<Function>>(TypesOf<ElementwiseTyping::k##typing>()),
constexpr ByDType<BinaryLauncher> kLaunchers[] = {TENSORD_COMPARISON_OPS(TENSORD_LAUNCHERS)};
#undef TENSORD_LAUNCHERS

}  // namespace

BinaryLauncher FindComparisonLauncher(BinaryFunction function, int dtype_number) {
  return kLaunchers[static_cast<int>(function) - kArithmeticFunctionCount][dtype_number];
}

}  // namespace tensord::server::cuda
