#include <utility>

#include "tensord/server/device/cpu/broadcast.h"
#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

using DTypes = absl::InlinedVector<DType, kMaxElementwiseInputs>;
using Specs = absl::InlinedVector<const TensorSpec*, kMaxElementwiseInputs>;

// An elementwise op whose operands have the output's shape or one element.
class DenseElementwise final : public PreparedKernel {
 public:
  DenseElementwise(const PrepareContext& ctx, const ElementwiseLoop& loop, const KernelSpec& spec)
      : loop_(loop),
        team_(ctx.team.team),
        n_(spec.output().num_elements()),
        output_bytes_(SizeOf(spec.output().dtype)) {
    for (int i = 0; i < loop.inputs(); ++i) {
      const TensorSpec& input = spec.inputs[i];
      step_[i] = input.num_elements() == n_ ? 1 : 0;
      input_bytes_[i] = step_[i] * SizeOf(input.dtype);
      if (loop.MayOverwrite(i) && HasElementsOf(input, spec.output())) {
        SetInPlace(i);
      }
    }
    runs_inline_ = n_ < 2 * loop.grain();
  }

  absl::Status Launch(const LaunchContext& /*context*/, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    const void* x[kMaxElementwiseInputs];
    for (int i = 0; i < loop_.inputs(); ++i) x[i] = inputs[i]->data();
    Buffer* const output = outputs[0];
    BeforeOverwrite(*output);
    if (runs_inline_) {
      loop_.Run(x, step_, output->data(), n_);
    } else {
      RunByTeam(x, output->data());
    }
    return absl::OkStatus();
  }

 private:
  void RunByTeam(const void* const* x, void* y) const {
    team_.For(
        n_, loop_.grain(),
        [&](int64_t begin, int64_t end) {
          const void* from[kMaxElementwiseInputs];
          for (int i = 0; i < loop_.inputs(); ++i) from[i] = Advance(x[i], begin * input_bytes_[i]);
          loop_.Run(from, step_, Advance(y, begin * output_bytes_), end - begin);
        },
        kBlockElements);
  }

  const ElementwiseLoop loop_;
  const Team& team_;
  const int64_t n_;
  const int64_t output_bytes_;
  int step_[kMaxElementwiseInputs] = {};
  int64_t input_bytes_[kMaxElementwiseInputs] = {};  // per element of the output; 0: one for all
};

class BroadcastElementwise final : public PreparedKernel {
 public:
  BroadcastElementwise(const PrepareContext& ctx, const ElementwiseLoop& loop,
                       const KernelSpec& spec, const BroadcastNest& nest)
      : loop_(loop), nest_(nest), ctx_(nest.elements < 2 * loop.grain() ? ctx.alone : ctx.team) {
    for (int i = 0; i < loop.inputs(); ++i) {
      if (loop.MayOverwrite(i) && HasElementsOf(spec.inputs[i], spec.output())) {
        SetInPlace(i);
      }
    }
    runs_inline_ = &ctx_ == &ctx.alone;
  }

  absl::Status Launch(const LaunchContext& /*context*/, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    const void* x[kMaxElementwiseInputs];
    for (int i = 0; i < loop_.inputs(); ++i) x[i] = inputs[i]->data();
    Buffer* const output = outputs[0];
    BeforeOverwrite(*output);
    ForEachRun(ctx_, nest_, x, output->data(), loop_.grain(), [this](const BroadcastRun& run) {
      loop_.Run(run.data, run.step, run.output, run.n);
    });
    return absl::OkStatus();
  }

 private:
  const ElementwiseLoop loop_;
  const BroadcastNest nest_;
  const Context& ctx_;
};

// Returns a fused kernel of one step, which writes to memory without the caches. Returns null if
// there is none.
std::unique_ptr<PreparedKernel> PrepareLarge(const PrepareContext& ctx, const KernelSpec& spec) {
  FusedSpec::Step step = {spec.schema, spec.attrs, {}, spec.output().dtype};
  for (size_t i = 0; i < spec.inputs.size(); ++i) step.operands.push_back(static_cast<int>(i));
  absl::StatusOr<std::unique_ptr<PreparedKernel>> fused =
      PrepareFusedElementwise(ctx, {spec.inputs, absl::MakeConstSpan(&step, 1), &spec.output()});
  return fused.ok() ? *std::move(fused) : nullptr;
}

}  // namespace

std::unique_ptr<PreparedKernel> PrepareElementwise(const PrepareContext& ctx,
                                                   const KernelSpec& spec) {
  DTypes dtypes;
  Specs specs;
  for (const TensorSpec& input : spec.inputs) {
    dtypes.push_back(input.dtype);
    specs.push_back(&input);
  }
  const std::optional<ElementwiseLoop> loop =
      ElementwiseLoop::Find(ctx.team.loops, *spec.schema, *spec.attrs, dtypes, spec.output().dtype);
  if (!loop.has_value()) return nullptr;
  if (ExceedsCaches(spec.output().size_bytes())) {
    if (std::unique_ptr<PreparedKernel> large = PrepareLarge(ctx, spec)) return large;
  }
  const int64_t n = spec.output().num_elements();
  for (const TensorSpec& input : spec.inputs) {
    if (input.num_elements() != n && (input.num_elements() != 1 || n == 0)) {
      return std::make_unique<BroadcastElementwise>(ctx, *loop, spec,
                                                    MakeNest(specs, spec.output()));
    }
  }
  return std::make_unique<DenseElementwise>(ctx, *loop, spec);
}

namespace {

absl::Status ElementwiseKernel(const Context& ctx, const KernelCall& call) {
  DTypes dtypes;
  Specs specs;
  const void* x[kMaxElementwiseInputs];
  if (call.inputs.size() > kMaxElementwiseInputs) return NoKernel(call);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    dtypes.push_back(call.inputs[i].spec->dtype);
    specs.push_back(call.inputs[i].spec);
    x[i] = call.inputs[i].data;
  }
  const std::optional<ElementwiseLoop> loop = ElementwiseLoop::Find(
      ctx.loops, *call.schema, *call.attrs, dtypes, call.output().spec->dtype);
  if (!loop.has_value()) return NoKernel(call);
  ForEachRun(
      ctx, MakeNest(specs, *call.output().spec), x, call.output().data, loop->grain(),
      [&loop](const BroadcastRun& run) { loop->Run(run.data, run.step, run.output, run.n); });
  return absl::OkStatus();
}

}  // namespace

void AppendElementwiseKernels(KernelTable& table) {
  for (const OpSchema* schema : AllOps()) {
    if (schema->elementwise.has_value()) table[schema->name] = ElementwiseKernel;
  }
}

}  // namespace tensord::server::cpu
