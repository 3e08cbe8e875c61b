#include <algorithm>
#include <type_traits>

#include "tensord/common/dtype_of.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/lines.h"
#include "tensord/server/device/value_check.h"

namespace tensord::server::cpu {
namespace {

// The time for an element, relative to a cheap elementwise op.
constexpr double kCrossEntropyCost = 4, kCrossEntropyBackwardCost = 5;

// The arguments that cross_entropy and its gradient have in common. T is float or double.
template <typename T>
class ClassArgs {
 public:
  ClassArgs(const KernelCall& call, const Operand& x, int target)
      : lines_(DivideIntoLines(x.spec->shape, call.attrs->Int("axis"))),
        ignored_(call.attrs->Int("ignore_index")),
        smoothing_(call.attrs->Float("label_smoothing")),
        target_(call.inputs[target]) {
    const size_t weight = target + 1;
    if (call.inputs.size() > weight) weight_ = call.inputs[weight].As<T>();
    sum_of_weights_ = static_cast<double>(lines_.extent);
    if (weight_ == nullptr || smoothing_ == 0) return;
    sum_of_weights_ = 0;
    for (int64_t c = 0; c < lines_.extent; ++c) sum_of_weights_ += WeightOf(c);
  }

  const Lines& lines() const { return lines_; }
  const T* weight() const { return weight_; }
  double smoothing() const { return smoothing_; }
  // Returns the sum over all classes. If there is no smoothing, it is the number of classes.
  double sum_of_weights() const { return sum_of_weights_; }

  double WeightOf(int64_t c) const {
    return weight_ == nullptr ? 1.0 : static_cast<double>(weight_[c]);
  }
  // Returns the class of a line. If the line is ignored, returns -1.
  int64_t TargetOf(int64_t line) const {
    const int64_t value = target_.spec->dtype == DType::kInt64
                              ? target_.As<int64_t>()[line]
                              : int64_t{target_.As<int32_t>()[line]};
    return value == ignored_ ? -1 : value;
  }

