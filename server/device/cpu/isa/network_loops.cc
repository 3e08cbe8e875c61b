// The table of the network ops' loops of one level.
#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

extern const NetworkLoops& NetworkTable();

const NetworkLoops& NetworkTable() {
  static const NetworkLoops* const table = [] {
    auto* loops = new NetworkLoops;
    FillAdamLoops(*loops);
    FillAttentionLoops(*loops);
    FillBatchNormLoops(*loops);
    FillCrossEntropyLoops(*loops);
    FillLayerNormLoops(*loops);
    FillPoolLoops(*loops);
    FillRecurrentLoops(*loops);
    FillSoftmaxBackwardLoops(*loops);
    return loops;
  }();
  return *table;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
