// Kernels that read elements at indices: index, gather.
#include <string.h>

#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/along_axis.h"
#include "tensord/server/device/cpu/index_check.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/positions.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

// A grain is the time in which a thread copies kGrainBytes. Finding a row costs as much as copying
// kRowCostBytes.
constexpr double kGrainBytes = 64 << 10;
constexpr double kRowCostBytes = 32;

// If a large table isn't in the caches, the processor waits for the first bytes of a row. It
// fetches the bytes after them without being asked. So the kernel prefetches the first bytes some
// rows earlier. In measurements, it then took between 25 % and 75 % less time, and 2 % more if the
// rows were in a cache.
constexpr int64_t kPrefetchedRows = 4;
constexpr int64_t kPrefetchedBytes = 256;

// If the result exceeds the caches, rows of at least this size are written without the caches.
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

// Prefetches the beginning of the row indices[i]. If i is at least n, does nothing.
template <typename T>
void PrefetchRow(const char* from, const T* indices, int64_t rows, int64_t row_bytes, int64_t i,
                 int64_t n) {
  if (i >= n) return;
  const char* const row = from + FromZero(indices[i], rows) * row_bytes;
  const int64_t bytes = std::min(row_bytes, kPrefetchedBytes);
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

template <typename T>
void CopySelectedRows(const Context& /*ctx*/, const char* from, const T* indices, int64_t rows,
                      int64_t row_bytes, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    PrefetchRow(from, indices, rows, row_bytes, i + kPrefetchedRows, n);
    memcpy(to + i * row_bytes, from + FromZero(indices[i], rows) * row_bytes, row_bytes);
  }
}

template <typename T>
void StreamSelectedRows(const Context& ctx, const char* from, const T* indices, int64_t rows,
                        int64_t row_bytes, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    PrefetchRow(from, indices, rows, row_bytes, i + kPrefetchedRows, n);
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

// Copies the rows that indices[0, count) select in each group to the rows of the output from
// `first_row` on. If `check` isn't null, it checks the indices, and `first_row` must be 0. If it is
// null, the indices must be in range.
template <typename T>
void SelectRows(const Context& ctx, const KernelCall& call, const IndexedRows& rows,
                const T* indices, int64_t first_row, int64_t count, IndexCheck* check) {
  const int64_t row_bytes = rows.row_elements * SizeOf(call.output().spec->dtype);
  const RowLoop<T> copy = RowLoopFor<T>(row_bytes, call.output().spec->size_bytes());
  const double grain = kGrainBytes / (static_cast<double>(row_bytes) + kRowCostBytes);
  ctx.team.For(rows.groups * count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; begin < end; begin += n) {
      const int64_t group = begin / count, first = begin % count;
      const int64_t to = (group * rows.count + first_row + first) * row_bytes;
      n = std::min({count - first, end - begin, IndexCheck::kBlock});
      if (check != nullptr && !check->InRange(first, first + n)) continue;
      copy(ctx, Advance(call.inputs[0].data, group * rows.rows * row_bytes), indices + first,
           rows.rows, row_bytes, Advance(call.output().data, to), n);
    }
  });
}

absl::Status IndexByTensors(const Context& ctx, const KernelCall& call, int tensors,
                            const IndexedRows& rows) {
  TENSORD_RETURN_IF_ERROR(CheckIndexTensors(ctx, call, tensors));
  const int64_t block = std::min(rows.count, kSelectedRowsBlock);
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch, MakeScratch(call, block * 8));
  auto* const selected = scratch.As<int64_t>();
  for (int64_t first = 0; first < rows.count; first += block) {
    const int64_t n = std::min(block, rows.count - first);
    TENSORD_RETURN_IF_ERROR(ComputeSelectedRows(ctx, call, tensors, rows, first, n, selected));
    SelectRows(ctx, call, rows, selected, first, n, nullptr);
  }
  return absl::OkStatus();
}

