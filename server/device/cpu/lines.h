// Lines along one axis of a tensor, for kernels that compute each line by itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// A tensor as (outer, extent, inner). A line has the `extent` elements with one outer and one inner
// index. They are `inner` elements apart.
struct Lines {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;

  int64_t count() const { return outer * inner; }
};

// Returns the lines along `axis`. A scalar has one line of one element.
Lines DivideIntoLines(const Shape& shape, int64_t axis);

// A group of lines that a thread computes together: one line that is a row, or neighbouring
// columns.
struct LineGroup {
  int64_t offset;  // of the first element
  int64_t first;   // the number of the first line
  int64_t width;   // the number of lines
};

// The maximum number of columns in a group.
inline constexpr int64_t kMaxGroupColumns = 128;

// Calls fn(const LineGroup&) for groups that together are all lines, on the whole team. `cost` is
// the time for an element, relative to a cheap elementwise op.
template <typename Fn>
void ForLineGroups(const Context& ctx, const Lines& lines, double cost, Fn fn) {
  const int64_t widest = std::min(kMaxGroupColumns, lines.inner);
  const int64_t groups = widest == 0 ? 0 : (lines.inner + widest - 1) / widest;
  const double elements = static_cast<double>(std::max<int64_t>(lines.extent, 1) * widest);
  ctx.team.For(
      lines.outer * groups, kGrainElements / cost / elements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t outer = i / groups, column = i % groups * widest;
          fn(LineGroup{outer * lines.extent * lines.inner + column, outer * lines.inner + column,
                       std::min(widest, lines.inner - column)});
        }
      });
}

// Converts the lines of a group between `dtype` at `data` and float32 at `dense`, which has the
// shape (extent, width). Checks the thread's stop token.
void WidenLines(const Context& ctx, const Lines& lines, const LineGroup& group, DType dtype,
                const void* data, float* dense);
void NarrowLines(const Context& ctx, const Lines& lines, const LineGroup& group, const float* dense,
                 DType dtype, void* data);

}  // namespace tensord::server::cpu
