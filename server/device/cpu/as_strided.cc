// Kernels for views with any strides: as_strided, as_strided_scatter.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

Dims ToDims(absl::Span<const int64_t> values) { return Dims(values.begin(), values.end()); }

// Copies bytes. The engine launches no kernel for bitcast, because the result is always an alias.
absl::Status BitcastKernel(const Context& ctx, const KernelCall& call) {
  Copy(ctx, call.inputs[0].data, call.output().data, call.output().spec->size_bytes());
  return absl::OkStatus();
}

absl::Status AsStridedKernel(const Context& ctx, const KernelCall& call) {
  const int64_t bytes = SizeOf(call.output().spec->dtype);
  StridedSource source;
  source.data = Advance(call.inputs[0].data, call.attrs->Int("offset") * bytes);
  source.sizes = ToDims(call.output().spec->shape.dims());
  source.strides = ToDims(call.attrs->Ints("strides"));
  StridedCopy(ctx, std::move(source), bytes, call.output().data);
  return absl::OkStatus();
}

// The sizes and strides of a copy between two strided tensors. Axes are ordered by their strides in
// the target, the smallest one last.
struct StridedPair {
  Dims sizes, source_strides, target_strides;
};

// Makes the pair of the dense values and the view that the attributes describe. Merges neighbouring
// axes if possible.
StridedPair MakePair(const KernelCall& call) {
  const Shape& values = call.inputs[1].spec->shape;
  const std::vector<int64_t>& strides = call.attrs->Ints("strides");
  const Dims value_strides = RowMajorStrides(values);
  std::vector<int> axes(values.rank());
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return std::abs(strides[a]) > std::abs(strides[b]); });
  StridedPair pair;
  for (const int axis : axes) {
    const int64_t size = values.dim(axis), from = value_strides[axis], to = strides[axis];
    if (size == 1) continue;
    if (!pair.sizes.empty() && pair.source_strides.back() == size * from &&
        pair.target_strides.back() == size * to) {
      pair.sizes.back() *= size;
      pair.source_strides.back() = from;
      pair.target_strides.back() = to;
      continue;
    }
    pair.sizes.push_back(size);
    pair.source_strides.push_back(from);
    pair.target_strides.push_back(to);
  }
  if (pair.sizes.empty()) pair = {{1}, {1}, {1}};
  return pair;
}

template <typename Element>
void CopyRun(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
  const auto* source = static_cast<const Element*>(from);
  auto* target = static_cast<Element*>(to);
  for (int64_t i = 0; i < n; ++i) target[i * to_stride] = source[i * from_stride];
}

constexpr void (*kCopyRun[kSizeCount])(const void*, int64_t, void*, int64_t, int64_t) = {
    CopyRun<uint8_t>, CopyRun<uint16_t>, CopyRun<uint32_t>, CopyRun<uint64_t>, CopyRun<Bytes16>};

// Copies the elements [begin, end), in the order of the pair's axes.
void CopyPair(const Loops& loops, const StridedPair& pair, int64_t begin, int64_t end,
              int64_t bytes, const void* source, void* target) {
  const int64_t length = pair.sizes.back();
  const int64_t from_stride = pair.source_strides.back(), to_stride = pair.target_strides.back();
  while (begin < end) {
    int64_t left = begin / length;
    const int64_t within = begin % length, n = std::min(length - within, end - begin);
    int64_t from = within * from_stride, to = within * to_stride;
    for (size_t d = pair.sizes.size() - 1; d-- > 0;) {
      from += left % pair.sizes[d] * pair.source_strides[d];
      to += left % pair.sizes[d] * pair.target_strides[d];
      left /= pair.sizes[d];
    }
    const void* const run = Advance(source, from * bytes);
    void* const place = Advance(target, to * bytes);
    if (to_stride == 1) {
      loops.gather[SizeIndex(bytes)](run, from_stride, place, n);
    } else {
      kCopyRun[SizeIndex(bytes)](run, from_stride, place, to_stride, n);
    }
    begin += n;
  }
}

absl::Status AsStridedScatterKernel(const Context& ctx, const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const Operand& values = call.inputs[1];
  const int64_t bytes = SizeOf(x.spec->dtype);
  if (call.output().data != x.data) {
    Copy(ctx, x.data, call.output().data, x.spec->size_bytes());
  }
  const StridedPair pair = MakePair(call);
  void* const target = Advance(call.output().data, call.attrs->Int("offset") * bytes);
  ctx.team.For(values.spec->num_elements(), kGrainElements, [&](int64_t begin, int64_t end) {
    CopyPair(ctx.loops, pair, begin, end, bytes, values.data, target);
  });
  return absl::OkStatus();
}

}  // namespace

void AppendStridedKernels(KernelTable& table) {
  table["as_strided"] = AsStridedKernel;
  table["as_strided_scatter"] = AsStridedScatterKernel;
  table["bitcast"] = BitcastKernel;
}

}  // namespace tensord::server::cpu
