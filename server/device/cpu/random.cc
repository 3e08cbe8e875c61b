#include <algorithm>
#include <limits>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cpu {
namespace {

constexpr double kRandomGrain = kGrainElements / 4;

// Returns the stream that the attributes name, or the input `state` if there is one. It is input
// `position`.
RandomStream StreamOf(const KernelCall& call, size_t position) {
  if (call.inputs.size() == position) {
    return {static_cast<uint64_t>(call.attrs->Int("seed")),
            static_cast<uint64_t>(call.attrs->Int("stream"))};
  }
  const auto* state = call.inputs[position].As<uint64_t>();
  return {state[0], state[1]};
}

// Values that are then rounded to 16 bits are at most `highest`.
absl::Status Run(const Context& ctx, const KernelCall& call, const RandomLoop (&table)[kDTypeCount],
                 double a, double b, float highest = std::numeric_limits<float>::infinity()) {
  const DType dtype = call.output().spec->dtype;
  const RandomLoop loop = table[Index(ComputeDType(dtype))];
  if (loop == nullptr) return NoKernel(call);
  const RandomStream stream = StreamOf(call, 0);
  const int64_t size = SizeOf(dtype);
  ctx.team.For(
      call.output().spec->num_elements(), kRandomGrain,
      [&](int64_t begin, int64_t end) {
        if (!Is16Bit(dtype)) {
          return loop(stream, begin, end - begin, a, b, Advance(call.output().data, begin * size));
        }
        float block[kBlockElements];
        for (int64_t i = begin; i < end; i += kBlockElements) {
          const int64_t n = std::min<int64_t>(kBlockElements, end - i);
          loop(stream, i, n, a, b, block);
          for (int64_t k = 0; k < n; ++k) block[k] = std::min(block[k], highest);
          Convert(ctx.loops, DType::kFloat32, block, dtype, Advance(call.output().data, i * size),
                  n);
        }
      },
      kBlockElements);
  return absl::OkStatus();
}

absl::Status UniformKernel(const Context& ctx, const KernelCall& call) {
  const double low = call.attrs->Float("low"), high = call.attrs->Float("high");
  const auto highest_below =
      call.output().spec->dtype == DType::kFloat16 ? HighestBelow<Half> : HighestBelow<BFloat16>;
  return Run(ctx, call, ctx.loops.uniform, low, high,
             highest_below(static_cast<float>(low), static_cast<float>(high)));
}

absl::Status NormalKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.normal, call.attrs->Float("mean"), call.attrs->Float("stddev"));
}

absl::Status RandintKernel(const Context& ctx, const KernelCall& call) {
  if (!IsInteger(call.output().spec->dtype)) return NoKernel(call);
  const int64_t size = SizeOf(call.output().spec->dtype);
  const RandintLoop loop = ctx.loops.randint[SizeIndex(size)];
  const auto low = static_cast<uint64_t>(call.attrs->Int("low"));
  const RandintRange range = {low, static_cast<uint64_t>(call.attrs->Int("high")) - low};
  const RandomStream stream = StreamOf(call, 0);
  ctx.team.For(
      call.output().spec->num_elements(), kRandomGrain,
      [&](int64_t begin, int64_t end) {
        loop(stream, begin, end - begin, range, Advance(call.output().data, begin * size));
      },
      kBlockElements);
  return absl::OkStatus();
}

absl::Status DropoutKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output().spec->dtype;
  const DropoutLoop loop = ctx.loops.dropout[Index(ComputeDType(dtype))];
  if (loop == nullptr) return NoKernel(call);
  const DropoutRule rule = MakeDropoutRule(call.attrs->Float("p"));
  const RandomStream stream = StreamOf(call, 1);
  uint8_t* const mask = call.outputs.size() > 1 ? call.outputs[1].AsMutable<uint8_t>() : nullptr;
  const void* x = call.inputs[0].data;
  void* y = call.output().data;
  const int64_t size = SizeOf(dtype);
  const auto run = [&](int64_t begin, int64_t end) {
    uint8_t* const kept = mask == nullptr ? nullptr : mask + begin;
    const void* from = Advance(x, begin * size);
    void* to = Advance(y, begin * size);
    if (!Is16Bit(dtype)) return loop(stream, begin, end - begin, rule, from, to, kept);
    float block[kBlockElements];
    for (int64_t i = begin; i < end; i += kBlockElements) {
      const int64_t n = std::min<int64_t>(kBlockElements, end - i);
      Convert(ctx.loops, dtype, Advance(x, i * size), DType::kFloat32, block, n);
      loop(stream, i, n, rule, block, block, mask == nullptr ? nullptr : mask + i);
      Convert(ctx.loops, DType::kFloat32, block, dtype, Advance(y, i * size), n);
    }
  };
  ctx.team.For(call.output().spec->num_elements(), kRandomGrain, run, kBlockElements);
  return absl::OkStatus();
}

}  // namespace

void AppendRandomKernels(KernelTable& table) {
  table["uniform"] = UniformKernel;
  table["normal"] = NormalKernel;
  table["randint"] = RandintKernel;
  table["dropout"] = DropoutKernel;
}

}  // namespace tensord::server::cpu
