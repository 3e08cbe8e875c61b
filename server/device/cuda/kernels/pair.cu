#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {

BinaryLauncher FindPairLauncher(BinaryFunction function, int dtype_number) {
  switch (function) {
#define TENSORD_CASE(name, Function, typing, cost, doc)                                          \
  case BinaryFunction::k##Function: {                                                            \
    static constexpr auto kLaunchers = LaunchersFor<BinaryLauncher, ArithmeticFamily<Function>>( \
        TypesOf<ElementwiseTyping::k##typing>());                                                \
    return kLaunchers[dtype_number];                                                             \
  }
    TENSORD_FLOAT_PAIR_OPS(TENSORD_CASE)
    TENSORD_DIVISION_OPS(TENSORD_CASE)
#undef TENSORD_CASE
    default:
      return FindBitLauncher(function, dtype_number);
  }
}

}  // namespace tensord::server::cuda
