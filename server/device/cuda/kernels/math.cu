#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {

UnaryLauncher FindMathLauncher(UnaryFunction function, int dtype_number) {
  switch (function) {
#define TENSORD_CASE(name, Function, typing, cost, doc)                                    \
  case UnaryFunction::k##Function: {                                                       \
    static constexpr auto kLaunchers = LaunchersFor<UnaryLauncher, UnaryFamily<Function>>( \
        TypesOf<ElementwiseTyping::k##typing>());                                          \
    return kLaunchers[dtype_number];                                                       \
  }
    TENSORD_TRANSCENDENTAL_OPS(TENSORD_CASE)
    TENSORD_ROUNDING_OPS(TENSORD_CASE)
#undef TENSORD_CASE
    default:
      return nullptr;
  }
}

}  // namespace tensord::server::cuda
