#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {

UnaryLauncher FindUnaryLauncher(UnaryFunction function, int dtype_number) {
  switch (function) {
#define TENSORD_CASE(name, Function, typing, cost, doc)                                    \
  case UnaryFunction::k##Function: {                                                       \
    static constexpr auto kLaunchers = LaunchersFor<UnaryLauncher, UnaryFamily<Function>>( \
        TypesOf<ElementwiseTyping::k##typing>());                                          \
    return kLaunchers[dtype_number];                                                       \
  }
    TENSORD_MATH_OPS(TENSORD_CASE)
    TENSORD_ACTIVATIONS(TENSORD_CASE)
#undef TENSORD_CASE
    default:
      return FindMathLauncher(function, dtype_number);
  }
}

}  // namespace tensord::server::cuda
