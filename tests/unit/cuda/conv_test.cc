// Convolutions and their gradients.
#include <string>
#include <vector>

#include "conv_reference.h"

namespace tensord::server {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// The sums of the reference are exact. Engines for float32 and float64 may add in any order, and
// transform tiles.
constexpr double Roundings(DType dtype) { return SizeOf(dtype) == 2 ? 1 : 16; }
constexpr double kScale = 64;
constexpr double Scale(DType dtype) { return SizeOf(dtype) == 2 ? 0 : kScale; }

const ConvCase kConvCases[] = {
    {{2, 3, 9}, {4, 3, 3}},
    {{2, 3, 7, 9}, {4, 3, 3, 3}, {1}, {1}},
    {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, {1, 2, 1}, {1, 0, 1}},
    {{2, 3, 8, 9}, {5, 3, 3, 2}, {2, 3}, {1, 0, 2, 1}, {1, 2}},
    {{2, 6, 7, 7}, {4, 3, 3, 3}, {2}, {1}, {1}, 2},
    {{3, 8, 5, 5}, {8, 1, 3, 3}, {1}, {1}, {1}, 8},
    {{1, 1, 1, 1}, {1, 1, 1, 1}},
    {{2, 3, 1, 10}, {2, 3, 1, 4}, {1, 3}, {0, 0}},
};

TEST_F(CudaTest, ConvolutionsOfEveryKind) {
  for (const ConvCase& c : kConvCases) {
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(testing::Message() << c.x.ToString() << " and " << c.w.ToString());
      const ConvReference expected(c, dtype);
      ExpectNear(Run(*cuda_, "conv", {expected.x, expected.w}, c.attrs()), expected.y,
                 Roundings(dtype), Scale(dtype));
      ExpectNear(
          Run(*cuda_, "conv_backward_input", {expected.g, expected.w}, c.backward_attrs(c.x)),
          expected.x_gradient, Roundings(dtype), Scale(dtype));
      ExpectNear(
          Run(*cuda_, "conv_backward_weight", {expected.g, expected.x}, c.backward_attrs(c.w)),
          expected.w_gradient, Roundings(dtype), Scale(dtype));
    }
  }
}

TEST_F(CudaTest, ConvolutionsWithBiasAndActivation) {
  const ConvCase c = {{2, 3, 7, 9}, {4, 3, 3, 3}, {1}, {1}};
  for (const DType dtype : kDTypes) {
    const ConvReference expected(c, dtype);
    for (const char* activation : {"none", "relu", "silu"}) {
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << activation << (with_bias ? " with bias" : ""));
        Attributes attrs = c.attrs();
        attrs.Set("activation", std::string(activation));
        std::vector<HostTensor> inputs = {expected.x, expected.w};
        if (with_bias) inputs.push_back(expected.bias);
        ExpectNear(Run(*cuda_, "conv", inputs, attrs), expected.WithEpilogue(activation, with_bias),
                   Roundings(dtype), SizeOf(dtype) == 2 ? 1 : kScale);
      }
    }
  }
}

TEST_F(CudaTest, ConvolutionsOfOperandsWithSmallAlignment) {
  const ConvCase c = {{2, 3, 7, 9}, {4, 3, 3, 3}, {1}, {1}};
  ShiftOperands(1);
  for (const DType dtype : kDTypes) {
    const ConvReference expected(c, dtype);
    ExpectNear(Run(*cuda_, "conv", {expected.x, expected.w}, c.attrs()), expected.y,
               Roundings(dtype), Scale(dtype));
  }
}

TEST_F(CudaTest, ConvolutionsOfNoImages) {
  const ConvCase c = {{0, 3, 7, 9}, {4, 3, 3, 3}};
  const ConvReference expected(c, DType::kFloat32);
  Run(*cuda_, "conv", {expected.x, expected.w, expected.bias}, c.attrs());
  Run(*cuda_, "conv_backward_input", {expected.g, expected.w}, c.backward_attrs(c.x));
  ExpectNear(Run(*cuda_, "conv_backward_weight", {expected.g, expected.x}, c.backward_attrs(c.w)),
             expected.w_gradient);
}

TEST_F(CudaTest, ConvolutionsGiveTheSameBitsAgain) {
  const ConvCase c = {{4, 16, 12, 12}, {16, 16, 3, 3}, {1}, {1}};
  const ConvReference inputs(c, DType::kFloat32);
  const auto run = [&](const char* op, const HostTensor& a, const HostTensor& b,
                       const Attributes& attrs) {
    return Run(*cuda_, op, {a, b}, attrs).bytes;
  };
  const std::string y = run("conv", inputs.x, inputs.w, c.attrs());
  const std::string x = run("conv_backward_input", inputs.g, inputs.w, c.backward_attrs(c.x));
  const std::string w = run("conv_backward_weight", inputs.g, inputs.x, c.backward_attrs(c.w));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run("conv", inputs.x, inputs.w, c.attrs()), y);
    EXPECT_EQ(run("conv_backward_input", inputs.g, inputs.w, c.backward_attrs(c.x)), x);
    EXPECT_EQ(run("conv_backward_weight", inputs.g, inputs.x, c.backward_attrs(c.w)), w);
  }
}

}  // namespace
}  // namespace tensord::server