absl::Status IndexKernel(const Context& ctx, const KernelCall& call) {
  const auto tensors = static_cast<int>(call.inputs.size()) - 1;
  const IndexedRows rows = ReadIndexedRows(call, tensors);
  if (call.output().spec->num_elements() == 0) {
    return rows.count == 0 ? absl::OkStatus() : CheckIndexTensors(ctx, call, tensors);
  }
  if (tensors > 1) return IndexByTensors(ctx, call, tensors, rows);
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  IndexCheck check(ctx, call, 1, axis, rows.rows);
  if (call.inputs[1].spec->dtype == DType::kInt64) {
    SelectRows(ctx, call, rows, call.inputs[1].As<int64_t>(), 0, rows.count, &check);
  } else {
    SelectRows(ctx, call, rows, call.inputs[1].As<int32_t>(), 0, rows.count, &check);
  }
  return check.status();
}

// Before gather along a contiguous axis checks a block of indices, it asks for the elements and for
// the memory of the results. So they arrive while it reads the indices. An axis of at most this
// size stays in the first-level cache meanwhile.
constexpr int64_t kMaxPrefetchedAxisBytes = 8 << 10;

template <int kWrite>
void Prefetch(const char* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(data + at, kWrite);
}

// to[i] = from[i stride + indices[i] axis_stride], for i in [0, n).
struct GatherRun {
  const void* from;
  int64_t stride, axis_stride, axis_size;
  const void* indices;
  void* to;
  int64_t n;
  bool non_negative;  // all indices are
};

// The run is a copy, because compilers would read its members again after each write.
template <typename T, typename Element>
void GatherElements(const GatherRun run) {
  const auto* from = static_cast<const Element*>(run.from);
  const auto* indices = static_cast<const T*>(run.indices);
  auto* to = static_cast<Element*>(run.to);
  if (run.stride == 0 && run.axis_stride == 1) {  // along the last axis
    if (run.non_negative) {
      for (int64_t i = 0; i < run.n; ++i) to[i] = from[indices[i]];
      return;
    }
    for (int64_t i = 0; i < run.n; ++i) to[i] = from[FromZero(indices[i], run.axis_size)];
    return;
  }
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
  IndexCheck check(ctx, call, 1, axis, loop.axis_size());
  const int64_t size = SizeOf(x.spec->dtype), index_size = SizeOf(indices.spec->dtype);
  const auto gather = indices.spec->dtype == DType::kInt64
                          ? kGatherElements<int64_t>[SizeIndex(size)]
                          : kGatherElements<int32_t>[SizeIndex(size)];
  const bool prefetches = loop.run_stride() == 0 && loop.axis_stride() == 1 &&
                          loop.axis_size() * size <= kMaxPrefetchedAxisBytes;
  const auto gather_block = [&](int64_t begin, int64_t end) {
    if (prefetches) {
      loop.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t /*third*/, int64_t n) {
        Prefetch<0>(Advance(x.data, offset * size), std::min(n, loop.axis_size()) * size);
        Prefetch<1>(Advance(call.output().data, at * size), n * size);
      });
    }
    const IndexRange range = check.RangeOf(begin, end);
    if (range == IndexRange::kOutside) return;
    loop.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t /*third*/, int64_t n) {
      gather({Advance(x.data, offset * size), loop.run_stride(), loop.axis_stride(),
              loop.axis_size(), Advance(indices.data, at * index_size),
              Advance(call.output().data, at * size), n, range == IndexRange::kNonNegative});
    });
  };
  ctx.team.For(
      indices.spec->num_elements(), kGrainElements / 4,
      [&](int64_t begin, int64_t end) {
        for (int64_t next = 0; begin < end; begin = next) {
          next = std::min(end, begin + IndexCheck::kBlock);
          gather_block(begin, next);
        }
      },
      64);
  return check.status();
}

}  // namespace

void AppendIndexingKernels(KernelTable& table) {
  table["index"] = IndexKernel;
  table["gather"] = GatherKernel;
}

}  // namespace tensord::server::cpu
