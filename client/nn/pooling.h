// Pooling layers. x is (N,C,H,W) or (C,H,W).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensord/client/functional.h"
#include "tensord/client/nn/module.h"

namespace tensord::nn {

// Returns the largest element of each window. The kernel, and each option, has one number for both
// axes, or two:
//   nn::MaxPool2d({.kernel = {3}, .stride = {2}, .padding = {1}})
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(PoolOptions options);

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;

 private:
  PoolOptions options_;  // with two numbers for the kernel
};

// Returns the mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(AvgPoolOptions options);

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;

 private:
  AvgPoolOptions options_;  // with two numbers for the kernel
};

// Returns the means of output_size windows that cover x. output_size is (H,W), or one number for
// both. If the sizes of x aren't multiples of these, Forward fails with UNIMPLEMENTED.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(std::vector<int64_t> output_size);

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;

 private:
  std::vector<int64_t> output_size_;
};

}  // namespace tensord::nn
