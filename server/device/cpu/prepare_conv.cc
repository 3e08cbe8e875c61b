#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/conv.h"
#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/packed_weights.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

// The multiplications, and the elements in memory, that take one thread a few microseconds.
constexpr double kMaxInlineConvProducts = 64 * 64 * 64;
constexpr int64_t kMaxInlineConvElements = 64 * 1024;

class PreparedConv final : public PreparedKernel {
 public:
  PreparedConv(const PrepareContext& ctx, ConvKind kind, const KernelSpec& spec)
      : packed_weights_(ctx.packed_weights),
        plan_(IsShort(kind, spec) ? ctx.alone : ctx.team, kind, spec.schema, *spec.attrs,
              spec.inputs, spec.output()),
        layout_(plan_.PackableWeight()) {
    runs_inline_ = IsShort(kind, spec);
    host_bytes_ = plan_.host_bytes();
  }

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    const void* const bias = inputs.size() == 3 ? inputs[2]->data() : nullptr;
    const ConvOperands operands = {inputs[0]->data(), inputs[1]->data(), bias, outputs[0]->data()};
    if (layout_ == nullptr || inputs[1]->is_view()) return plan_.Run(context, operands, nullptr);
    static_cast<const CpuBuffer*>(inputs[1])->MarkPacked();
    const auto copy = packed_weights_.Use(inputs[1], layout_);
    return plan_.Run(context, operands, copy == nullptr ? nullptr : PackedWeights::DataOf(*copy));
  }

 private:
  static bool IsShort(ConvKind kind, const KernelSpec& spec) {
    const ConvGeometry conv = ReadConvGeometry(kind, *spec.attrs, spec.inputs, spec.output());
    const double products =
        static_cast<double>(conv.y_elements()) * static_cast<double>(conv.group_in() * conv.taps());
    return products <= kMaxInlineConvProducts &&
           conv.x_elements() + conv.y_elements() + conv.weight_elements() <= kMaxInlineConvElements;
  }

  PackedWeights& packed_weights_;
  ConvPlan plan_;
  const std::shared_ptr<const PackedLayout> layout_;
};

}  // namespace

std::unique_ptr<PreparedKernel> PrepareConv(const PrepareContext& ctx, const KernelSpec& spec) {
  const std::optional<ConvKind> kind = FindConvKind(spec.schema->name);
  if (!kind.has_value() || !IsFloating(spec.output().dtype)) return nullptr;
  for (const TensorSpec& input : spec.inputs) {
    if (input.dtype != spec.output().dtype) return nullptr;
  }
  return std::make_unique<PreparedConv>(ctx, *kind, spec);
}

}  // namespace tensord::server::cpu
