// Attention: PyTorch's composition of matrix products and a softmax, and the layers that PyTorch
// calls as one op in inference.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

// If this returned true, nn.TransformerEncoder would make nested tensors, which the device lacks.
bool NestedFromMaskLeftAligned(const at::Tensor&, const at::Tensor&) { return false; }

// Returns 0: the composition (at::SDPBackend::math).
int64_t FusedChoice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                    const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  return 0;
}

// Returns x with the shape (batch, heads, length, width of a head).
at::Tensor SplitHeads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// Adds the mask to the scores (batch, heads, length, length). mask_type: 0 (length, length), 1
// (batch, length), 2 (batch, heads, length, length). True in a mask of bools forbids an element.
at::Tensor Masked(const at::Tensor& scores, const std::optional<at::Tensor>& mask,
                  std::optional<int64_t> mask_type) {
  if (!IsGiven(mask)) return scores;
  at::Tensor shaped = *mask;
  if (mask_type.value_or(0) == 1 && shaped.dim() == 2)
    shaped = shaped.view({shaped.size(0), 1, 1, shaped.size(1)});
  if (shaped.scalar_type() != at::kBool) return scores + shaped;
  return scores.masked_fill(shaped, -std::numeric_limits<double>::infinity());
}

struct Attended {
  at::Tensor output, weights;
};
Attended Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                const std::optional<at::Tensor>& mask, std::optional<int64_t> mask_type) {
  const int64_t width = q.size(2) / heads;
  const at::Tensor query = SplitHeads(q, heads) * (1 / std::sqrt(static_cast<double>(width)));
  const at::Tensor scores = at::matmul(query, SplitHeads(k, heads).transpose(-2, -1));
  const at::Tensor weights = at::softmax(Masked(scores, mask, mask_type), -1);
  const at::Tensor mixed =
      at::matmul(weights, SplitHeads(v, heads)).transpose(1, 2).reshape(q.sizes());
  return {at::linear(mixed, proj_weight, proj_bias), weights};
}
at::Tensor Part(const at::Tensor& x, int64_t i, int64_t size) {
  return x.narrow(0, i * size, size);
}

std::tuple<at::Tensor, at::Tensor> MultiHeadAttention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t width,
    int64_t heads, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& proj_weight, const at::Tensor& proj_bias,
    const std::optional<at::Tensor>& mask, bool need_weights, bool average_weights,
    std::optional<int64_t> mask_type) {
  CommonDevice("_native_multi_head_attention", {&query, &key, &value, &qkv_weight, &proj_weight});
  const at::Tensor* inputs[] = {&query, &key, &value};
  at::Tensor projected[3];
  for (int i = 0; i < 3; ++i) {
    projected[i] = at::linear(*inputs[i], Part(qkv_weight, i, width), Part(qkv_bias, i, width));
  }
  const Attended made = Attend(projected[0], projected[1], projected[2], heads, proj_weight,
                               proj_bias, mask, mask_type);
  if (!need_weights) return {made.output, at::Tensor()};
  return {made.output, average_weights ? made.weights.mean(1) : made.weights};
}

at::Tensor EncoderLayer(const at::Tensor& src, int64_t width, int64_t heads,
                        const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                        const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
                        bool norm_first, double eps, const at::Tensor& norm_weight_1,
                        const at::Tensor& norm_bias_1, const at::Tensor& norm_weight_2,
                        const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
                        const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2,
                        const at::Tensor& ffn_bias_2, const std::optional<at::Tensor>& mask,
                        std::optional<int64_t> mask_type) {
  CommonDevice("_transformer_encoder_layer_fwd", {&src, &qkv_weight, &proj_weight, &ffn_weight_1});
  const auto norm1 = [&](const at::Tensor& x) {
    return at::layer_norm(x, {width}, norm_weight_1, norm_bias_1, eps);
  };
  const auto norm2 = [&](const at::Tensor& x) {
    return at::layer_norm(x, {width}, norm_weight_2, norm_bias_2, eps);
  };
  const auto attend = [&](const at::Tensor& x) {
    return std::get<0>(MultiHeadAttention(x, x, x, width, heads, qkv_weight, qkv_bias, proj_weight,
                                          proj_bias, mask, false, false, mask_type));
  };
  const auto feed = [&](const at::Tensor& x) {
    const at::Tensor hidden = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const at::Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  const at::Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", FusedChoice);
  m.impl("_nested_tensor_from_mask_left_aligned", NestedFromMaskLeftAligned);
  m.impl("_native_multi_head_attention", MultiHeadAttention);
  m.impl("_transformer_encoder_layer_fwd", EncoderLayer);
}

}  // namespace torch_tensord
