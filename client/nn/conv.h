// Convolutional layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensord/client/functional.h"
#include "tensord/client/nn/module.h"
#include "tensord/client/ops.h"

namespace tensord::nn {

// The options up to `activation` mean the same as in tensord::ConvOptions.
struct ConvOptions {
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  int64_t groups = 1;
  bool same_padding = false;
  Activation activation = Activation::kNone;  // fused into the op
  bool bias = true;
  Device device = {};                // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;     // must be floating
  std::optional<int64_t> seed = {};  // of the initial values; none: a random seed
};

// Computes activation(the convolution of x with the weight + bias). The weight is
// (out_channels,in_channels/groups,kernel…), the bias (out_channels). They have the initial
// distribution of torch.nn.Conv2d: uniform in [-1/√n, 1/√n), where n elements contribute to a sum.
class Conv : public Module {
 public:
  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 protected:
  // The kernel has one number for all `axes`, or one for each of them.
  Conv(int axes, int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
       const ConvOptions& options);

 private:
  int axes_;
  int64_t in_channels_;
  std::vector<int64_t> kernel_;
  tensord::ConvOptions options_;
  std::optional<int64_t> seed_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

// x is (N,C,L) or (C,L).
class Conv1d : public Conv {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
         const ConvOptions& options = {});
};
// x is (N,C,H,W) or (C,H,W):
//   nn::Conv2d(3, 64, {7}, {.stride = {2}, .padding = {3}}).
class Conv2d : public Conv {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
         const ConvOptions& options = {});
};

}  // namespace tensord::nn
