// ResNet-18 (https://arxiv.org/abs/1512.03385), with torchvision's names of parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensord/client/tensord.h"

namespace tensord::examples {

// Two convolutions with a residual connection. If the stride isn't 1 or the channels differ, that
// connection has a convolution, too.
class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in_channels, int64_t channels, int64_t stride);

  Tensor Forward(const Tensor& x) const override;

 private:
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  std::shared_ptr<nn::BatchNorm2d> bn1_, bn2_;
  std::shared_ptr<nn::Sequential> downsample_;  // may be null
};

// x is (N,3,H,W). The result is (N,classes): logits.
class ResNet18 : public nn::Module {
 public:
  explicit ResNet18(int64_t classes = 1000);

  Tensor Forward(const Tensor& x) const override;

 private:
  std::shared_ptr<nn::Conv2d> conv1_;
  std::shared_ptr<nn::BatchNorm2d> bn1_;
  std::shared_ptr<nn::MaxPool2d> maxpool_;
  std::vector<std::shared_ptr<nn::Sequential>> layers_;
  std::shared_ptr<nn::AdaptiveAvgPool2d> avgpool_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace tensord::examples
