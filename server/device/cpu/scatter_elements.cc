#include "tensord/server/device/cpu/scatter_elements.h"

#include <algorithm>
#include <type_traits>

#include "tensord/server/device/elementwise_math.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kElementsPerPiece = 1 << 18;

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
};
using ScatterLoop = void (*)(ScatterRun run);

// Takes the place of a functor of elementwise_math.h: the value replaces the element.
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

}  // namespace

void ScatterElements(const Context& ctx, const KernelCall& call, Combine combine,
                     const AlongAxisLoop& loop, int64_t groups) {
  const Operand& indices = call.inputs[1];
  const Operand& values = call.inputs[2];
  const DType dtype = values.spec->dtype;
  const int64_t bytes = SizeOf(dtype), index_bytes = SizeOf(indices.spec->dtype);
  const ScatterLoop scatter = indices.spec->dtype == DType::kInt64
                                  ? LoopFor<int64_t>(combine, dtype)
                                  : LoopFor<int32_t>(combine, dtype);
  const int64_t n = indices.spec->num_elements(), count = n / groups;
  const int64_t group_elements = call.output().spec->num_elements() / groups;
  // Applies the updates of one group whose indices are in [first, last).
  const auto scatter_group = [&](int64_t group, int64_t first, int64_t last) {
    char* const to = Advance(call.output().data, group * group_elements * bytes);
    for (int64_t begin = group * count; begin < (group + 1) * count && !MustStop();
         begin += kElementsPerPiece) {
      const int64_t end = std::min((group + 1) * count, begin + kElementsPerPiece);
      loop.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t source, int64_t length) {
        scatter({to + offset * bytes, loop.run_stride(), loop.axis_stride(), loop.axis_size(),
                 Advance(values.data, source * bytes), loop.third_run_stride(),
                 Advance(indices.data, at * index_bytes), length, first, last});
      });
    }
  };
  const auto grain = [&](int64_t parts) {
    return kGrainElements / 4 * static_cast<double>(parts) / static_cast<double>(n);
  };
  if (groups >= ctx.team.threads()) {
    return ctx.team.For(groups, grain(groups), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) scatter_group(group, 0, loop.axis_size());
    });
  }
  // Each thread reads all indices, and applies the updates of a part of the axis.
  ctx.team.Divide(loop.axis_size(), grain(loop.axis_size()), [&](int64_t first, int64_t last) {
    for (int64_t group = 0; group < groups; ++group) scatter_group(group, first, last);
  });
}

}  // namespace tensord::server::cpu
