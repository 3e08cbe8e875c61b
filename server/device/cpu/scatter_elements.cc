#include "tensord/server/device/cpu/scatter_elements.h"

#include <string.h>

#include <algorithm>
#include <type_traits>

#include "tensord/server/device/elementwise_math.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kElementsPerPiece = 1 << 18;

// The operands of a small group have at most this size, so that they stay in a core's caches.
constexpr int64_t kSmallGroupBytes = 256 << 10;
// Smaller groups are checked and copied together up to this size.
constexpr int64_t kGroupsAtOnceBytes = 16 << 10;

// Updates with the indices of a run: to[i stride + indices[i] axis_stride] is combined with
// values[i value_stride], for those i in [0, n) whose index is in [first, last).
struct ScatterRun {
  void* to;
  int64_t stride, axis_stride, axis_size;
  const void* values;
  int64_t value_stride;
  const void* indices;
  int64_t n;
  int64_t first, last;
  bool non_negative;  // all indices are
};
using ScatterLoop = void (*)(ScatterRun run);

// Stands for a functor of elementwise_math.h. With it, the value replaces the element.
struct Replace {};

// The run is a copy, because compilers would read its members again after each write.
template <typename Index, typename F, typename T>
void Scatter(const ScatterRun run) {
  auto* to = static_cast<T*>(run.to);
  const auto* values = static_cast<const T*>(run.values);
  const auto* indices = static_cast<const Index*>(run.indices);
  const auto update = [](T& element, T value) {
    if constexpr (std::is_same_v<F, Replace>) {
      element = value;
    } else {
      element = Narrow<T>(F()(Widen(element), Widen(value)));
    }
  };
  const auto range = static_cast<uint64_t>(run.last - run.first);
  if (range == static_cast<uint64_t>(run.axis_size) && run.stride == 0 && run.axis_stride == 1) {
    if (run.non_negative) {
      for (int64_t i = 0; i < run.n; ++i) update(to[indices[i]], values[i * run.value_stride]);
      return;
    }
    for (int64_t i = 0; i < run.n; ++i) {
      update(to[FromZero(indices[i], run.axis_size)], values[i * run.value_stride]);
    }
    return;
  }
  for (int64_t i = 0; i < run.n; ++i) {
    const int64_t index = FromZero(indices[i], run.axis_size);
    if (static_cast<uint64_t>(index - run.first) >= range) continue;
    update(to[i * run.stride + index * run.axis_stride], values[i * run.value_stride]);
  }
}

template <typename Index>
ScatterLoop ReplaceLoop(int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return Scatter<Index, Replace, uint8_t>;
    case 2:
      return Scatter<Index, Replace, uint16_t>;
    case 4:
      return Scatter<Index, Replace, uint32_t>;
    case 8:
      return Scatter<Index, Replace, uint64_t>;
    default:
      return Scatter<Index, Replace, Bytes16>;
  }
}

template <typename Index, typename F>
ScatterLoop CombineLoop(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Scatter<Index, F, Bool>;
    case DType::kUInt8:
      return Scatter<Index, F, uint8_t>;
    case DType::kInt8:
      return Scatter<Index, F, int8_t>;
    case DType::kInt32:
      return Scatter<Index, F, int32_t>;
    case DType::kUInt32:
      return Scatter<Index, F, uint32_t>;
    case DType::kInt64:
      return Scatter<Index, F, int64_t>;
    case DType::kUInt64:
      return Scatter<Index, F, uint64_t>;
    case DType::kFloat64:
      return Scatter<Index, F, double>;
    default:
      return Scatter<Index, F, float>;
  }
}

template <typename Index>
ScatterLoop LoopFor(Combine combine, DType dtype) {
  switch (combine) {
    case Combine::kAdd:
      return CombineLoop<Index, Add>(dtype);
    case Combine::kMul:
      return CombineLoop<Index, Mul>(dtype);
    case Combine::kMax:
      return CombineLoop<Index, Maximum>(dtype);
    case Combine::kMin:
      return CombineLoop<Index, Minimum>(dtype);
    default:
      return ReplaceLoop<Index>(SizeOf(dtype));
  }
}

