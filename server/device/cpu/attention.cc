#include "tensord/server/device/cpu/attention.h"

#include <cstring>
#include <limits>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cpu {
namespace {

// Returns the leading dimensions `heads` of q with their strides in the mask.
StridedAxes FindMaskHeads(const Shape& mask, const Shape& heads) {
  const int leading = std::max(0, mask.rank() - 2);
  int64_t matrix = 1;
  for (int d = leading; d < mask.rank(); ++d) matrix *= mask.dim(d);
  StridedAxes axes = {Dims(heads.dims().begin(), heads.dims().end()),
                      BroadcastStrides(Shape(mask.dims().first(leading)), heads)};
  for (int64_t& stride : axes.strides) stride *= matrix;
  return axes;
}

}  // namespace

AttentionArgs::AttentionArgs(const KernelCall& call, size_t q_input, size_t optional)
    : dtype(call.inputs[q_input].spec->dtype),
      q(call.inputs[q_input].data),
      k(call.inputs[q_input + 1].data),
      v(call.inputs[q_input + 2].data),
      scale(call.attrs->Float("scale")),
      causal(call.attrs->Bool("causal")) {
  const Shape& of_q = call.inputs[q_input].spec->shape;
  const Shape& of_k = call.inputs[q_input + 1].spec->shape;
  const Shape& of_v = call.inputs[q_input + 2].spec->shape;
  const int rank = of_q.rank();
  for (int d = 0; d < rank - 2; ++d) items *= of_k.dim(d);
  if (rank >= 3) group = of_k.dim(rank - 3) == 0 ? 0 : of_q.dim(rank - 3) / of_k.dim(rank - 3);
  length = of_q.dim(rank - 2);
  keys = of_k.dim(rank - 2);
  depth = of_q.dim(rank - 1);
  value_depth = of_v.dim(rank - 1);

  size_t next = optional;
  const auto inputs = call.inputs.size();
  if (inputs > next && call.inputs[next].spec->dtype != DType::kInt64) {
    const TensorSpec& spec = *call.inputs[next].spec;
    mask = call.inputs[next++].data;
    mask_is_bool = spec.dtype == DType::kBool;
    const int axes = spec.shape.rank();
    const int64_t width = axes < 1 ? 1 : spec.shape.dim(axes - 1);
    mask_key = width == 1 ? 0 : 1;
    mask_row = axes < 2 || spec.shape.dim(axes - 2) == 1 ? 0 : width;
    mask_heads = FindMaskHeads(spec.shape, Shape(of_q.dims().first(rank - 2)));
  }
  const double p = call.attrs->Float("dropout_p");
  drops = p > 0;
  rule = MakeDropoutRule(p);
  if (inputs > next) {
    const auto* state = call.inputs[next].As<uint64_t>();
    stream = {state[0], state[1]};
  } else {
    stream = {static_cast<uint64_t>(call.attrs->Int("seed")),
              static_cast<uint64_t>(call.attrs->Int("stream"))};
  }
}

int64_t EndOfKeys(const AttentionArgs& args, const RowBlock& block) {
  int64_t end = 0;
  for (int64_t r = 0; r < block.count; ++r) {
    end = std::max(end, args.EndOfKeys(block.first + r));
  }
  return end;
}

template <typename T>
MatrixRows<T> LoadRows(const Context& ctx, DType dtype, const void* x, int64_t first, int64_t count,
                       int64_t cols, int64_t padded, T* room) {
  const void* const from = Advance(x, first * cols * SizeOf(dtype));
  if (dtype == kDTypeOf<T> && cols == padded) return {static_cast<const T*>(from), cols};
  if (cols == padded) {
    Convert(ctx.loops, dtype, from, kDTypeOf<T>, room, count * cols);
    return {room, padded};
  }
  for (int64_t r = 0; r < count; ++r) {
    T* const row = room + r * padded;
    Convert(ctx.loops, dtype, Advance(from, r * cols * SizeOf(dtype)), kDTypeOf<T>, row, cols);
    std::fill(row + cols, row + padded, T{0});
  }
  return {room, padded};
}

template <typename T>
void FillBias(const AttentionArgs& args, const RowBlock& block, int64_t key, int64_t keys,
              int64_t stride, T* out) {
  int64_t of_head = 0;
  for (int64_t r = 0; r < block.count; ++r) {
    const int64_t row = block.first + r, row_of_head = row % args.length;
    if (r == 0 || row_of_head == 0) {
      of_head = args.mask_heads.ComputeOffset(block.item * args.group + row / args.length);
    }
    const int64_t at = of_head + row_of_head * args.mask_row + key * args.mask_key;
    T* const to = out + r * stride;
    if (args.mask_is_bool) {
      const auto* from = static_cast<const uint8_t*>(args.mask) + at;
      const T excluded = -std::numeric_limits<T>::infinity();
      if (args.mask_key == 0) {
        std::fill(to, to + keys, *from != 0 ? T{0} : excluded);
      } else {
        for (int64_t j = 0; j < keys; ++j) to[j] = from[j] != 0 ? T{0} : excluded;
      }
    } else {
      const auto* from = static_cast<const T*>(args.mask) + at;
      if (args.mask_key == 0) {
        std::fill(to, to + keys, *from);
      } else {
        std::memcpy(to, from, keys * sizeof(T));
      }
    }
  }
}

template <typename T>
void FillFactors(const Context& ctx, const AttentionArgs& args, const RowBlock& block, int64_t key,
                 int64_t keys, int64_t stride, const T* ones, T* out) {
  const DropoutLoop loop = ctx.loops.dropout[Index(kDTypeOf<T>)];
  for (int64_t r = 0; r < block.count; ++r) {
    const int64_t row = block.item * args.rows() + block.first + r;
    loop(args.stream, row * args.keys + key, keys, args.rule, ones, out + r * stride, nullptr);
  }
}

template <typename T>
bool FillLimits(const AttentionArgs& args, const RowBlock& block, int64_t key, int64_t keys,
                T* limits) {
  if (!args.causal) return false;
  bool limited = false;
  for (int64_t r = 0; r < block.lanes; ++r) {
    const int64_t end = r < block.count ? args.EndOfKeys(block.first + r) - key : keys;
    const int64_t limit = std::clamp<int64_t>(end, 0, keys);
    limits[r] = static_cast<T>(limit);
    limited = limited || limit < keys;
  }
  return limited;
}

#define TENSORD_INSTANTIATE(T)                                                                     \
  template MatrixRows<T> LoadRows<T>(const Context&, DType, const void*, int64_t, int64_t,         \
                                     int64_t, int64_t, T*);                                        \
  template void FillBias<T>(const AttentionArgs&, const RowBlock&, int64_t, int64_t, int64_t, T*); \
  template void FillFactors<T>(const Context&, const AttentionArgs&, const RowBlock&, int64_t,     \
                               int64_t, int64_t, const T*, T*);                                    \
  template bool FillLimits<T>(const AttentionArgs&, const RowBlock&, int64_t, int64_t, T*);
TENSORD_INSTANTIATE(float)
TENSORD_INSTANTIATE(double)
#undef TENSORD_INSTANTIATE

void AppendAttentionKernels(KernelTable& table) {
  table["sdpa"] = SdpaKernel;
  table["sdpa_backward"] = SdpaBackwardKernel;
}

}  // namespace tensord::server::cpu
