// Linear layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensord/client/nn/module.h"
#include "tensord/client/ops.h"

namespace tensord::nn {

struct LinearOptions {
  bool bias = true;
  Device device = {};                         // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;              // must be floating
  std::optional<int64_t> seed = {};           // of the initial values; none: a random seed
  Activation activation = Activation::kNone;  // fused into the op
};

// y = activation(x·Wᵀ + b): (…,in) -> (…,out). W and b have the initial distribution of
// torch.nn.Linear: uniform in [-1/√in, 1/√in).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  // `weight` is (out,in). `bias` is (out), or an empty Tensor if there is no bias.
  explicit Linear(Tensor weight, Tensor bias = {}, Activation activation = Activation::kNone);

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

  int64_t in_features() const { return in_features_; }
  int64_t out_features() const { return out_features_; }
  const Tensor& weight() const { return weight_.value; }
  // Returns the bias. If the layer has none, returns an empty Tensor.
  const Tensor& bias() const { return bias_.value; }

 private:
  // Returns whether the constructor got an empty Tensor as the weight.
  bool given_no_weight() const;

  int64_t in_features_ = 0;
  int64_t out_features_ = 0;
  bool has_bias_ = false;
  std::optional<int64_t> seed_;
  Activation activation_ = Activation::kNone;
  Parameter weight_;
  Parameter bias_;
};

}  // namespace tensord::nn
