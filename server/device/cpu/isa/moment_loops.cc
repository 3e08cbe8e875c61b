// The moments of rows and columns, in double. A leaf is read twice while it is in the cache: for
// its mean, and for the squared deviations from the mean. Leaves are merged by the formula of Chan,
// Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample variances",
// 1979).
#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// Returns the origin, which is subtracted from all elements. It is the first element, so that the
// distances of equal elements are zero. If that is an infinity or NaN, the distances would be NaN,
// so the origin is zero.
template <typename In>
double OriginOf(In first) {
  const double origin = static_cast<double>(first);
  return origin - origin == 0 ? origin : 0;
}

// In these policies, `power` is the number that is subtracted: the origin, or the mean.
template <typename In>
struct DistancePolicy : SumPolicy<In, double> {
  static double Map(In x, double power) { return static_cast<double>(x) - power; }
};
template <typename In>
struct SquarePolicy : SumPolicy<In, double> {
  static double Map(In x, double power) {
    const double distance = static_cast<double>(x) - power;
    return distance * distance;
  }
};

template <typename In>
Moments MomentsOfRun(const In* x, int64_t n) {
  if (n == 0) return {0, 0, 0};
  const auto count = static_cast<double>(n);
  const double origin = OriginOf(x[0]);
  const double mean = origin + ReduceRun<DistancePolicy<In>>(x, n, origin) / count;
  return {count, mean, ReduceRun<SquarePolicy<In>>(x, n, mean)};
}

// Computes the moments of `width` lanes. Lane j has the elements x[j lane_stride + i stride], i in
// [0, n).
template <typename In>
void MomentsOfLanes(const In* x, int64_t n, int64_t stride, int64_t lane_stride, int width,
                    Moments* acc) {
  constexpr int kWidth = kLanes<double>;
  const auto count = static_cast<double>(n);
  double origin[kWidth], mean[kWidth] = {}, squares[kWidth] = {};
  for (int j = 0; j < width; ++j) origin[j] = OriginOf(x[j * lane_stride]);
  for (int64_t i = 0; i < n; ++i) {
    const In* at = x + i * stride;
    for (int j = 0; j < width; ++j) mean[j] += static_cast<double>(at[j * lane_stride]) - origin[j];
  }
  for (int j = 0; j < width; ++j) mean[j] = origin[j] + mean[j] / count;
  for (int64_t i = 0; i < n; ++i) {
    const In* at = x + i * stride;
    for (int j = 0; j < width; ++j) {
      const double distance = static_cast<double>(at[j * lane_stride]) - mean[j];
      squares[j] += distance * distance;
    }
  }
  for (int j = 0; j < width; ++j) acc[j] = {count, mean[j], squares[j]};
}

template <typename In>
void MomentsOfRows(const void* x_data, int64_t rows, int64_t n, double /*power*/, void* acc_data) {
  const auto* x = static_cast<const In*>(x_data);
  auto* acc = static_cast<Moments*>(acc_data);
  if (n > kShortRow || n == 0) {
    for (int64_t r = 0; r < rows; ++r) acc[r] = MomentsOfRun(x + r * n, n);
    return;
  }
  constexpr int kWidth = kLanes<double>;
  for (int64_t r = 0; r < rows; r += kWidth) {
    const int width = static_cast<int>(rows - r < kWidth ? rows - r : kWidth);
    MomentsOfLanes(x + r * n, n, 1, n, width, acc + r);
  }
}

template <typename In>
void MomentsOfColumns(const void* x_data, int64_t rows, int64_t row_stride, int64_t cols,
                      double /*power*/, void* acc_data) {
  const auto* x = static_cast<const In*>(x_data);
  auto* acc = static_cast<Moments*>(acc_data);
  constexpr int kWidth = kLanes<double>;
  int64_t c = 0;
  for (; c + kWidth <= cols; c += kWidth) {  // a constant width, for the compiler
    MomentsOfLanes(x + c, rows, row_stride, 1, kWidth, acc + c);
  }
  if (c < cols) MomentsOfLanes(x + c, rows, row_stride, 1, static_cast<int>(cols - c), acc + c);
}

struct MergePolicy {
  using In = Moments;
  using Acc = Moments;
  static Moments Identity() { return {0, 0, 0}; }
  static Moments Map(Moments x, double /*power*/) { return x; }
  static Moments Combine(Moments a, Moments b) {
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const double share = b.count / (a.count + b.count);
    const double distance = b.mean - a.mean;
    const bool finite = distance - distance == 0;
    return {a.count + b.count, finite ? a.mean + distance * share : a.mean + b.mean,
            a.squares + b.squares + distance * distance * (a.count * share)};
  }
};

template <typename In>
ReductionLoops MakeMomentLoops() {
  return {DType::kUnspecified,  sizeof(Moments),          MomentsOfRows<In>,
          MomentsOfColumns<In>, CombineRuns<MergePolicy>, JoinLeaves<MergePolicy>};
}

}  // namespace

void FillMomentLoops(Loops& loops) {
  ReductionLoops* moments = loops.reduction[static_cast<int>(Reduction::kMoments)];
  moments[kIndexOf<float>] = MakeMomentLoops<float>();
  moments[kIndexOf<double>] = MakeMomentLoops<double>();
  moments[Index(DType::kUnspecified)] = {DType::kUnspecified,      sizeof(Moments),
                                         ReduceRows<MergePolicy>,  ReduceColumns<MergePolicy>,
                                         CombineRuns<MergePolicy>, JoinLeaves<MergePolicy>};
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
