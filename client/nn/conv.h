// Convolutional layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensord/client/nn/module.h"
#include "tensord/client/ops.h"

namespace tensord::nn {

// Each vector has one number for all spatial axes, or one for each of them.
struct ConvOptions {
  std::vector<int64_t> stride = {1};
  std::vector<int64_t> padding = {0};  // zeros at both ends of each axis
  std::vector<int64_t> dilation = {1};
  int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::kNone;  // fused into the op
  Device device = {};                         // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;              // must be floating
  std::optional<int64_t> seed = {};           // of the initial values; none: a random seed
};

// activation(the convolution of x with the weight + bias). The weight is
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
  int64_t out_channels_;
  std::vector<int64_t> kernel_;
  ConvOptions options_;
  Parameter weight_;
  Parameter bias_;
};

// x is (N,C,L) or (C,L).
class Conv1d : public Conv {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
         const ConvOptions& options = {});
};
// x is (N,C,H,W) or (C,H,W): nn::Conv2d(3, 64, {7}, {.stride = {2}, .padding = {3}}).
class Conv2d : public Conv {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
         const ConvOptions& options = {});
};

}  // namespace tensord::nn
