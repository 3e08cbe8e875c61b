#include "cuda_fixture.h"

namespace tensord::server {
namespace {

struct MatmulCase {
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
};

// The inputs are multiples of 1/4 from -9 to 9. Their products and sums are exact in float32 and
// float64, in any order. Only the result is rounded.
constexpr double kUlps = 1;
constexpr double kProductScale = 0;

// For float32 and float64 the GPU computes activations with other functions than the CPU. The error
// bound is relative to the value, or to 1 if the value is smaller. For 16-bit dtypes the activation
// is computed in float32, and the result is rounded once.
constexpr double ActivationUlps(DType dtype) { return SizeOf(dtype) == 2 ? 1 : 16; }
constexpr double kActivationScale = 1;

const MatmulCase kMatmulCases[] = {
    {{17, 33}, {33, 29}},
    {{33, 17}, {33, 29}, true, false},
    {{17, 33}, {29, 33}, false, true},
    {{33, 17}, {29, 33}, true, true},
    {{33}, {33, 5}},
    {{5, 33}, {33}},
    {{33}, {33}},
    {{1, 1}, {1, 1}},
    {{4, 6, 7}, {7, 5}},
    {{6, 7}, {4, 7, 5}},
    {{4, 7, 6}, {7, 5}, true, false},
    {{2, 1, 6, 7}, {3, 7, 5}},
    {{3, 6, 7}, {2, 1, 7, 5}},
    {{2, 3, 6, 7}, {2, 3, 5, 7}, false, true},
    {{7}, {4, 7, 5}},
    {{4, 6, 7}, {7}},
    {{3, 0}, {0, 4}},
    {{0, 3}, {3, 4}},
    {{1, 5, 3}, {0, 3, 4}},
};

TEST_F(CudaTest, MatmulOfEveryLayout) {
  for (const MatmulCase& c : kMatmulCases) {
    for (DType dtype : kRealDTypes) {
      if (IsBool(dtype)) continue;
      ExpectSame("matmul", {MakeValues(dtype, c.a, 1), MakeValues(dtype, c.b, 2)},
                 {{"transpose_a", c.transpose_a}, {"transpose_b", c.transpose_b}}, kUlps,
                 kProductScale);
    }
  }
}

TEST_F(CudaTest, MatmulOfSizesPastATile) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kInt8}) {
    ExpectSame("matmul", {MakeValues(dtype, {130, 257}, 3), MakeValues(dtype, {257, 75}, 4)}, {},
               kUlps, kProductScale);
  }
}

TEST_F(CudaTest, LinearWithEveryActivation) {
  for (const char* activation : {"none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"}) {
    for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      const HostTensor x = MakeValues(dtype, {3, 7, 24}, 5), w = MakeValues(dtype, {16, 24}, 6);
      const Attributes attrs = {{"activation", std::string(activation)}};
      ExpectSame("linear", {x, w, MakeValues(dtype, {16}, 7)}, attrs, ActivationUlps(dtype),
                 kActivationScale);
      ExpectSame("linear", {x, w}, attrs, ActivationUlps(dtype), kActivationScale);
    }
  }
}

TEST_F(CudaTest, LinearOfOddAndEmptySizes) {
  const std::pair<Shape, Shape> cases[] = {
      {{1}, {1, 1}}, {{5}, {3, 5}}, {{13, 5}, {3, 5}}, {{0, 5}, {3, 5}}, {{4, 0}, {3, 0}}};
  for (const auto& [x, w] : cases) {
    for (DType dtype : {DType::kFloat16, DType::kFloat32}) {
      ExpectSame(
          "linear",
          {MakeValues(dtype, x, 8), MakeValues(dtype, w, 9), MakeValues(dtype, {w.dim(0)}, 10)},
          {{"activation", std::string("relu")}}, kUlps, kProductScale);
    }
  }
}

TEST_F(CudaTest, LinearOfMoreRowsThanFloat32ScratchHolds) {
  const Shape x = {4200, 1}, w = {4000, 1};  // 64 MiB of float32 are 4194 rows
  ExpectSame("linear",
             {MakeValues(DType::kFloat16, x, 13), MakeValues(DType::kFloat16, w, 14),
              MakeValues(DType::kFloat16, {w.dim(0)}, 15)},
             {{"activation", std::string("gelu")}}, ActivationUlps(DType::kFloat16),
             kActivationScale);
}

TEST_F(CudaTest, Tf32IsCloseWhereAllowed) {
  // Values of 7 bits are whole in TF32, so that only the sum may differ.
  ExpectSame("matmul",
             {MakeValues(DType::kFloat32, {64, 64}, 11), MakeValues(DType::kFloat32, {64, 64}, 12)},
             {{"allow_tf32", true}}, kUlps, kProductScale);
}

}  // namespace
}  // namespace tensord::server
