#include "tensord/client/examples/resnet18.h"

#include "absl/strings/str_cat.h"

namespace tensord::examples {

BasicBlock::BasicBlock(int64_t in_channels, int64_t channels, int64_t stride) {
  conv1_ = AddModule("conv1", nn::Conv2d(in_channels, channels, {3},
                                         {.stride = {stride}, .padding = {1}, .bias = false}));
  bn1_ = AddModule("bn1", nn::BatchNorm2d(channels));
  conv2_ = AddModule("conv2", nn::Conv2d(channels, channels, {3}, {.padding = {1}, .bias = false}));
  bn2_ = AddModule("bn2", nn::BatchNorm2d(channels));
  if (stride == 1 && in_channels == channels) return;
  downsample_ = AddModule(
      "downsample",
      nn::Sequential(nn::Conv2d(in_channels, channels, {1}, {.stride = {stride}, .bias = false}),
                     nn::BatchNorm2d(channels)));
}

Tensor BasicBlock::Forward(const Tensor& x) const {
  const Tensor y = Relu(bn1_->Forward(conv1_->Forward(x)));
  const Tensor residual = downsample_ == nullptr ? x : downsample_->Forward(x);
  return Relu(bn2_->Forward(conv2_->Forward(y)) + residual);
}

ResNet18::ResNet18(int64_t classes) {
  conv1_ =
      AddModule("conv1", nn::Conv2d(3, 64, {7}, {.stride = {2}, .padding = {3}, .bias = false}));
  bn1_ = AddModule("bn1", nn::BatchNorm2d(64));
  maxpool_ = AddModule("maxpool", nn::MaxPool2d({.kernel = {3}, .stride = {2}, .padding = {1}}));
  int64_t in_channels = 64;
  for (int64_t layer = 1; layer <= 4; ++layer) {
    const int64_t channels = int64_t{32} << layer;
    layers_.push_back(
        AddModule(absl::StrCat("layer", layer),
                  nn::Sequential(BasicBlock(in_channels, channels, layer == 1 ? 1 : 2),
                                 BasicBlock(channels, channels, 1))));
    in_channels = channels;
  }
  avgpool_ = AddModule("avgpool", nn::AdaptiveAvgPool2d({1}));
  fc_ = AddModule("fc", nn::Linear(in_channels, classes));
}

Tensor ResNet18::Forward(const Tensor& x) const {
  Tensor y = maxpool_->Forward(Relu(bn1_->Forward(conv1_->Forward(x))));
  for (const std::shared_ptr<nn::Sequential>& layer : layers_) y = layer->Forward(y);
  return fc_->Forward(nn::Flatten().Forward(avgpool_->Forward(y)));
}

}  // namespace tensord::examples
