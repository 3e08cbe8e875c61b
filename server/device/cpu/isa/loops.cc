#include "tensord/server/device/cpu/isa/loops.h"

namespace tensord::server::cpu {

namespace isa_baseline {
const Loops& Table();
}
#ifdef TENSORD_ISA_LEVELS
namespace isa_v3 {
const Loops& Table();
}
namespace isa_v4 {
const Loops& Table();
}
#endif

const Loops* LoopsOf(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline:
      return &isa_baseline::Table();
#ifdef TENSORD_ISA_LEVELS
    case IsaLevel::kV3:
      return __builtin_cpu_supports("x86-64-v3") ? &isa_v3::Table() : nullptr;
    case IsaLevel::kV4:
      return __builtin_cpu_supports("x86-64-v4") ? &isa_v4::Table() : nullptr;
#else
    case IsaLevel::kV3:
    case IsaLevel::kV4:
      break;
#endif
  }
  return nullptr;
}

const Loops& BestLoops() {
  static const Loops* const best = [] {
    const Loops* found = nullptr;
    for (const IsaLevel level : kAllIsaLevels) {
      if (const Loops* loops = LoopsOf(level)) found = loops;
    }
    return found;
  }();
  return *best;
}

}  // namespace tensord::server::cpu
