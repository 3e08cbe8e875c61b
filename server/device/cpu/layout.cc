#include <string.h>

#include <algorithm>
#include <vector>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

// The team shares the copy of a run of at least this size.
constexpr int64_t kLongRunBytes = 16 << 20;

int64_t ElementBytes(const KernelCall& call) { return SizeOf(call.output().spec->dtype); }

absl::Status CopyKernel(const Context& ctx, const KernelCall& call) {
  Copy(ctx, call.inputs[0].data, call.output().data, call.output().spec->size_bytes());
  return absl::OkStatus();
}

absl::Status PermuteKernel(const Context& ctx, const KernelCall& call) {
  const Shape& in = call.inputs[0].spec->shape;
  const Dims strides = RowMajorStrides(in);
  StridedSource source;
  source.data = call.inputs[0].data;
  for (const int64_t axis : call.attrs->Ints("axes")) {
    source.sizes.push_back(in.dim(static_cast<int>(axis)));
    source.strides.push_back(strides[axis]);
  }
  StridedCopy(ctx, std::move(source), ElementBytes(call), call.output().data);
  return absl::OkStatus();
}

absl::Status SliceKernel(const Context& ctx, const KernelCall& call) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Shape& out = call.output().spec->shape;
  const Dims strides = RowMajorStrides(call.inputs[0].spec->shape);
  const std::vector<int64_t>& starts = call.attrs->Ints("starts");
  const std::vector<int64_t>& steps = call.attrs->Ints("steps");
  StridedSource source;
  int64_t first = 0;
  for (int axis = 0; axis < out.rank(); ++axis) {
    first += starts[axis] * strides[axis];
    source.sizes.push_back(out.dim(axis));
    // If there is one element, its step isn't used. Otherwise the product can't overflow.
    source.strides.push_back(out.dim(axis) == 1 ? 0 : strides[axis] * steps[axis]);
  }
  source.data = Advance(call.inputs[0].data, first * ElementBytes(call));
  StridedCopy(ctx, std::move(source), ElementBytes(call), call.output().data);
  return absl::OkStatus();
}

absl::Status BroadcastToKernel(const Context& ctx, const KernelCall& call) {
  StridedSource source;
  source.data = call.inputs[0].data;
  const Shape& out = call.output().spec->shape;
  source.sizes.assign(out.dims().begin(), out.dims().end());
  source.strides = BroadcastStrides(call.inputs[0].spec->shape, out);
  StridedCopy(ctx, std::move(source), ElementBytes(call), call.output().data);
  return absl::OkStatus();
}

// Each input consists of `outer` runs of memory. In the output, the first runs of all inputs come
// first, then the second runs, and so on.
absl::Status ConcatKernel(const Context& ctx, const KernelCall& call) {
  const Shape& out = call.output().spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= out.dim(i);
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const int64_t out_run = call.output().spec->size_bytes() / outer;
  int64_t offset = 0;
  for (const Operand& input : call.inputs) {
    const int64_t run = input.spec->size_bytes() / outer;
    if (run == 0) continue;
    char* to = Advance(call.output().data, offset);
    if (run >= kLongRunBytes) {
      for (int64_t i = 0; i < outer; ++i) {
        Copy(ctx, Advance(input.data, i * run), to + i * out_run, run);
      }
    } else {
      ctx.team.For(outer, 4 * kGrainElements / static_cast<double>(run),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       memcpy(to + i * out_run, Advance(input.data, i * run), run);
                     }
                   });
    }
    offset += run;
  }
  return absl::OkStatus();
}

}  // namespace

void AppendLayoutKernels(KernelTable& table) {
  table["reshape"] = CopyKernel;
  table["permute"] = PermuteKernel;
  table["slice"] = SliceKernel;
  table["concat"] = ConcatKernel;
  table["broadcast_to"] = BroadcastToKernel;
}

}  // namespace tensord::server::cpu
