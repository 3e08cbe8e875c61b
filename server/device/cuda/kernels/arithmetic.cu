#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

#define TENSORD_LAUNCHERS(name, Function, typing, cost, doc) \
  LaunchersFor<BinaryLauncher, ArithmeticFamily<Function>>(TypesOf<ElementwiseTyping::k##typing>()),
constexpr ByDType<BinaryLauncher> kLaunchers[] = {TENSORD_ARITHMETIC_OPS(TENSORD_LAUNCHERS)};
#undef TENSORD_LAUNCHERS

}  // namespace

BinaryLauncher FindArithmeticLauncher(BinaryFunction function, int dtype_number) {
  return kLaunchers[static_cast<int>(function)][dtype_number];
}

}  // namespace tensord::server::cuda
