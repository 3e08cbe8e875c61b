// Attention as an op of the server, and the layers that PyTorch calls as one op in inference. If
// the op can't compute an attention, PyTorch's composition of matrix products and a softmax does.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include "generator.h"
#include "graph.h"
#include "kernels.h"

namespace torch_tensord {
namespace {

// If this returned true, nn.TransformerEncoder would make nested tensors, which the device lacks.
bool NestedFromMaskLeftAligned(const at::Tensor&, const at::Tensor&) { return false; }

// Returns whether the tensor is one of vmap() or of forward-mode differentiation, which the
// server's op lacks.
bool IsTransformed(const at::Tensor& x) {
  return x.key_set().has(c10::DispatchKey::FuncTorchBatched) || x._fw_grad(/*level=*/0).defined();
}

// Returns whether the server's op computes this attention. It broadcasts only the mask.
bool CanFuse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const std::optional<at::Tensor>& mask, double dropout_p, std::optional<double> scale,
             bool grouped) {
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || !at::isFloatingType(q.scalar_type()) ||
      k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type()) {
    return false;
  }
  if (k.size(0) != q.size(0) || v.size(0) != q.size(0) || v.size(1) != k.size(1) ||
      v.size(2) != k.size(2) || k.size(3) != q.size(3)) {
    return false;
  }
  const int64_t heads = q.size(1), key_heads = k.size(1);
  if (heads != key_heads && !(grouped && key_heads > 0 && heads % key_heads == 0)) return false;
  if (scale == 0.0) return false;  // the server's default
  // A program would drop the same weights in each run.
  if (dropout_p > 0 && (IsRecording() || q.key_set().has(c10::DispatchKey::Python))) return false;
  if (IsGiven(mask) && (mask->dim() > 4 || IsTransformed(*mask))) return false;
  return !IsTransformed(q) && !IsTransformed(k) && !IsTransformed(v);
}

