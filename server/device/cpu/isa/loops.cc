#include "tensord/server/device/cpu/isa/loops.h"

#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {

bool LoopMustStop() { return MustStop(); }

namespace isa_baseline {
const Loops& Table();
const NetworkLoops& NetworkTable();
}  // namespace isa_baseline
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
const NetworkLoops& NetworkTable();
}  // namespace isa_v3
namespace isa_v4 {
const Loops& Table();
const NetworkLoops& NetworkTable();
}  // namespace isa_v4
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

const NetworkLoops* NetworkLoopsOf(IsaLevel level) {
  if (LoopsOf(level) == nullptr) return nullptr;
#ifdef TENSORD_ISA_LEVELS
  if (level == IsaLevel::kV3) return &isa_v3::NetworkTable();
  if (level == IsaLevel::kV4) return &isa_v4::NetworkTable();
#endif
  return &isa_baseline::NetworkTable();
}

const NetworkLoops& BestNetworkLoops() {
  static const NetworkLoops* const best = [] {
    const NetworkLoops* found = nullptr;
    for (const IsaLevel level : kAllIsaLevels) {
      if (const NetworkLoops* loops = NetworkLoopsOf(level)) found = loops;
    }
    return found;
  }();
  return *best;
}

}  // namespace tensord::server::cpu
