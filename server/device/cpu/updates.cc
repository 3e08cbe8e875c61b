#include "tensord/server/device/cpu/updates.h"

#include <string.h>

#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/updates_16bit.h"
#include "tensord/server/device/elementwise_math.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The part of the target that one thread changes: some groups, some rows of all groups, or some
// columns of all rows. No two parts have an element in common.
struct Part {
  int64_t group_begin, group_end;
  int64_t row_begin, row_end;
  int64_t column_begin, column_end;
};

// The threads share the columns if each of them gets at least this number of bytes of a row.
constexpr int64_t kMinColumnsBytes = 256;
// The number of elements between two checks of the stop token.
constexpr int64_t kElementsBetweenChecks = 1 << 19;

template <typename Fn>
void ForEachPart(const Context& ctx, const Updates& updates, int64_t element_bytes, Fn fn) {
  const Part whole = {0, updates.groups, 0, updates.rows, 0, updates.row_elements};
  const int threads = ctx.team.threads();
  const auto elements = static_cast<double>(updates.groups * updates.count * updates.row_elements);
  const auto divide = [&](int64_t n, int64_t Part::*begin, int64_t Part::*end, int64_t multiple) {
    const double grain = kGrainElements / 4 * static_cast<double>(n) / std::max(1.0, elements);
    ctx.team.Divide(
        n, grain,
        [&](int64_t first, int64_t last) {
          Part part = whole;
          part.*begin = first;
          part.*end = last;
          fn(part);
        },
        multiple);
  };
  if (updates.groups >= threads)
    return divide(updates.groups, &Part::group_begin, &Part::group_end, 1);
  if (updates.row_elements * element_bytes >= threads * kMinColumnsBytes) {
    return divide(updates.row_elements, &Part::column_begin, &Part::column_end, 64);
  }
  divide(updates.rows, &Part::row_begin, &Part::row_end, 1);
}

// Calls fn(destination, source, n) for the updates of a part: n elements from position `source` of
// the values change those from position `destination` of the target.
template <typename Fn>
void ForEachUpdate(const Updates& updates, const Part& part, Fn fn) {
  const int64_t n = part.column_end - part.column_begin;
  const int64_t piece = std::max<int64_t>(1, kElementsBetweenChecks / std::max<int64_t>(n, 1));
  for (int64_t group = part.group_begin; group < part.group_end; ++group) {
    const int64_t* const destinations = updates.destinations + group * updates.group_stride;
    for (int64_t first = 0; first < updates.count; first += piece) {
      if (MustStop()) return;
      const int64_t last = std::min(updates.count, first + piece);
      for (int64_t u = first; u < last; ++u) {
        const int64_t row = destinations[u];
        if (row < part.row_begin || row >= part.row_end) continue;
        fn((group * updates.rows + row) * updates.row_elements + part.column_begin,
           updates.SourceOf(group, u) * updates.row_elements + part.column_begin, n);
      }
    }
  }
}

template <typename Element>
void ReplaceElements(const Updates& updates, const Part& part, void* target) {
  const auto* values = static_cast<const Element*>(updates.values);
  auto* to = static_cast<Element*>(target);
  ForEachUpdate(updates, part, [&](int64_t destination, int64_t source, int64_t /*n*/) {
    to[destination] = values[source];
  });
}

void ReplaceRows(const Updates& updates, const Part& part, int64_t element_bytes, void* target) {
  ForEachUpdate(updates, part, [&](int64_t destination, int64_t source, int64_t n) {
    memcpy(Advance(target, destination * element_bytes),
           Advance(updates.values, source * element_bytes), n * element_bytes);
  });
}

void Replace(const Context& ctx, const Updates& updates, int64_t element_bytes, void* target) {
  ForEachPart(ctx, updates, element_bytes, [&](const Part& part) {
    if (updates.row_elements > 1) return ReplaceRows(updates, part, element_bytes, target);
    switch (element_bytes) {
      case 1:
        return ReplaceElements<uint8_t>(updates, part, target);
      case 2:
        return ReplaceElements<uint16_t>(updates, part, target);
      case 4:
        return ReplaceElements<uint32_t>(updates, part, target);
      case 8:
        return ReplaceElements<uint64_t>(updates, part, target);
      default:
        return ReplaceElements<Bytes16>(updates, part, target);
    }
  });
}

