#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/cpu_buffer.h"
#include "tensord/server/device/cpu/gemm.h"
#include "tensord/server/device/cpu/packed_weights.h"
#include "tensord/server/device/cpu/prepare.h"

namespace tensord::server::cpu {
namespace {

// The most elements that an inline product reads and writes. One thread takes a few microseconds for
// them.
constexpr int64_t kMaxInlineElements = 64 * 1024;
// Packing pays off if the weight isn't small and the other operand has few rows (kMaxPackedRows).
constexpr int64_t kMinPackedElements = 64 * 1024;

class PreparedProduct final : public PreparedKernel {
 public:
  PreparedProduct(const PrepareContext& ctx, const KernelSpec& spec, bool linear);

  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override;

 private:
  void FindLibraryProducts();
  bool RunsInline() const;
  KernelCall Call(const LaunchContext& context) {
    return {context, schema_, &attrs_, operands_, absl::MakeConstSpan(&result_, 1)};
  }
  absl::StatusOr<bool> RunPacked(const KernelCall& call, const Buffer& weight, const void* a,
                                 const void* bias, void* c);

  const OpSchema* const schema_;
  const Attributes attrs_;
  const absl::InlinedVector<TensorSpec, 3> inputs_;
  const TensorSpec output_;
  const bool linear_;
  absl::InlinedVector<Operand, 3> operands_;
  const Operand result_{&output_, nullptr};
  BatchedGemm gemm_;
  std::optional<UnaryFunction> activation_;
  PackedWeights& packed_weights_;
  const Context* ctx_;
  // product_ is null unless oneDNN computes everything. packed_product_ is null unless it can then
  // read a packed weight.
  std::shared_ptr<OneDnnProduct> product_, packed_product_;
  std::shared_ptr<const PackedLayout> layout_;  // of the packed weight
};

PreparedProduct::PreparedProduct(const PrepareContext& ctx, const KernelSpec& spec, bool linear)
    : schema_(spec.schema),
      attrs_(*spec.attrs),
      inputs_(spec.inputs.begin(), spec.inputs.end()),
      output_(spec.output()),
      linear_(linear),
      packed_weights_(ctx.packed_weights),
      ctx_(&ctx.team) {
  for (const TensorSpec& input : inputs_) operands_.push_back({&input, nullptr});
  gemm_ = linear ? LinearGemm(operands_, result_) : MatmulGemm(attrs_, operands_, result_);
  if (linear) activation_ = FindActivation(attrs_.String("activation"));
  runs_inline_ = RunsInline();
  if (runs_inline_) ctx_ = &ctx.alone;
  FindLibraryProducts();
}

bool PreparedProduct::RunsInline() const {
  const double products = static_cast<double>(gemm_.items) * gemm_.products();
  const int64_t elements = gemm_.a_elements + gemm_.b_elements + output_.num_elements();
  const bool by_library = gemm_.dtype == DType::kFloat32 || gemm_.dtype == DType::kFloat64;
  return products <= (by_library ? kMaxInlineMultiplications : kMaxInlineMultiplications / 8) &&
         elements <= kMaxInlineElements;
}

void PreparedProduct::FindLibraryProducts() {
  const bool float32 = gemm_.dtype == DType::kFloat32;
  if (gemm_.items != 1 || gemm_.k == 0 || (!float32 && gemm_.dtype != DType::kBFloat16)) return;
  if (!PrefersOneDnn(gemm_) || !OneDnnHas(activation_)) return;
  OneDnnMatmul matmul = MakeOneDnnMatmul(*ctx_, gemm_, inputs_.size() == 3, activation_);
  // If this fails, Launch() calls RunLinear() or RunGemm(), which return the error or don't need
  // oneDNN.
  auto product = ctx_->onednn.Find(matmul);
  if (!product.ok()) return;
  product_ = *std::move(product);
  host_bytes_ = OneDnn::HostBytes(*product_);
  if (gemm_.m > OneDnn::kMaxPackedRows || gemm_.b_elements < kMinPackedElements) return;
  matmul.packed_b = true;
  auto packed = ctx_->onednn.Find(matmul);
  if (!packed.ok()) return;
  packed_product_ = *std::move(packed);
  layout_ = ctx_->onednn.LayoutOf(packed_product_);
  host_bytes_ += OneDnn::HostBytes(*packed_product_);
}

absl::StatusOr<bool> PreparedProduct::RunPacked(const KernelCall& call, const Buffer& weight,
                                                const void* a, const void* bias, void* c) {
  static_cast<const CpuBuffer&>(weight).MarkPacked();
  const auto copy = packed_weights_.Use(&weight, layout_);
  if (copy == nullptr) return false;
  TENSORD_RETURN_IF_ERROR(
      RunProduct(*ctx_, call, *packed_product_, a, PackedWeights::DataOf(*copy), bias, c));
  return true;
}

absl::Status PreparedProduct::Launch(const LaunchContext& context,
                                     absl::Span<const Buffer* const> inputs,
                                     absl::Span<Buffer* const> outputs) {
  const KernelCall call = Call(context);
  Buffer* const output = outputs[0];
  const void* a = inputs[0]->data();
  const void* b = inputs[1]->data();
  const void* bias = inputs.size() == 3 ? inputs[2]->data() : nullptr;
  if (packed_product_ != nullptr && !inputs[1]->is_view()) {
    TENSORD_ASSIGN_OR_RETURN(const bool done, RunPacked(call, *inputs[1], a, bias, output->data()));
    if (done) return absl::OkStatus();
  }
  if (product_ != nullptr) return RunProduct(*ctx_, call, *product_, a, b, bias, output->data());
  gemm_.a = a;
  gemm_.b = b;
  gemm_.c = output->data();
  if (linear_) return RunLinear(*ctx_, call, gemm_, bias, activation_);
  return RunGemm(*ctx_, call, gemm_);
}

}  // namespace

std::unique_ptr<PreparedKernel> PrepareProduct(const PrepareContext& ctx, const KernelSpec& spec) {
  const bool linear = spec.schema->name == "linear";
  if (!linear && spec.schema->name != "matmul") return nullptr;
  const DType dtype = spec.output().dtype;
  if (spec.output().num_elements() == 0 || (linear && !IsFloating(dtype))) return nullptr;
  for (const TensorSpec& input : spec.inputs) {
    if (input.dtype != dtype) return nullptr;
  }
  return std::make_unique<PreparedProduct>(ctx, spec, linear);
}

}  // namespace tensord::server::cpu
