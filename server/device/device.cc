#include "tensord/server/device/device.h"

#include <utility>

namespace tensord::server {
namespace {

class LaunchedKernel final : public PreparedKernel {
 public:
  LaunchedKernel(Device* device, const KernelSpec& spec)
      : device_(device),
        schema_(spec.schema),
        attrs_(*spec.attrs),
        inputs_(spec.inputs.begin(), spec.inputs.end()),
        outputs_(spec.outputs.begin(), spec.outputs.end()) {
    if (schema_->updates_input) SetInPlace(0);
    for (const auto& [input, output] : schema_->in_place) SetInPlace(input, output);
    for (size_t i = 0; schema_->elementwise.has_value() && i < inputs_.size(); ++i) {
      if (HasElementsOf(inputs_[i], outputs_[0])) SetInPlace(static_cast<int>(i));
    }
  }

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    absl::InlinedVector<Operand, 3> from;
    absl::InlinedVector<Operand, 1> to;
    for (size_t i = 0; i < inputs.size(); ++i) from.push_back({&inputs_[i], inputs[i]->data()});
    for (size_t i = 0; i < outputs.size(); ++i) to.push_back({&outputs_[i], outputs[i]->data()});
    return device_->Launch({context, schema_, &attrs_, from, to});
  }

 private:
  Device* const device_;
  const OpSchema* const schema_;
  const Attributes attrs_;
  const absl::InlinedVector<TensorSpec, 3> inputs_;
  const absl::InlinedVector<TensorSpec, 1> outputs_;
};

}  // namespace

absl::Status PreparedKernel::BadValueError(const CheckRecord& /*record*/) const {
  return absl::InternalError("only compositions describe the values that they report");
}

bool HasElementsOf(const TensorSpec& input, const TensorSpec& output) {
  return input.num_elements() == output.num_elements() &&
         SizeOf(input.dtype) == SizeOf(output.dtype);
}

void Device::MarkLost(const absl::Status& loss) {
  owned_loss_ = std::make_unique<const absl::Status>(loss);
  loss_.store(owned_loss_.get(), std::memory_order_release);
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> Device::Prepare(const KernelSpec& spec) {
  return std::make_unique<LaunchedKernel>(this, spec);
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> Device::PrepareFused(const FusedSpec& /*spec*/) {
  return absl::UnimplementedError("this device fuses no ops");
}

absl::Status Device::WriteBy(Buffer& dst, int64_t offset, int64_t bytes, Fill fill) {
  std::string staging(static_cast<size_t>(bytes), '\0');
  fill(0, bytes, staging.data());
  return Write(dst, offset, staging.data(), bytes);
}

absl::StatusOr<std::unique_ptr<CheckMemory>> Device::MakeCheckMemory() {
  return absl::UnimplementedError("this device's kernels report no values");
}

absl::Status Device::CollectChecks(Buffer& /*cells*/, int /*count*/, const CheckCell& /*to*/) {
  return absl::UnimplementedError("this device's kernels report no values");
}

absl::StatusOr<std::unique_ptr<KernelGraph>> Device::Capture(
    MemoryAccount& /*account*/, absl::FunctionRef<absl::Status()> /*launch*/) {
  return absl::UnimplementedError("this device has no graphs");
}

}  // namespace tensord::server
