#include <string.h>

#include <algorithm>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/reduce_step.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kArgTileColumns = 64;

// The elements to search: the input, or a rearranged or converted copy of it.
struct Source {
  DType dtype = DType::kUnspecified;
  const void* data = nullptr;
  ReduceShape shape = {1, 1, 1};
  Scratch owned;
};

// Makes `source` a copy of the input in which the reduced axes are the last.
absl::Status MoveReducedLast(const Context& ctx, const KernelCall& call, Source& source) {
  const Shape& in = call.inputs[0].spec->shape;
  const std::vector<int64_t>& reduced = call.attrs->Ints("axes");
  const Dims strides = RowMajorStrides(in);
  StridedSource view;
  view.data = source.data;
  source.shape = {1, 1, 1};
  for (const bool last : {false, true}) {
    for (int axis = 0; axis < in.rank(); ++axis) {
      if (std::binary_search(reduced.begin(), reduced.end(), axis) != last) continue;
      view.sizes.push_back(in.dim(axis));
      view.strides.push_back(strides[axis]);
      (last ? source.shape.extent : source.shape.outer) *= in.dim(axis);
    }
  }
  const int64_t size = SizeOf(source.dtype);
  TENSORD_ASSIGN_OR_RETURN(source.owned, MakeScratch(call, in.num_elements() * size));
  StridedCopy(ctx, view, size, source.owned.data());
  source.data = source.owned.data();
  return absl::OkStatus();
}

absl::StatusOr<Source> MakeSource(const Context& ctx, const KernelCall& call) {
  const Operand& x = call.inputs[0];
  Source source;
  source.dtype = x.spec->dtype;
  source.data = x.data;
  std::vector<AxisGroup> groups = GroupAxes(x.spec->shape, call.attrs->Ints("axes"));
  const auto reduced = std::count_if(groups.begin(), groups.end(),
                                     [](const AxisGroup& group) { return group.reduced; });
  if (reduced == 0) {
    source.shape.outer = x.spec->num_elements();
  } else if (reduced == 1) {
    source.shape = TakeLastReduced(groups);
  } else {
    TENSORD_RETURN_IF_ERROR(MoveReducedLast(ctx, call, source));
  }
  if (Is16Bit(source.dtype)) {
    const int64_t elements = x.spec->num_elements();
    TENSORD_ASSIGN_OR_RETURN(Scratch widened, MakeScratch(call, elements * 4));
    const DType wide = ComputeDType(source.dtype);
    ConvertInParallel(ctx, source.dtype, source.data, wide, widened.data(), elements);
    source.dtype = wide;
    source.data = widened.data();
    source.owned = std::move(widened);
  }
  return source;
}

// Searches one long row. Finds the extreme element of each thread's part, then the extreme of
// these.
int64_t LongRow(const Context& ctx, const ArgLoops& loops, const char* x, int64_t n, int64_t size) {
  const int64_t parts = ctx.team.threads();
  const int64_t length = (n + parts - 1) / parts;
  std::vector<int64_t> found(parts, -1);
  ctx.team.Divide(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * length, count = std::min(length, n - first);
      if (count > 0) found[p] = first + loops.row(x + first * size, count);
    }
  });
  std::vector<char> candidates;
  std::vector<int64_t> index;
  for (const int64_t i : found) {
    if (i < 0) continue;
    candidates.insert(candidates.end(), x + i * size, x + (i + 1) * size);
    index.push_back(i);
  }
  return index[loops.row(candidates.data(), static_cast<int64_t>(index.size()))];
}

void Search(const Context& ctx, const ArgLoops& loops, const Source& source, int64_t* out) {
  const ReduceShape& shape = source.shape;
  const int64_t size = SizeOf(source.dtype);
  const auto* x = static_cast<const char*>(source.data);
  if (shape.inner == 1 && shape.outer == 1 && shape.extent >= 4 * kGrainElements) {
    *out = LongRow(ctx, loops, x, shape.extent, size);
    return;
  }
  if (shape.inner == 1) {
    const double grain = kGrainElements / static_cast<double>(shape.extent);
    ctx.team.For(shape.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        out[o] = loops.row(x + o * shape.extent * size, shape.extent);
      }
    });
    return;
  }
  const int64_t tiles = (shape.inner + kArgTileColumns - 1) / kArgTileColumns;
  const double grain = kGrainElements / static_cast<double>(shape.extent * kArgTileColumns);
  ctx.team.For(shape.outer * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / tiles, c = i % tiles * kArgTileColumns;
      loops.columns(x + (o * shape.extent * shape.inner + c) * size, shape.extent, shape.inner,
                    std::min(kArgTileColumns, shape.inner - c), out + o * shape.inner + c);
    }
  });
}

absl::Status Run(const Context& ctx, const KernelCall& call, const ArgLoops (&table)[kDTypeCount]) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const ArgLoops& loops = table[Index(ComputeDType(call.inputs[0].spec->dtype))];
  if (loops.row == nullptr || call.output().spec->dtype != DType::kInt64) return NoKernel(call);
  TENSORD_ASSIGN_OR_RETURN(const Source source, MakeSource(ctx, call));
  Search(ctx, loops, source, call.output().AsMutable<int64_t>());
  return absl::OkStatus();
}

absl::Status ArgmaxKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.argmax);
}

absl::Status ArgminKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.argmin);
}

}  // namespace

void AppendArgReductionKernels(KernelTable& table) {
  table["argmax"] = ArgmaxKernel;
  table["argmin"] = ArgminKernel;
}

}  // namespace tensord::server::cpu
