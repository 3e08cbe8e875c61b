#include "tensord/server/device/cpu/lines.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kMaxConvertedAtOnce = 16 * 1024;  // that one call of Convert() converts

// Calls fn(dense, offset, n) for runs that together are the lines of a group. `dense` and `offset`
// are the positions of a run's elements in the dense copy and in the tensor.
template <typename Fn>
void ForRuns(const Lines& lines, const LineGroup& group, Fn fn) {
  // A long row is converted as a matrix of shorter rows.
  const bool is_row = lines.inner == 1;
  const int64_t length = is_row ? std::min(lines.extent, kMaxConvertedAtOnce) : group.width;
  const int64_t stride = is_row ? length : lines.inner;
  if (length == 0) return;
  Team::InPieces(
      0, lines.extent * group.width, kGrainElements,
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; at += length) {
          fn(at, group.offset + at / length * stride, std::min(length, end - at));
        }
      },
      length);
}

}  // namespace

Lines DivideIntoLines(const Shape& shape, int64_t axis) {
  Lines lines;
  for (int d = 0; d < shape.rank(); ++d) {
    (d < axis ? lines.outer : d == axis ? lines.extent : lines.inner) *= shape.dim(d);
  }
  return lines;
}

void WidenLines(const Context& ctx, const Lines& lines, const LineGroup& group, DType dtype,
                const void* data, float* dense) {
  ForRuns(lines, group, [&](int64_t at, int64_t offset, int64_t n) {
    Convert(ctx.loops, dtype, Advance(data, offset * SizeOf(dtype)), DType::kFloat32, dense + at,
            n);
  });
}

void NarrowLines(const Context& ctx, const Lines& lines, const LineGroup& group, const float* dense,
                 DType dtype, void* data) {
  ForRuns(lines, group, [&](int64_t at, int64_t offset, int64_t n) {
    Convert(ctx.loops, DType::kFloat32, dense + at, dtype, Advance(data, offset * SizeOf(dtype)),
            n);
  });
}

}  // namespace tensord::server::cpu
