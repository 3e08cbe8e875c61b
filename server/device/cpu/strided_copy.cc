#include "tensord/server/device/cpu/strided_copy.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace tensord::server::cpu {
namespace {

constexpr int64_t kTransposeRows = 64;  // rows that a thread transposes at a time
constexpr double kCopyGrainBytes = 64 << 10;

// Merges neighbouring axes that one stride describes, and drops axes of size 1.
void Coalesce(StridedSource& source) {
  Dims sizes, strides;
  for (size_t d = 0; d < source.sizes.size(); ++d) {
    if (source.sizes[d] == 1) continue;
    if (!sizes.empty() && strides.back() == source.strides[d] * source.sizes[d]) {
      sizes.back() *= source.sizes[d];
      strides.back() = source.strides[d];
    } else {
      sizes.push_back(source.sizes[d]);
      strides.push_back(source.strides[d]);
    }
  }
  source.sizes = std::move(sizes);
  source.strides = std::move(strides);
}

// Reads short contiguous rows of 2, 4 or 8 bytes as single elements.
void WidenElements(StridedSource& source, int64_t& element_bytes) {
  if (source.sizes.size() < 2 || source.strides.back() != 1) return;
  const int64_t row = source.sizes.back(), bytes = row * element_bytes;
  if (bytes != 2 && bytes != 4 && bytes != 8) return;
  if (reinterpret_cast<uintptr_t>(source.data) % bytes != 0) return;
  for (size_t d = 0; d + 1 < source.strides.size(); ++d) {
    if (source.strides[d] % row != 0) return;
  }
  source.sizes.pop_back();
  source.strides.pop_back();
  for (int64_t& stride : source.strides) stride /= row;
  element_bytes = bytes;
}

// Returns the source's offset for the row-major index `item` over the first `axes` axes.
int64_t OffsetOf(const StridedSource& source, size_t axes, int64_t item) {
  int64_t offset = 0;
  for (size_t d = axes; d-- > 0;) {
    offset += item % source.sizes[d] * source.strides[d];
    item /= source.sizes[d];
  }
  return offset;
}

void CopyRows(const Context& ctx, const StridedSource& source, int64_t size, char* dst) {
  const size_t outer_axes = source.sizes.size() - 1;
  const int64_t row = source.sizes.back(), stride = source.strides.back();
  int64_t elements = 1;
  for (const int64_t n : source.sizes) elements *= n;
  const GatherLoop gather = ctx.loops.gather[SizeIndex(size)];
  ctx.team.For(
      elements, kGrainElements,
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end;) {
          const int64_t column = at % row, n = std::min(row - column, end - at);
          const int64_t offset = OffsetOf(source, outer_axes, at / row) + column * stride;
          gather(Advance(source.data, offset * size), stride, dst + at * size, n);
          at += n;
        }
      },
      64);
}

// The source is contiguous along the axis `along`, and not along the last axis. For each index over
// the other axes, transposes the matrix of these two axes.
void Transpose(const Context& ctx, StridedSource source, size_t along, int64_t size, char* dst) {
  const int64_t rows = source.sizes.back(), row_stride = source.strides.back();
  const int64_t cols = source.sizes[along];
  int64_t dst_stride = 1;
  for (size_t d = along + 1; d < source.sizes.size(); ++d) dst_stride *= source.sizes[d];
  // The remaining axes. `target` has the result's strides, and `source` keeps the source's strides.
  StridedSource target;
  int64_t items = 1, dense = 1;
  for (size_t d = source.sizes.size(); d-- > 0;) {
    if (d != along && d + 1 != source.sizes.size()) {
      target.sizes.insert(target.sizes.begin(), source.sizes[d]);
      target.strides.insert(target.strides.begin(), dense);
      items *= source.sizes[d];
    }
    dense *= source.sizes[d];
  }
  source.sizes.erase(source.sizes.begin() + static_cast<int64_t>(along));
  source.strides.erase(source.strides.begin() + static_cast<int64_t>(along));
  source.sizes.pop_back();
  source.strides.pop_back();
  const TransposeLoop transpose = ctx.loops.transpose[SizeIndex(size)];
  const int64_t blocks = (rows + kTransposeRows - 1) / kTransposeRows;
  const double grain_cols = kGrainElements / static_cast<double>(std::min(rows, kTransposeRows));
  const double grain = grain_cols / static_cast<double>(cols);
  ctx.team.For(items * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t item = i / blocks, r = i % blocks * kTransposeRows;
      const int64_t from = OffsetOf(source, source.sizes.size(), item) + r * row_stride;
      const int64_t to = OffsetOf(target, target.sizes.size(), item) + r;
      Team::InPieces(0, cols, grain_cols, [&](int64_t first, int64_t last) {
        transpose(Advance(source.data, (from + first) * size), row_stride,
                  dst + (to + first * dst_stride) * size, dst_stride,
                  std::min(kTransposeRows, rows - r), last - first);
      });
    }
  });
}

}  // namespace

void StridedCopy(const Context& ctx, StridedSource source, int64_t element_bytes, void* dst) {
  for (const int64_t n : source.sizes) {
    if (n == 0) return;
  }
  Coalesce(source);
  WidenElements(source, element_bytes);
  auto* to = static_cast<char*>(dst);
  if (source.sizes.empty()) {
    memcpy(to, source.data, element_bytes);
    return;
  }
  const int64_t stride = source.strides.back();
  if (stride == 1 && source.sizes.size() == 1) {
    return Copy(ctx, source.data, dst, source.sizes[0] * element_bytes);
  }
  if (stride != 0 && stride != 1) {
    const auto along = std::find(source.strides.begin(), source.strides.end(), 1);
    if (along != source.strides.end()) {
      const auto axis = static_cast<size_t>(along - source.strides.begin());
      return Transpose(ctx, std::move(source), axis, element_bytes, to);
    }
  }
  CopyRows(ctx, source, element_bytes, to);
}

void Fill(const Context& ctx, const void* value, int64_t element_bytes, void* dst, int64_t n) {
  const GatherLoop gather = ctx.loops.gather[SizeIndex(element_bytes)];
  ctx.team.For(
      n, kGrainElements,
      [&](int64_t begin, int64_t end) {
        gather(value, 0, Advance(dst, begin * element_bytes), end - begin);
      },
      64);
}

void Copy(const Context& ctx, const void* src, void* dst, int64_t bytes) {
  ctx.team.For(
      bytes, kCopyGrainBytes,
      [&](int64_t begin, int64_t end) {
        memcpy(Advance(dst, begin), Advance(src, begin), end - begin);
      },
      4096);
}

}  // namespace tensord::server::cpu
