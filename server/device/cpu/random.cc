#include <algorithm>
#include <limits>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cpu {
namespace {

// `highest`: the limit of values that are rounded to 16 bits.
absl::Status Run(const Context& ctx, const KernelCall& call, const RandomLoop (&table)[kDTypeCount],
                 double a, double b, float highest = std::numeric_limits<float>::infinity()) {
  const DType dtype = call.output().spec->dtype;
  const RandomLoop loop = table[Index(ComputeDType(dtype))];
  if (loop == nullptr) return NoKernel(call);
  const auto seed = static_cast<uint64_t>(call.attrs->Int("seed"));
  const int64_t size = SizeOf(dtype);
  ctx.team.For(
      call.output().spec->num_elements(), kGrainElements / 4,
      [&](int64_t begin, int64_t end) {
        if (!Is16Bit(dtype)) {
          return loop(seed, begin, end - begin, a, b, Advance(call.output().data, begin * size));
        }
        float block[kBlockElements];
        for (int64_t i = begin; i < end; i += kBlockElements) {
          const int64_t n = std::min<int64_t>(kBlockElements, end - i);
          loop(seed, i, n, a, b, block);
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

}  // namespace

void AppendRandomKernels(KernelTable& table) {
  table["uniform"] = UniformKernel;
  table["normal"] = NormalKernel;
}

}  // namespace tensord::server::cpu
