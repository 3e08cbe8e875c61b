// Kernels that write elements at indices: index_put, scatter.
#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/along_axis.h"
#include "tensord/server/device/cpu/index_check.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/positions.h"
#include "tensord/server/device/cpu/scatter_elements.h"
#include "tensord/server/device/cpu/strided_copy.h"
#include "tensord/server/device/cpu/updates.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// Copies input 0 to the output, unless both have the same memory.
void CopyTarget(const Context& ctx, const KernelCall& call) {
  if (call.output().data == call.inputs[0].data) return;
  Copy(ctx, call.inputs[0].data, call.output().data, call.output().spec->size_bytes());
}

absl::Status IndexPutKernel(const Context& ctx, const KernelCall& call) {
  const auto tensors = static_cast<int>(call.inputs.size()) - 2;
  const IndexedRows rows = ReadIndexedRows(call, tensors);
  if (call.output().spec->num_elements() == 0) {
    return rows.count == 0 ? absl::OkStatus() : CheckIndexTensors(ctx, call, tensors);
  }
  TENSORD_RETURN_IF_ERROR(CheckIndexTensors(ctx, call, tensors));
  const Combine combine = ReadCombine(call);
  const Operand& values = call.inputs.back();
  // 16-bit rows are combined in another dtype and rounded once, so they need all updates at once.
  const bool whole = combine != Combine::kReplace && Is16Bit(values.spec->dtype);
  const int64_t block = whole ? rows.count : std::min(rows.count, kSelectedRowsBlock);
  TENSORD_ASSIGN_OR_RETURN(const Scratch selected, MakeScratch(call, block * 8));
  Updates updates;
  updates.groups = rows.groups;
  updates.rows = rows.rows;
  updates.row_elements = rows.row_elements;
  updates.destinations = selected.As<int64_t>();
  updates.values = values.data;
  updates.values_stride = rows.count;
  updates.one_value = values.spec->shape.rank() == 0;
  Scratch row;
  if (updates.one_value && rows.row_elements > 1) {
    const int64_t bytes = SizeOf(values.spec->dtype);
    TENSORD_ASSIGN_OR_RETURN(row, MakeScratch(call, rows.row_elements * bytes));
    Fill(ctx, values.data, bytes, row.data(), rows.row_elements);
    updates.values = row.data();
  }
  CopyTarget(ctx, call);
  for (int64_t first = 0; first < rows.count; first += block) {
    updates.count = std::min(block, rows.count - first);
    TENSORD_RETURN_IF_ERROR(ComputeSelectedRows(ctx, call, tensors, rows, first, updates.count,
                                                selected.As<int64_t>()));
    TENSORD_RETURN_IF_ERROR(ApplyUpdates(ctx, call, combine, updates));
    if (updates.one_value) continue;
    updates.values =
        Advance(updates.values, updates.count * rows.row_elements * SizeOf(values.spec->dtype));
  }
  return absl::OkStatus();
}

// Computes the position to which scatter writes each value, in the order of the indices. If
// `sources` isn't null, also computes the position of each value.
template <typename T>
void FindDestinations(const Context& ctx, const AlongAxisLoop& loop, const T* indices, int64_t n,
                      int64_t* destinations, int64_t* sources) {
  ctx.team.For(n, kGrainElements / 4, [&](int64_t begin, int64_t end) {
    loop.ForEachRun(begin, end, [&](int64_t at, int64_t offset, int64_t source, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        destinations[at + i] = offset + i * loop.run_stride() +
                               FromZero(indices[at + i], loop.axis_size()) * loop.axis_stride();
      }
      if (sources == nullptr) return;
      for (int64_t i = 0; i < length; ++i) sources[at + i] = source + i * loop.third_run_stride();
    });
  });
}

// Returns whether x and the indices have the same sizes before `axis`. Then values with different
// indices on these axes have different destinations.
bool HasGroups(const Shape& x, const Shape& indices, int axis) {
  for (int d = 0; d < axis; ++d) {
    if (x.dim(d) != indices.dim(d)) return false;
  }
  return true;
}

// The operands of scatter, and the number of groups. If HasGroups() is false, there is one group.
struct ScatterArgs {
  explicit ScatterArgs(const KernelCall& call)
      : indices(call.inputs[1]),
        values(call.inputs[2]),
        one_value(values.spec->shape.rank() == 0),
        axis(static_cast<int>(call.attrs->Int("axis"))) {
    const Shape& x = call.inputs[0].spec->shape;
    grouped = HasGroups(x, indices.spec->shape, axis);
    for (int d = 0; grouped && d < axis; ++d) groups *= x.dim(d);
  }

  const Operand& indices;
  const Operand& values;
  const bool one_value;
  const int axis;
  bool grouped = false;
  int64_t groups = 1;
};

// Combines single elements of a 16-bit dtype.
absl::Status Scatter16Bit(const Context& ctx, const KernelCall& call, Combine combine,
                          const ScatterArgs& args, const AlongAxisLoop& loop) {
  const Operand& indices = args.indices;
  const bool in_order = args.one_value || args.values.spec->shape == indices.spec->shape;
  const int64_t n = indices.spec->num_elements();
  const auto bytes = (in_order ? n : 2 * n) * static_cast<int64_t>(sizeof(int64_t));
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch, MakeScratch(call, bytes));
  auto* const destinations = scratch.As<int64_t>();
  int64_t* const sources = in_order ? nullptr : destinations + n;
  if (indices.spec->dtype == DType::kInt64) {
    FindDestinations(ctx, loop, indices.As<int64_t>(), n, destinations, sources);
  } else {
    FindDestinations(ctx, loop, indices.As<int32_t>(), n, destinations, sources);
  }
  TENSORD_RETURN_IF_ERROR(CheckStop());
  Updates updates;
  updates.groups = args.groups;
  updates.rows = call.output().spec->num_elements() / args.groups;
  updates.count = n / args.groups;
  updates.destinations = destinations;
  updates.group_stride = updates.count;
  updates.values = args.values.data;
  updates.values_stride = updates.count;
  updates.sources = sources;
  updates.one_value = args.one_value;
  return ApplyUpdates(ctx, call, combine, updates);
}

absl::Status ScatterKernel(const Context& ctx, const KernelCall& call) {
  const ScatterArgs args(call);
  const AlongAxisLoop loop(call, args.values.spec->shape, args.grouped);
  const Combine combine = ReadCombine(call);
  const bool is_16bit = combine != Combine::kReplace && Is16Bit(args.values.spec->dtype);
  if (!is_16bit && HasSmallGroups(ctx, call, args.groups)) {
    IndexCheck check(ctx, call, 1, args.axis, loop.axis_size());
    ScatterGroups(ctx, call, combine, loop, args.groups, &check);
    return check.status();
  }
  TENSORD_RETURN_IF_ERROR(CheckIndices(ctx, call, 1, args.axis, loop.axis_size()));
  CopyTarget(ctx, call);
  if (is_16bit) return Scatter16Bit(ctx, call, combine, args, loop);
  ScatterElements(ctx, call, combine, loop, args.groups);
  return absl::OkStatus();
}

}  // namespace

void AppendScatterKernels(KernelTable& table) {
  table["index_put"] = IndexPutKernel;
  table["scatter"] = ScatterKernel;
}

}  // namespace tensord::server::cpu