 private:
  const Lines lines_;
  const int64_t ignored_;
  const double smoothing_;
  const Operand& target_;
  const T* weight_ = nullptr;
  double sum_of_weights_ = 0;
};

// The elements of a group of lines. 16-bit elements are a copy in float32, others are in place.
template <typename T>
struct GroupView {
  T* data;         // of the first line
  int64_t stride;  // from class to class
};

// If elements have 16 bits, returns room for a copy of the largest group for each thread.
absl::StatusOr<Scratch> MakeClassCopies(const Context& ctx, const KernelCall& call, DType dtype,
                                        const Lines& lines) {
  if (!Is16Bit(dtype)) return Scratch();
  const int64_t elements = lines.extent * std::min(kMaxGroupColumns, lines.inner);
  return MakeScratch(call, elements * 4 * ctx.team.threads());
}

template <typename T>
GroupView<T> ViewGroup(const Context& ctx, const Lines& lines, const LineGroup& group,
                       const Operand& x, const Scratch& copies) {
  if constexpr (std::is_same_v<T, float>) {
    if (Is16Bit(x.spec->dtype)) {
      const int64_t elements = lines.extent * std::min(kMaxGroupColumns, lines.inner);
      float* const copy = copies.As<float>() + elements * Team::Current();
      WidenLines(ctx, lines, group, x.spec->dtype, x.data, copy);
      return {copy, group.width};
    }
  }
  return {x.AsMutable<T>() + group.offset, lines.inner};
}

template <typename T>
absl::Status RunCrossEntropy(const Context& ctx, const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const CrossEntropyLoops& loops = BestNetworkLoops().cross_entropy[Index(kDTypeOf<T>)];
  const ClassArgs<T> classes(call, x, 1);
  const Lines& lines = classes.lines();
  TENSORD_RETURN_IF_ERROR(CheckClasses(call, 1, lines.extent, call.attrs->Int("ignore_index")));
  TENSORD_ASSIGN_OR_RETURN(const Scratch copies, MakeClassCopies(ctx, call, x.spec->dtype, lines));
  T* const losses = call.outputs[0].AsMutable<T>();
  T* const lses = call.outputs[1].AsMutable<T>();
  const double smoothing = classes.smoothing();
  ForLineGroups(ctx, lines, kCrossEntropyCost, [&](const LineGroup& group) {
    const GroupView<T> view = ViewGroup<T>(ctx, lines, group, x, copies);
    T max[kMaxGroupColumns], log_sum[kMaxGroupColumns];
    double smooth[kMaxGroupColumns] = {};
    loops.log_sums(view.data, lines.extent, view.stride, group.width, max, log_sum);
    if (smoothing > 0) {
      loops.smooth(view.data, lines.extent, view.stride, group.width, classes.weight(), max,
                   log_sum, smooth);
    }
    for (int64_t j = 0; j < group.width; ++j) {
      const int64_t target = classes.TargetOf(group.first + j);
      lses[group.first + j] = max[j] + log_sum[j];
      if (target < 0) {
        losses[group.first + j] = 0;
        continue;
      }
      // lse - x would lose digits if both are large.
      const double loss = static_cast<double>(max[j] - view.data[target * view.stride + j]) +
                          static_cast<double>(log_sum[j]);
      losses[group.first + j] =
          static_cast<T>((1 - smoothing) * classes.WeightOf(target) * loss +
                         smoothing / static_cast<double>(lines.extent) * smooth[j]);
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunCrossEntropyBackward(const Context& ctx, const KernelCall& call) {
  const Operand &x = call.inputs[1], &gx = call.output();
  const CrossEntropyLoops& loops = BestNetworkLoops().cross_entropy[Index(kDTypeOf<T>)];
  const ClassArgs<T> classes(call, x, 3);
  const Lines& lines = classes.lines();
  TENSORD_RETURN_IF_ERROR(CheckClasses(call, 3, lines.extent, call.attrs->Int("ignore_index")));
  TENSORD_ASSIGN_OR_RETURN(const Scratch copies, MakeClassCopies(ctx, call, x.spec->dtype, lines));
  const T* const gradients = call.inputs[0].As<T>();
  const double smoothing = classes.smoothing();
  const double share = smoothing / static_cast<double>(std::max<int64_t>(lines.extent, 1));
  ForLineGroups(ctx, lines, kCrossEntropyBackwardCost, [&](const LineGroup& group) {
    const GroupView<T> from = ViewGroup<T>(ctx, lines, group, x, copies);
    const bool copied = Is16Bit(x.spec->dtype);
    T* const to = copied ? from.data : gx.AsMutable<T>() + group.offset;
    // gx = exp(x - lse) a - weight b. At the target, c is subtracted, too.
    T a[kMaxGroupColumns], b[kMaxGroupColumns], c[kMaxGroupColumns];
    for (int64_t j = 0; j < group.width; ++j) {
      const int64_t target = classes.TargetOf(group.first + j);
      const double g = target < 0 ? 0.0 : static_cast<double>(gradients[group.first + j]);
      const double at_target = target < 0 ? 0.0 : (1 - smoothing) * classes.WeightOf(target);
      a[j] = static_cast<T>(g * (at_target + share * classes.sum_of_weights()));
      b[j] = static_cast<T>(g * share);
      c[j] = static_cast<T>(g * at_target);
    }
    loops.backward(from.data, lines.extent, from.stride, group.width, classes.weight(),
                   call.inputs[2].As<T>() + group.first, a, b, to);
    for (int64_t j = 0; j < group.width; ++j) {
      const int64_t target = classes.TargetOf(group.first + j);
      if (target >= 0) to[target * from.stride + j] -= c[j];
    }
    if (copied) {
      NarrowLines(ctx, lines, group, reinterpret_cast<const float*>(to), gx.spec->dtype, gx.data);
    }
  });
  return absl::OkStatus();
}

absl::Status CrossEntropyKernel(const Context& ctx, const KernelCall& call) {
  return call.inputs[0].spec->dtype == DType::kFloat64 ? RunCrossEntropy<double>(ctx, call)
                                                       : RunCrossEntropy<float>(ctx, call);
}

absl::Status CrossEntropyBackwardKernel(const Context& ctx, const KernelCall& call) {
  return call.inputs[1].spec->dtype == DType::kFloat64 ? RunCrossEntropyBackward<double>(ctx, call)
                                                       : RunCrossEntropyBackward<float>(ctx, call);
}

}  // namespace

void AppendCrossEntropyKernels(KernelTable& table) {
  table["cross_entropy"] = CrossEntropyKernel;
  table["cross_entropy_backward"] = CrossEntropyBackwardKernel;
}

}  // namespace tensord::server::cpu
