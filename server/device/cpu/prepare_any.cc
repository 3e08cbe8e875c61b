#include <algorithm>
#include <utility>

#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

constexpr size_t kMaxInlineInputs = 8;
// A thread sorts this number of elements in 5 to 10 µs.
constexpr int64_t kMaxInlineSort = 512;

int64_t MaxElements(absl::Span<const TensorSpec> specs) {
  int64_t elements = 0;
  for (const TensorSpec& spec : specs) elements = std::max(elements, spec.num_elements());
  return elements;
}

// Returns whether one thread takes at most about 20 µs, or 10 µs for a sort.
bool IsShort(const KernelSpec& spec) {
  const int64_t inputs = MaxElements(spec.inputs), outputs = MaxElements(spec.outputs);
  const auto elements = static_cast<double>(std::max(inputs, outputs));
  switch (spec.schema->cost) {
    case OpCost::kCopy:
      return elements <= kGrainElements;
    case OpCost::kCompute:
      return elements <= kGrainElements / 4;
    case OpCost::kWindows: {
      // Each element of the result, or of the result's gradient, has a window.
      const bool is_backward = spec.attrs->Find("size") != nullptr;
      auto visited = static_cast<double>(is_backward ? inputs : outputs);
      for (int64_t size : spec.attrs->Ints("kernel")) visited *= static_cast<double>(size);
      return std::max(elements, visited) <= kGrainElements / 4;
    }
    case OpCost::kSelect: {
      // The elements that are read from a large table may not be in the caches.
      const int64_t selected = std::max(MaxElements(spec.inputs.subspan(1)), outputs);
      return elements <= kGrainElements || static_cast<double>(selected) <= kGrainElements / 4;
    }
    case OpCost::kSort: {
      // topk selects few elements before it sorts them.
      const bool selects = outputs <= inputs / 4 && outputs <= kMaxInlineSort;
      return inputs <= kMaxInlineSort || (selects && elements <= kGrainElements / 8);
    }
    case OpCost::kPairs:
      return false;
  }
  return false;
}

// A kernel of the table, with the specs of its operands.
class TableKernel final : public PreparedKernel {
 public:
  TableKernel(const PrepareContext& ctx, Kernel kernel, const KernelSpec& spec)
      : kernel_(kernel),
        schema_(spec.schema),
        attrs_(*spec.attrs),
        inputs_(spec.inputs.begin(), spec.inputs.end()),
        outputs_(spec.outputs.begin(), spec.outputs.end()),
        ctx_(RunsInline(spec) ? ctx.alone : ctx.team) {
    for (const TensorSpec& input : inputs_) operands_.push_back({&input, nullptr});
    for (const TensorSpec& output : outputs_) results_.push_back({&output, nullptr});
    runs_inline_ = &ctx_ == &ctx.alone;
    if (schema_->updates_input) SetInPlace(0);
    for (const auto& [input, output] : schema_->in_place) SetInPlace(input, output);
  }

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    for (size_t i = 0; i < inputs.size(); ++i) operands_[i].data = inputs[i]->data();
    for (size_t i = 0; i < outputs.size(); ++i) results_[i].data = outputs[i]->data();
    if (schema_->updates_input) BeforeOverwrite(*outputs[0]);
    for (const auto& pair : schema_->in_place) {  // may name outputs that this call doesn't have
      const auto output = static_cast<size_t>(pair.second);
      if (output < outputs.size()) BeforeOverwrite(*outputs[output]);
    }
    return kernel_(ctx_, {context, schema_, &attrs_, operands_, results_});
  }

 private:
  static bool RunsInline(const KernelSpec& spec) {
    return spec.inputs.size() <= kMaxInlineInputs && IsShort(spec);
  }

  const Kernel kernel_;
  const OpSchema* const schema_;
  const Attributes attrs_;
  const absl::InlinedVector<TensorSpec, 3> inputs_;
  const absl::InlinedVector<TensorSpec, 1> outputs_;
  absl::InlinedVector<Operand, 3> operands_;
  absl::InlinedVector<Operand, 1> results_;
  const Context& ctx_;
};

}  // namespace

std::unique_ptr<PreparedKernel> PrepareAny(const PrepareContext& ctx, const KernelSpec& spec) {
  const Kernel kernel = FindKernel(spec.schema->name);
  if (kernel == nullptr) return nullptr;
  return std::make_unique<TableKernel>(ctx, kernel, spec);
}

}  // namespace tensord::server::cpu
