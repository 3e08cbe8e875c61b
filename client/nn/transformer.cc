#include "tensord/client/nn/transformer.h"

#include "tensord/client/ops.h"

namespace tensord::nn {
namespace {

// Returns a different seed for each part of a layer. Without a seed, each part draws its own.
std::optional<int64_t> SeedOf(const TransformerEncoderLayerOptions& options, int64_t part) {
  if (!options.seed.has_value()) return std::nullopt;
  return static_cast<int64_t>(static_cast<uint64_t>(*options.seed) + static_cast<uint64_t>(part));
}

LinearOptions OptionsOfLinear(const TransformerEncoderLayerOptions& options, int64_t part) {
  return {.bias = options.bias,
          .device = options.device,
          .dtype = options.dtype,
          .seed = SeedOf(options, part)};
}

NormOptions OptionsOfNorm(const TransformerEncoderLayerOptions& options) {
  return {.eps = options.layer_norm_eps,
          .bias = options.bias,
          .device = options.device,
          .dtype = options.dtype};
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t num_heads,
                                                 const TransformerEncoderLayerOptions& options)
    : norm_first_(options.norm_first) {
  self_attn_ = AddModule("self_attn", MultiheadAttention(d_model, num_heads,
                                                         {.bias = options.bias,
                                                          .batch_first = options.batch_first,
                                                          .device = options.device,
                                                          .dtype = options.dtype,
                                                          .seed = SeedOf(options, 0)}));
  LinearOptions hidden = OptionsOfLinear(options, 1);
  hidden.activation = options.activation;
  linear1_ = AddModule("linear1", Linear(d_model, options.dim_feedforward, hidden));
  dropout_ = AddModule("dropout", Dropout(options.dropout));
  linear2_ =
      AddModule("linear2", Linear(options.dim_feedforward, d_model, OptionsOfLinear(options, 2)));
  norm1_ = AddModule("norm1", LayerNorm({d_model}, OptionsOfNorm(options)));
  norm2_ = AddModule("norm2", LayerNorm({d_model}, OptionsOfNorm(options)));
  dropout1_ = AddModule("dropout1", Dropout(options.dropout));
  dropout2_ = AddModule("dropout2", Dropout(options.dropout));
}

Tensor TransformerEncoderLayer::FeedForward(const Tensor& x) const {
  return dropout2_->Forward(linear2_->Forward(dropout_->Forward(linear1_->Forward(x))));
}

Tensor TransformerEncoderLayer::Encode(const Tensor& x, const AttentionMasks& masks) const {
  const auto attend = [&](const Tensor& y) {
    return dropout1_->Forward(self_attn_->Attend(y, y, y, masks));
  };
  if (norm_first_) {
    const Tensor y = x + attend(norm1_->Forward(x));
    return y + FeedForward(norm2_->Forward(y));
  }
  const Tensor y = norm1_->Forward(x + attend(x));
  return norm2_->Forward(y + FeedForward(y));
}

}  // namespace tensord::nn
