// Multi-head attention.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tensord/client/nn/linear.h"
#include "tensord/client/nn/module.h"

namespace tensord::nn {

struct MultiheadAttentionOptions {
  bool bias = true;
  bool batch_first = false;          // whether inputs are (N,L,E) in place of (L,N,E)
  Device device = {};                // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;     // must be floating
  std::optional<int64_t> seed = {};  // of the initial values; none: a random seed
};

// The masks select the keys to which a query attends. As in PyTorch's modules, a bool mask is true
// for the keys that are left out. In ScaledDotProductAttention, it is true for the other keys.
struct AttentionMasks {
  // Has the shape (L,S) or (N,H,L,S), or broadcasts to it. If it is bool, true leaves a key out. If
  // it is floating, it is added to the scores.
  std::optional<Tensor> attention = {};
  // A bool tensor (N,S), or (S) without a batch. True leaves the key out for all queries.
  std::optional<Tensor> key_padding = {};
  bool is_causal = false;  // leaves out the keys after a query's position; not with another mask
};

// Attention with num_heads heads of size E = embed_dim / num_heads each. Its parameters are
// in_proj_weight (3·embed_dim,embed_dim), in_proj_bias, out_proj.weight and out_proj.bias. Both
// biases begin with zeros. Unlike PyTorch's module, it returns no weights and has no dropout.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                     const MultiheadAttentionOptions& options = {});

  // Computes self-attention. x is (L,N,embed_dim), (N,L,embed_dim) with batch_first, or
  // (L,embed_dim).
  Tensor Forward(const Tensor& x) const override { return Attend(x, x, x); }
  // Attends from `query` to the keys. `query` has a shape of x above. `key` and `value` have the
  // same layout, with the length S.
  Tensor Attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionMasks& masks = {}) const;

  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 private:
  absl::Status Check(const Tensor& query, const Tensor& key, const Tensor& value) const;

  int64_t embed_dim_;
  int64_t num_heads_;
  bool batch_first_;
  std::optional<int64_t> seed_;
  Parameter in_proj_weight_;
  std::optional<Parameter> in_proj_bias_;
  std::shared_ptr<Linear> out_proj_;
};

}  // namespace tensord::nn