// The updates of a call, group by group.
class GroupScatter {
 public:
  GroupScatter(const KernelCall& call, Combine combine, const AlongAxisLoop& loop, int64_t groups)
      : call_(call),
        loop_(loop),
        bytes_(SizeOf(call.output().spec->dtype)),
        index_bytes_(SizeOf(call.inputs[1].spec->dtype)),
        count_(call.inputs[1].spec->num_elements() / groups),
        group_bytes_(call.output().spec->num_elements() / groups * bytes_),
        scatter_(call.inputs[1].spec->dtype == DType::kInt64
                     ? LoopFor<int64_t>(combine, call.output().spec->dtype)
                     : LoopFor<int32_t>(combine, call.output().spec->dtype)) {}

  // Applies the updates of one group whose indices are in [first, last).
  void Apply(int64_t group, int64_t first, int64_t last, bool non_negative) const {
    char* const to = Advance(call_.output().data, group * group_bytes_);
    const int64_t group_end = (group + 1) * count_;
    for (int64_t begin = group * count_; begin < group_end && !MustStop();
         begin += kElementsPerPiece) {
      const int64_t end = std::min(group_end, begin + kElementsPerPiece);
      loop_.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t source, int64_t length) {
        scatter_({to + offset * bytes_, loop_.run_stride(), loop_.axis_stride(), loop_.axis_size(),
                  Advance(call_.inputs[2].data, source * bytes_), loop_.third_run_stride(),
                  Advance(call_.inputs[1].data, at * index_bytes_), length, first, last,
                  non_negative});
      });
    }
  }

  // Checks the indices of the groups [begin, end), copies their elements and applies their updates.
  void CheckAndApply(int64_t begin, int64_t end, IndexCheck* check) const {
    const IndexRange range = check->RangeOf(begin * count_, end * count_);
    if (range == IndexRange::kOutside) return;
    memcpy(Advance(call_.output().data, begin * group_bytes_),
           Advance(call_.inputs[0].data, begin * group_bytes_), (end - begin) * group_bytes_);
    for (int64_t group = begin; group < end; ++group) {
      Apply(group, 0, loop_.axis_size(), range == IndexRange::kNonNegative);
    }
  }

  // Returns the number of groups to check and copy at a time.
  int64_t GroupsAtOnce() const {
    const int64_t bytes = std::max<int64_t>(1, count_ * index_bytes_ + 2 * group_bytes_);
    return std::max<int64_t>(1, kGroupsAtOnceBytes / bytes);
  }

  // The grain of a loop that divides all updates into `parts`.
  double Grain(int64_t parts) const {
    return kGrainElements / 4 * static_cast<double>(parts) /
           static_cast<double>(call_.inputs[1].spec->num_elements());
  }

 private:
  const KernelCall& call_;
  const AlongAxisLoop& loop_;
  const int64_t bytes_, index_bytes_;  // of an element
  const int64_t count_;                // of the indices of a group
  const int64_t group_bytes_;          // of the output
  const ScatterLoop scatter_;
};

}  // namespace

void ScatterElements(const Context& ctx, const KernelCall& call, Combine combine,
                     const AlongAxisLoop& loop, int64_t groups) {
  const GroupScatter scatter(call, combine, loop, groups);
  if (groups >= ctx.team.threads()) {
    return ctx.team.For(groups, scatter.Grain(groups), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        scatter.Apply(group, 0, loop.axis_size(), /*non_negative=*/false);
      }
    });
  }
  // Each thread reads all indices, and applies the updates of a part of the axis.
  ctx.team.Divide(loop.axis_size(), scatter.Grain(loop.axis_size()),
                  [&](int64_t first, int64_t last) {
                    for (int64_t group = 0; group < groups; ++group) {
                      scatter.Apply(group, first, last, /*non_negative=*/false);
                    }
                  });
}

bool HasSmallGroups(const Context& ctx, const KernelCall& call, int64_t groups) {
  if (groups < ctx.team.threads() || call.output().data == call.inputs[0].data) return false;
  return call.inputs[1].spec->size_bytes() + 2 * call.output().spec->size_bytes() <=
         groups * kSmallGroupBytes;
}

void ScatterGroups(const Context& ctx, const KernelCall& call, Combine combine,
                   const AlongAxisLoop& loop, int64_t groups, IndexCheck* check) {
  const GroupScatter scatter(call, combine, loop, groups);
  ctx.team.For(groups, scatter.Grain(groups), [&](int64_t begin, int64_t end) {
    for (int64_t next = 0; begin < end; begin = next) {
      next = std::min(end, begin + scatter.GroupsAtOnce());
      scatter.CheckAndApply(begin, next, check);
    }
  });
}

}  // namespace tensord::server::cpu
