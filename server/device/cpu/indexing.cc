// Kernels that read elements at indices: index, gather.
#include <string.h>

#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/along_axis.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/positions.h"
#include "tensord/server/device/cpu/prepare.h"
#include "tensord/server/device/value_check.h"

namespace tensord::server::cpu {
namespace {

// A grain is the time in which a thread copies kGrainBytes. Finding a row costs as much as copying
// kRowCostBytes.
constexpr double kGrainBytes = 64 << 10;
constexpr double kRowCostBytes = 32;

// Rows of at least this size are written past the caches, if the result exceeds them.
constexpr int64_t kMinStreamedRowBytes = 1024;

// to[i] = the row indices[i] of `from`, for i in [0, n). A negative index counts from `rows`.
template <typename T>
using RowLoop = void (*)(const Context& ctx, const char* from, const T* indices, int64_t rows,
                         int64_t row_bytes, char* to, int64_t n);

// A RowLoop for rows of the size of `Row`.
template <typename T, typename Row>
void CopySelectedElements(const Context& /*ctx*/, const char* from, const T* indices, int64_t rows,
                          int64_t /*row_bytes*/, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    memcpy(to + i * sizeof(Row), from + FromZero(indices[i], rows) * sizeof(Row), sizeof(Row));
  }
}

template <typename T>
void CopySelectedRows(const Context& /*ctx*/, const char* from, const T* indices, int64_t rows,
                      int64_t row_bytes, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    memcpy(to + i * row_bytes, from + FromZero(indices[i], rows) * row_bytes, row_bytes);
  }
}

template <typename T>
void StreamSelectedRows(const Context& ctx, const char* from, const T* indices, int64_t rows,
                        int64_t row_bytes, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    ctx.loops.stream(from + FromZero(indices[i], rows) * row_bytes, to + i * row_bytes, row_bytes);
  }
}

template <typename T>
RowLoop<T> RowLoopFor(int64_t row_bytes, int64_t output_bytes) {
  switch (row_bytes) {
    case 1:
      return CopySelectedElements<T, uint8_t>;
    case 2:
      return CopySelectedElements<T, uint16_t>;
    case 4:
      return CopySelectedElements<T, uint32_t>;
    case 8:
      return CopySelectedElements<T, uint64_t>;
    case 16:
      return CopySelectedElements<T, Bytes16>;
    default:
      return row_bytes >= kMinStreamedRowBytes && ExceedsCaches(output_bytes)
                 ? StreamSelectedRows<T>
                 : CopySelectedRows<T>;
  }
}

template <typename T>
void SelectRows(const Context& ctx, const KernelCall& call, const IndexedRows& rows,
                const T* indices) {
  const int64_t row_bytes = rows.row_elements * SizeOf(call.output().spec->dtype);
  const RowLoop<T> copy = RowLoopFor<T>(row_bytes, call.output().spec->size_bytes());
  const double grain = kGrainBytes / (static_cast<double>(row_bytes) + kRowCostBytes);
  ctx.team.For(rows.groups * rows.count, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t group = begin / rows.count, first = begin % rows.count;
      const int64_t n = std::min(rows.count - first, end - begin);
      copy(ctx, Advance(call.inputs[0].data, group * rows.rows * row_bytes), indices + first,
           rows.rows, row_bytes, Advance(call.output().data, begin * row_bytes), n);
      begin += n;
    }
  });
}

absl::Status IndexKernel(const Context& ctx, const KernelCall& call) {
  const auto tensors = static_cast<int>(call.inputs.size()) - 1;
  const IndexedRows rows = IndexedRowsOf(call, tensors);
  if (tensors > 1) {
    TENSORD_ASSIGN_OR_RETURN(const Scratch selected, SelectedRows(ctx, call, tensors, rows));
    SelectRows(ctx, call, rows, static_cast<const int64_t*>(selected.data()));
    return absl::OkStatus();
  }
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  TENSORD_RETURN_IF_ERROR(CheckIndices(call, 1, axis, rows.rows));
  if (call.inputs[1].spec->dtype == DType::kInt64) {
    SelectRows(ctx, call, rows, call.inputs[1].As<int64_t>());
  } else {
    SelectRows(ctx, call, rows, call.inputs[1].As<int32_t>());
  }
  return absl::OkStatus();
}

// to[i] = from[i stride + indices[i] axis_stride], for i in [0, n).
struct GatherRun {
  const void* from;
  int64_t stride, axis_stride, axis_size;
  const void* indices;
  void* to;
  int64_t n;
};

// The run is a copy, because compilers would read its members again after each write.
template <typename T, typename Element>
void GatherElements(const GatherRun run) {
  const auto* from = static_cast<const Element*>(run.from);
  const auto* indices = static_cast<const T*>(run.indices);
  auto* to = static_cast<Element*>(run.to);
  for (int64_t i = 0; i < run.n; ++i) {
    to[i] = from[i * run.stride + FromZero(indices[i], run.axis_size) * run.axis_stride];
  }
}

template <typename T>
constexpr void (*kGatherElements[kSizeCount])(GatherRun) = {
    GatherElements<T, uint8_t>, GatherElements<T, uint16_t>, GatherElements<T, uint32_t>,
    GatherElements<T, uint64_t>, GatherElements<T, Bytes16>};

absl::Status GatherKernel(const Context& ctx, const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const Operand& indices = call.inputs[1];
  const AlongAxisLoop loop(call, indices.spec->shape);
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  TENSORD_RETURN_IF_ERROR(CheckIndices(call, 1, axis, loop.axis_size()));
  const int64_t size = SizeOf(x.spec->dtype), index_size = SizeOf(indices.spec->dtype);
  const auto gather = indices.spec->dtype == DType::kInt64
                          ? kGatherElements<int64_t>[SizeIndex(size)]
                          : kGatherElements<int32_t>[SizeIndex(size)];
  ctx.team.For(
      indices.spec->num_elements(), kGrainElements / 4,
      [&](int64_t begin, int64_t end) {
        loop.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t /*third*/, int64_t n) {
          gather({Advance(x.data, offset * size), loop.run_stride(), loop.axis_stride(),
                  loop.axis_size(), Advance(indices.data, at * index_size),
                  Advance(call.output().data, at * size), n});
        });
      },
      64);
  return absl::OkStatus();
}

}  // namespace

void AppendIndexingKernels(KernelTable& table) {
  table["index"] = IndexKernel;
  table["gather"] = GatherKernel;
}

}  // namespace tensord::server::cpu
