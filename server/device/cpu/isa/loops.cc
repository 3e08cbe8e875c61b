#include "tensord/server/device/cpu/isa/loops.h"

#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {

bool LoopMustStop() { return MustStop(); }

namespace isa_baseline {
const Loops& Table();
}
#ifdef TENSORD_ISA_LEVELS
namespace {

// Checks single features, because not every compiler knows the levels by name. Every processor with
// AVX2 has F16C, LZCNT and MOVBE.
bool HasV3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool HasV4() {
  return HasV3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

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
      return HasV3() ? &isa_v3::Table() : nullptr;
    case IsaLevel::kV4:
      return HasV4() ? &isa_v4::Table() : nullptr;
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
