#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

#define TENSORD_LAUNCHERS(name, Function, typing, cost, doc) \
  LaunchersFor<UnaryLauncher, UnaryFamily<Function>>(TypesOf<ElementwiseTyping::k##typing>()),
constexpr ByDType<UnaryLauncher> kLaunchers[] = {TENSORD_UNARY_FUNCTIONS(TENSORD_LAUNCHERS)};
#undef TENSORD_LAUNCHERS

}  // namespace

UnaryLauncher FindUnaryLauncher(UnaryFunction function, int dtype_number) {
  return kLaunchers[static_cast<int>(function)][dtype_number];
}

}  // namespace tensord::server::cuda
