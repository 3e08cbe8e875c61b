#include "tensord/server/device/cpu/isa/vector_libm.h"

#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// Norms are computed in double, where the square of a float neither overflows nor underflows.
struct SumAbs {
  static double Map(double x, double /*power*/) { return math::Fabs(x); }
};
struct SumSquares {
  static double Map(double x, double /*power*/) { return x * x; }
};
struct SumPowers {
  static double Map(double x, double power) { return math::Pow(math::Fabs(x), power); }
};
struct CountNonzero {
  static double Map(double x, double /*power*/) { return x != 0.0 ? 1.0 : 0.0; }
};

template <typename Term, typename T>
struct NormPolicy : SumPolicy<T, double> {
  static double Map(T x, double power) { return Term::Map(x, power); }
};
template <typename T>
struct MaxAbsPolicy : MaxPolicy<double> {
  using In = T;
  static double Map(T x, double /*power*/) { return math::Fabs(static_cast<double>(x)); }
};
template <typename T>
struct MinAbsPolicy : MinPolicy<double> {
  using In = T;
  static double Map(T x, double /*power*/) { return math::Fabs(static_cast<double>(x)); }
};

template <typename T>
void FillNorm(Loops& loops) {
  const auto set = [&loops](Reduction reduction, ReductionLoops entry) {
    loops.reduction[static_cast<int>(reduction)][kIndexOf<T>] = entry;
  };
  set(Reduction::kSumAbs, MakeReductionLoops<NormPolicy<SumAbs, T>>());
  set(Reduction::kSumSquares, MakeReductionLoops<NormPolicy<SumSquares, T>>());
  set(Reduction::kSumPowers, MakeReductionLoops<NormPolicy<SumPowers, T>>());
  set(Reduction::kCountNonzero, MakeReductionLoops<NormPolicy<CountNonzero, T>>());
  set(Reduction::kMaxAbs, MakeReductionLoops<MaxAbsPolicy<T>>());
  set(Reduction::kMinAbs, MakeReductionLoops<MinAbsPolicy<T>>());
}

}  // namespace

void FillNormLoops(Loops& loops) {
  FillNorm<float>(loops);
  FillNorm<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
