// A layer of a transformer's encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tensord/client/nn/attention.h"
#include "tensord/client/nn/dropout.h"
#include "tensord/client/nn/linear.h"
#include "tensord/client/nn/module.h"
#include "tensord/client/nn/normalization.h"

namespace tensord::nn {

struct TransformerEncoderLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;                       // in training mode
  Activation activation = Activation::kRelu;  // of the feed-forward network
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  // whether x is (N,L,d_model) in place of (L,N,d_model)
  bool norm_first = false;   // whether normalization comes before attention and feed-forward
  bool bias = true;
  Device device = {};                // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;     // must be floating
  std::optional<int64_t> seed = {};  // of the initial values; none: a random seed
};

// Self-attention and a feed-forward network, each with a residual connection and normalization, as
// in "Attention Is All You Need" (https://arxiv.org/abs/1706.03762). The modules are self_attn,
// linear1, dropout, linear2, norm1, norm2, dropout1 and dropout2. Unlike PyTorch's module, it
// applies no dropout to the weights of the attention.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(int64_t d_model, int64_t num_heads,
                          const TransformerEncoderLayerOptions& options = {});

  Tensor Forward(const Tensor& x) const override { return Encode(x, {}); }
  Tensor Encode(const Tensor& x, const AttentionMasks& masks) const;

 private:
  Tensor FeedForward(const Tensor& x) const;

  bool norm_first_;
  std::shared_ptr<MultiheadAttention> self_attn_;
  std::shared_ptr<Linear> linear1_;
  std::shared_ptr<Dropout> dropout_;
  std::shared_ptr<Linear> linear2_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<Dropout> dropout1_, dropout2_;
};

}  // namespace tensord::nn
