#include "tensord/server/device/cpu/positions.h"

#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/index_check.h"
#include "tensord/server/device/cpu/strided_copy.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// Returns the shape to which the index tensors broadcast. Inference has checked that they do.
Shape BroadcastIndexTensors(const KernelCall& call, int tensors) {
  Shape shape = call.inputs[1].spec->shape;
  for (int i = 2; i <= tensors; ++i) shape = *BroadcastShapes(shape, call.inputs[i].spec->shape);
  return shape;
}

// A range of the positions in the broadcast index tensors.
struct PositionRange {
  int64_t first, n;
};

// rows[i] += stride · the index at range.first + i, with negative indices counted from `size`.
// `strides` are those of the index tensor, read as if it had the shape `shape`.
template <typename T>
void AddRows(const Context& ctx, const T* indices, const Shape& shape, const Dims& strides,
             int64_t size, int64_t stride, const PositionRange& range, int64_t* rows) {
  const int last = shape.rank() - 1;
  const int64_t length = last < 0 ? 1 : shape.dim(last);
  const int64_t step = last < 0 ? 0 : strides[last];
  const auto add_run = [&](int64_t begin, int64_t end) {
    int64_t offset = 0, left = begin / length;
    for (int d = last - 1; d >= 0; --d) {
      offset += left % shape.dim(d) * strides[d];
      left /= shape.dim(d);
    }
    const T* at = indices + offset + begin % length * step;
    int64_t* const to = rows + (begin - range.first);
    for (int64_t i = 0, n = end - begin, by = step; i < n; ++i, at += by) {
      const auto index = static_cast<int64_t>(*at);
      to[i] += stride * (index < 0 ? index + size : index);
    }
  };
  ctx.team.For(range.n, kGrainElements / 4, [&](int64_t begin, int64_t end) {
    begin += range.first;
    end += range.first;
    while (begin < end) {
      const int64_t next = std::min(end, (begin / length + 1) * length);
      add_run(begin, next);
      begin = next;
    }
  });
}

}  // namespace

IndexedRows ReadIndexedRows(const KernelCall& call, int tensors) {
  const Shape& x = call.inputs[0].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  IndexedRows rows;
  for (int d = 0; d < axis; ++d) rows.groups *= x.dim(d);
  for (int d = axis; d < axis + tensors; ++d) rows.rows *= x.dim(d);
  for (int d = axis + tensors; d < x.rank(); ++d) rows.row_elements *= x.dim(d);
  rows.count = BroadcastIndexTensors(call, tensors).num_elements();
  return rows;
}

absl::Status CheckIndexTensors(const Context& ctx, const KernelCall& call, int tensors) {
  const Shape& x = call.inputs[0].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  for (int i = 0; i < tensors; ++i) {
    TENSORD_RETURN_IF_ERROR(CheckIndices(ctx, call, 1 + i, axis + i, x.dim(axis + i)));
  }
  return absl::OkStatus();
}

absl::Status ComputeSelectedRows(const Context& ctx, const KernelCall& call, int tensors,
                                 const IndexedRows& rows, int64_t first, int64_t n,
                                 int64_t* selected) {
  const Shape& x = call.inputs[0].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  const int64_t zero = 0;
  Fill(ctx, &zero, sizeof(zero), selected, n);
  const Shape shape = BroadcastIndexTensors(call, tensors);
  int64_t stride = rows.rows;
  for (int i = 0; i < tensors; ++i) {
    const Operand& indices = call.inputs[1 + i];
    const Dims strides = BroadcastStrides(indices.spec->shape, shape);
    const int64_t size = x.dim(axis + i);
    stride /= size;
    if (indices.spec->dtype == DType::kInt64) {
      AddRows(ctx, indices.As<int64_t>(), shape, strides, size, stride, {first, n}, selected);
    } else {
      AddRows(ctx, indices.As<int32_t>(), shape, strides, size, stride, {first, n}, selected);
    }
  }
  return CheckStop();
}

}  // namespace tensord::server::cpu