int64_t ChooseAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const std::optional<at::Tensor>& mask, double dropout_p, bool,
                        std::optional<double> scale, bool grouped) {
  const bool fuses = at::globalContext().userEnabledOverrideableSDP() &&
                     CanFuse(q, k, v, mask, dropout_p, scale, grouped);
  return static_cast<int64_t>(fuses ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

// Returns a tensor of the shape (batch, heads, length, width) with the order of q's axes, as
// torch.compile expects it.
at::Tensor MakeLikeQuery(const at::Tensor& q, int64_t width) {
  if (q.size(3) == width) return at::empty_like(q);
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  int64_t axes[] = {0, 1, 2, 3}, strides[4], stride = 1;
  const auto key = [&](int64_t axis) { return q.stride(axis) == 0 ? kLast : q.stride(axis); };
  std::stable_sort(axes, axes + 4, [&](int64_t a, int64_t b) { return key(a) < key(b); });
  const int64_t sizes[] = {q.size(0), q.size(1), q.size(2), width};
  for (const int64_t axis : axes) {
    strides[axis] = stride;
    stride *= sizes[axis];
  }
  return MakeStrided(sizes, strides, q.scalar_type(), DeviceOf(q));
}

// Returns the result and what the gradient needs: log(sum(exp)) of the scores, the lengths, and the
// seed and the stream of the dropout.
using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;
Forward Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal, bool,
                  std::optional<double> scale) {
  const c10::DeviceIndex device = CommonDevice("scaled_dot_product_attention", {&q, &k, &v});
  const Value query = Read(q), key = Read(k), value = Read(v);
  c10::SmallVector<In, 4> inputs = {query, key, value};
  Value bias;
  if (IsGiven(mask)) {
    CommonDevice("scaled_dot_product_attention", {&q, &*mask});
    bias = ReadForBroadcast(*mask);
    inputs.emplace_back(bias);
  }
  at::Tensor seed, stream;
  std::vector<Value> made;
  const double factor = scale.value_or(0);
  if (dropout_p > 0) {
    const auto [own_seed, own_stream] = NextStream(std::nullopt, device);
    made = PushAll("sdpa", inputs,
                   {{"scale", factor},
                    {"causal", is_causal},
                    {"dropout_p", dropout_p},
                    {"seed", own_seed},
                    {"stream", own_stream}});
    seed = c10::scalar_to_tensor(own_seed);
    stream = c10::scalar_to_tensor(own_stream);
  } else {
    made = PushAll("sdpa", inputs, {{"scale", factor}, {"causal", is_causal}});
    // torch.compile expects tensors.
    seed = MakeContiguous({}, at::kLong, device);
    stream = MakeContiguous({}, at::kLong, device);
  }
  const at::Tensor out = MakeLikeQuery(q, v.size(3));
  Write(out, made[0]);
  return {out, MakeTensor(made[1], device), {}, {}, q.size(2), k.size(2), seed, stream, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> AttentionBackward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& mask, std::array<bool, 4> wanted, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
    double dropout_p, bool is_causal, const at::Tensor& seed, const at::Tensor& stream,
    std::optional<double> scale) {
  if (!gradient.defined()) return {};
  CommonDevice("scaled_dot_product_attention", {&gradient, &q, &k, &v, &out});
  const Value given[] = {Read(gradient), Read(q), Read(k), Read(v), Read(out), Read(logsumexp)};
  c10::SmallVector<In, 7> inputs(std::begin(given), std::end(given));
  const bool of_mask = wanted[3] && mask.defined();
  Value bias;
  if (mask.defined()) {
    bias = of_mask ? Read(mask) : ReadForBroadcast(mask);
    inputs.emplace_back(bias);
  }
  const double factor = scale.value_or(0);
  std::vector<Value> made;
  if (dropout_p > 0) {
    made = PushAll("sdpa_backward", inputs,
                   {{"scale", factor},
                    {"causal", is_causal},
                    {"dropout_p", dropout_p},
                    {"seed", seed.item<int64_t>()},
                    {"stream", stream.item<int64_t>()},
                    {"mask_gradient", of_mask}});
  } else {
    made = PushAll("sdpa_backward", inputs,
                   {{"scale", factor}, {"causal", is_causal}, {"mask_gradient", of_mask}});
  }
  const at::Tensor* const of[] = {&q, &k, &v, &mask};
  at::Tensor results[4];
  for (int i = 0; i < (of_mask ? 4 : 3); ++i) {
    if (!wanted[i]) continue;
    results[i] = at::empty_like(*of[i]);
    Write(results[i], made[i]);
  }
  return {results[0], results[1], results[2], results[3]};
}

// Returns x with the shape (batch, heads, length, width of a head).
at::Tensor SplitHeads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// Returns the mask so that it broadcasts to the scores (batch, heads, length, length). mask_type: 0
// (length, length), 1 (batch, length), 2 (batch, heads, length, length).
std::optional<at::Tensor> Shaped(const std::optional<at::Tensor>& mask,
                                 std::optional<int64_t> mask_type) {
  if (!IsGiven(mask) || mask_type.value_or(0) != 1 || mask->dim() != 2) return mask;
  return mask->view({mask->size(0), 1, 1, mask->size(1)});
}
// Adds the mask to the scores. True in a mask of bools forbids an element.
at::Tensor Masked(const at::Tensor& scores, const std::optional<at::Tensor>& mask) {
  if (!IsGiven(mask)) return scores;
  if (mask->scalar_type() != at::kBool) return scores + *mask;
  return scores.masked_fill(*mask, -std::numeric_limits<double>::infinity());
}

struct Attended {
  at::Tensor output, weights;
};
Attended Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                const std::optional<at::Tensor>& given_mask, std::optional<int64_t> mask_type,
                bool need_weights) {
  std::optional<at::Tensor> mask = Shaped(given_mask, mask_type);
  const at::Tensor query = SplitHeads(q, heads), key = SplitHeads(k, heads),
                   value = SplitHeads(v, heads);
  at::Tensor mixed, weights;
  if (need_weights) {
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
    weights = at::softmax(Masked(scores, mask), -1);
    mixed = at::matmul(weights, value);
  } else {
    // In a mask of this op, true allows an element.
    if (IsGiven(mask) && mask->scalar_type() == at::kBool) mask = mask->logical_not();
    mixed = at::scaled_dot_product_attention(query, key, value, mask);
  }
  mixed = mixed.transpose(1, 2).reshape(q.sizes());
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
                               proj_bias, mask, mask_type, need_weights);
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
}  // namespace torch_tensord

// scaled_dot_product_attention of PyTorch calls this.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tensord::ChooseAttention)
}  // namespace at::native

namespace torch_tensord {

TENSORD_KERNELS(m) {
  m.impl("_fused_sdp_choice", ChooseAttention);
  m.impl("_scaled_dot_product_fused_attention_overrideable", Attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", AttentionBackward);
  m.impl("_nested_tensor_from_mask_left_aligned", NestedFromMaskLeftAligned);
  m.impl("_native_multi_head_attention", MultiHeadAttention);
  m.impl("_transformer_encoder_layer_fwd", EncoderLayer);
}

}  // namespace torch_tensord
