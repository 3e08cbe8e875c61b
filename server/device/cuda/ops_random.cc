// Ops that draw random numbers.
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/random.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cuda {
namespace {

// Returns the stream that the attributes name, or the input `state` if there is one. It is input
// `position`.
RandomSource SourceOf(const KernelCall& call, size_t position) {
  RandomSource source;
  if (call.inputs.size() > position) {
    source.state = call.inputs[position].As<uint64_t>();
  } else {
    source.stream = {static_cast<uint64_t>(call.attrs->Int("seed")),
                     static_cast<uint64_t>(call.attrs->Int("stream"))};
  }
  return source;
}

absl::Status RunRandom(const KernelCall& call, KernelContext& context,
                       const ByDType<RandomLauncher>& launchers, const char* a, const char* b) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const RandomLauncher launch = launchers[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.output().data, SourceOf(call, 0), call.attrs->Float(a),
                                   call.attrs->Float(b), size, context.stream));
}

absl::Status RunRandint(const KernelCall& call, KernelContext& context) {
  const TensorSpec& spec = *call.output().spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const auto low = static_cast<uint64_t>(call.attrs->Int("low"));
  const RandintRange range = {low, static_cast<uint64_t>(call.attrs->Int("high")) - low};
  return LaunchStatus(call,
                      LaunchRandint(call.output().data, static_cast<int>(SizeOf(spec.dtype)),
                                    SourceOf(call, 0), range, spec.num_elements(), context.stream));
}

absl::Status RunDropout(const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const DropoutLauncher launch = DropoutLaunchers()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  uint8_t* const mask = call.outputs.size() > 1 ? call.outputs[1].AsMutable<uint8_t>() : nullptr;
  return LaunchStatus(call, launch(call.inputs[0].data, call.output().data, mask, SourceOf(call, 1),
                                   MakeDropoutRule(call.attrs->Float("p")), size, context.stream));
}

}  // namespace

void AppendRandomKernels(KernelTable& table) {
  table["uniform"] = [](const KernelCall& call, KernelContext& context) {
    return RunRandom(call, context, UniformLaunchers(), "low", "high");
  };
  table["normal"] = [](const KernelCall& call, KernelContext& context) {
    return RunRandom(call, context, NormalLaunchers(), "mean", "stddev");
  };
  table["randint"] = RunRandint;
  table["dropout"] = RunDropout;
}

}  // namespace tensord::server::cuda