template <typename F, typename T>
void CombineElements(const Updates& updates, const Part& part, void* target) {
  const auto* values = static_cast<const T*>(updates.values);
  auto* to = static_cast<T*>(target);
  ForEachUpdate(updates, part, [&](int64_t destination, int64_t source, int64_t /*n*/) {
    to[destination] = Narrow<T>(F()(Widen(to[destination]), Widen(values[source])));
  });
}

template <typename F>
void CombineElementsOf(DType dtype, const Updates& updates, const Part& part, void* target) {
  switch (dtype) {
    case DType::kBool:
      return CombineElements<F, Bool>(updates, part, target);
    case DType::kUInt8:
      return CombineElements<F, uint8_t>(updates, part, target);
    case DType::kInt8:
      return CombineElements<F, int8_t>(updates, part, target);
    case DType::kInt32:
      return CombineElements<F, int32_t>(updates, part, target);
    case DType::kUInt32:
      return CombineElements<F, uint32_t>(updates, part, target);
    case DType::kInt64:
      return CombineElements<F, int64_t>(updates, part, target);
    case DType::kUInt64:
      return CombineElements<F, uint64_t>(updates, part, target);
    case DType::kFloat64:
      return CombineElements<F, double>(updates, part, target);
    default:
      return CombineElements<F, float>(updates, part, target);
  }
}

// Applies the updates of rows of one element.
void CombineElements(Combine combine, DType dtype, const Updates& updates, const Part& part,
                     void* target) {
  switch (combine) {
    case Combine::kMul:
      return CombineElementsOf<Mul>(dtype, updates, part, target);
    case Combine::kMax:
      return CombineElementsOf<Maximum>(dtype, updates, part, target);
    case Combine::kMin:
      return CombineElementsOf<Minimum>(dtype, updates, part, target);
    default:
      return CombineElementsOf<Add>(dtype, updates, part, target);
  }
}

void CombineRows(BinaryLoop loop, const Updates& updates, const Part& part, int64_t element_bytes,
                 void* target) {
  ForEachUpdate(updates, part, [&](int64_t destination, int64_t source, int64_t n) {
    void* const row = Advance(target, destination * element_bytes);
    loop(row, 1, Advance(updates.values, source * element_bytes), 1, row, n);
  });
}

BinaryLoop LoopOf(const Context& ctx, Combine combine, DType dtype) {
  const auto function = combine == Combine::kMul   ? BinaryFunction::kMul
                        : combine == Combine::kMax ? BinaryFunction::kMaximum
                        : combine == Combine::kMin ? BinaryFunction::kMinimum
                                                   : BinaryFunction::kAdd;
  return ctx.loops.binary[static_cast<int>(function)][Index(dtype)];
}

}  // namespace

Combine ReadCombine(const KernelCall& call) {
  const std::string& reduce = call.attrs->String("reduce");
  if (reduce == "add") return Combine::kAdd;
  if (reduce == "mul") return Combine::kMul;
  if (reduce == "max") return Combine::kMax;
  return reduce == "min" ? Combine::kMin : Combine::kReplace;
}

absl::Status ApplyUpdates(const Context& ctx, const KernelCall& call, Combine combine,
                          const Updates& updates) {
  const DType dtype = call.output().spec->dtype;
  const int64_t element_bytes = SizeOf(dtype);
  void* const target = call.output().data;
  if (combine == Combine::kReplace) {
    Replace(ctx, updates, element_bytes, target);
    return absl::OkStatus();
  }
  const BinaryLoop loop = LoopOf(ctx, combine, ComputeDType(dtype));
  if (Is16Bit(dtype)) return Combine16BitRows(ctx, call, loop, updates);
  ForEachPart(ctx, updates, element_bytes, [&](const Part& part) {
    if (updates.row_elements == 1) return CombineElements(combine, dtype, updates, part, target);
    CombineRows(loop, updates, part, element_bytes, target);
  });
  return absl::OkStatus();
}

}  // namespace tensord::server::cpu
