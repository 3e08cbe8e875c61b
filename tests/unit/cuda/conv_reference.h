// Convolutions and their gradients in double, to compare with.
#pragma once

#include <string>
#include <vector>

#include "cuda_fixture.h"

namespace tensord::server {

struct ConvCase {
  Shape x, w;
  std::vector<int64_t> stride = {1}, padding = {0}, dilation = {1};
  int64_t groups = 1;

  Attributes attrs() const {
    return {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
  // Returns the attributes of a gradient of the operand with this shape.
  Attributes backward_attrs(const Shape& shape) const;
};

// Inputs of a case and its three results. The inputs are multiples of 1/4 from -9 to 9.
struct ConvReference {
  ConvReference(const ConvCase& c, DType dtype);

  TensorSpec y_spec;
  HostTensor x, w, g, bias;  // g is the gradient of y
  std::vector<double> y, x_gradient, w_gradient;

  // Returns activation(y + bias). `activation` is none, relu or silu.
  std::vector<double> WithEpilogue(const std::string& activation, bool with_bias) const;
};

// Expects that each element is `expected`, rounded `roundings` times. `scale` is as for
// CudaTest::ExpectSame().
void ExpectNear(const HostTensor& actual, const std::vector<double>& expected, double roundings = 1,
                double scale = 0);

}  // namespace tensord::server
