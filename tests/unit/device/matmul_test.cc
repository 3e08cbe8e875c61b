#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

struct MatmulCase {
  Shape a, b;  // as stored
  bool transpose_a = false, transpose_b = false;
};

const MatmulCase kCases[] = {
    {{3}, {3}},
    {{3}, {3, 4}},
    {{2, 3}, {3}},
    {{2, 3}, {3, 4}},
    {{3, 2}, {3, 4}, true, false},
    {{2, 3}, {4, 3}, false, true},
    {{3, 2}, {4, 3}, true, true},
    {{1, 300}, {300, 200}},
    {{1, 300}, {200, 300}, false, true},
    {{200, 300}, {300, 1}},
    {{300, 200}, {300, 1}, true, false},
    {{130, 70}, {70, 150}},
    {{70, 130}, {150, 70}, true, true},
    {{257, 129}, {129, 65}},
    {{5, 20, 30}, {5, 30, 10}},
    {{5, 20, 30}, {30, 10}},
    {{20, 30}, {5, 30, 10}},
    {{4, 1, 6, 7}, {3, 7, 5}},
    {{2, 1, 7, 6}, {1, 3, 5, 7}, true, true},
    {{20, 33, 17}, {20, 17, 9}},
    {{3, 100, 90}, {3, 90, 80}},
    {{12, 50, 60}, {12, 60, 70}},
    {{12, 50, 60}, {12, 70, 60}, false, true},
    {{1, 512}, {512, 300}},
    {{3, 1, 90}, {3, 90, 80}},
    {{0, 3}, {3, 4}},
    {{2, 0}, {0, 4}},
    {{2, 3, 0}, {0, 4}},
    {{3, 512}, {512, 300}},
};

// A stack of matrices. A vector is a row on the left side, and a column on the right side.
struct Stack {
  const HostTensor& tensor;
  bool transposed;
  bool left;

  int rank() const { return tensor.spec.shape.rank(); }
  int64_t dim(int axis) const { return tensor.spec.shape.dim(axis); }
  int64_t stored_rows() const { return rank() == 1 ? (left ? 1 : dim(0)) : dim(rank() - 2); }
  int64_t stored_cols() const { return rank() == 1 ? (left ? dim(0) : 1) : dim(rank() - 1); }
  int64_t rows() const { return transposed ? stored_cols() : stored_rows(); }
  int64_t cols() const { return transposed ? stored_rows() : stored_cols(); }
  Shape batch() const {
    return rank() <= 2 ? Shape() : Shape(tensor.spec.shape.dims().first(rank() - 2));
  }
  double At(int64_t item, int64_t r, int64_t c) const {
    const int64_t offset = transposed ? c * stored_cols() + r : r * stored_cols() + c;
    return tensor.At(item * stored_rows() * stored_cols() + offset);
  }
};

// Returns the item of `batch` that item `i` of `out` uses.
int64_t ItemAt(const Shape& batch, const Shape& out, int64_t i) {
  const Dims strides = BroadcastStrides(batch, out);
  int64_t item = 0;
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    item += i % out.dim(axis) * strides[axis];
    i /= out.dim(axis);
  }
  return item;
}

void CheckMatmul(OpRunner& runner, const MatmulCase& test, DType dtype) {
  SCOPED_TRACE(testing::Message() << test.a.ToString() << test.b.ToString() << DTypeName(dtype));
  const bool floating = IsFloating(dtype);
  const double low = IsUnsigned(dtype) ? 0 : floating ? -1 : -3, high = floating ? 1 : 3;
  const HostTensor a = Spread(dtype, test.a, low, high, 1), b = Spread(dtype, test.b, low, high, 2);
  const auto c = runner.Run("matmul", {a, b},
                            {{"transpose_a", test.transpose_a}, {"transpose_b", test.transpose_b}});
  ASSERT_TRUE(c.ok()) << c.status();
  const Stack left = {a, test.transpose_a, true}, right = {b, test.transpose_b, false};
  const Shape batch = *BroadcastShapes(left.batch(), right.batch());
  int64_t i = 0;
  for (int64_t item = 0; item < batch.num_elements(); ++item) {
    const int64_t a_item = ItemAt(left.batch(), batch, item);
    const int64_t b_item = ItemAt(right.batch(), batch, item);
    for (int64_t m = 0; m < left.rows(); ++m) {
      for (int64_t n = 0; n < right.cols(); ++n, ++i) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < left.cols(); ++k) {
          const double product = left.At(a_item, m, k) * right.At(b_item, k, n);
          sum += product;
          magnitude += std::fabs(product);
        }
        const double expected = floating ? sum : MakeTensor(dtype, {}, {sum}).At(0);
        ASSERT_NEAR(c->At(i), expected, RoundingTolerance(dtype, 1e-14) * magnitude) << i;
      }
    }
  }
  EXPECT_EQ(i, c->spec.num_elements());
}

TEST(MatmulTest, AgreesWithDoubleForEveryShapeAndDType) {
  OpRunner runner;
  for (const MatmulCase& test : kCases) {
    for (const DType dtype : kRealDTypes) {
      if (dtype != DType::kBool) CheckMatmul(runner, test, dtype);
    }
  }
}

TEST(MatmulTest, IntegersWrap) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt8, {1, 2}, {100, 100});
  const HostTensor b = MakeTensor(DType::kInt8, {2, 1}, {100, 27});
  EXPECT_EQ(runner.Run("matmul", {a, b})->At(0), static_cast<int8_t>(100 * 100 + 100 * 27));
}

TEST(MatmulTest, ManyShapesInARow) {
  OpRunner runner;
  for (int64_t n = 49; n < 1149; n += 2) {
    const HostTensor a = MakeTensor(DType::kFloat32, {49, 50}, std::vector<double>(2450, 1));
    const HostTensor b = MakeTensor(DType::kFloat32, {50, n}, std::vector<double>(50 * n, 1));
    ASSERT_EQ(runner.Run("matmul", {a, b})->At(49 * n - 1), 50);
  }
}

// ---------------------------------------------------------------- linear

const std::pair<const char*, std::function<double(double)>> kActivations[] = {
    {"none", [](double x) { return x; }},
    {"relu", [](double x) { return x > 0 ? x : 0; }},
    {"gelu", [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }},
    {"gelu_tanh",
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", [](double x) { return std::tanh(x); }},
};

struct LinearCase {
  Shape x;
  int64_t out;
};

void CheckLinear(OpRunner& runner, const LinearCase& test, DType dtype, size_t activation,
                 bool with_bias) {
  const auto& [word, function] = kActivations[activation];
  SCOPED_TRACE(testing::Message() << test.x.ToString() << DTypeName(dtype) << word << with_bias);
  const int64_t in = test.x.dim(test.x.rank() - 1), out = test.out;
  const double scale = 2.0 / std::sqrt(static_cast<double>(in) + 1);
  const HostTensor x = Spread(dtype, test.x, -2, 2, 1);
  const HostTensor w = Spread(dtype, {out, in}, -scale, scale, 2);
  const HostTensor bias = Spread(dtype, {out}, -1, 1, 3);
  std::vector<HostTensor> inputs = {x, w};
  if (with_bias) inputs.push_back(bias);
  const auto y = runner.Run("linear", inputs, {{"activation", std::string(word)}});
  ASSERT_TRUE(y.ok()) << y.status();
  for (int64_t i = 0; i < y->spec.num_elements(); ++i) {
    double sum = with_bias ? bias.At(i % out) : 0;
    for (int64_t k = 0; k < in; ++k) sum += x.At(i / out * in + k) * w.At(i % out * in + k);
    const double expected = function(sum);
    ASSERT_NEAR(y->At(i), expected, 4 * RoundingTolerance(dtype, 1e-14) * (1 + std::fabs(sum)))
        << i;
  }
}

TEST(LinearTest, FusesBiasAndActivation) {
  OpRunner runner;
  const LinearCase kLinear[] = {{{3}, 2},       {{1, 64}, 128},  {{5, 6}, 7},
                                {{2, 3, 4}, 5}, {{0, 4}, 3},     {{2, 0}, 3},
                                {{60, 70}, 80}, {{1, 300}, 700}, {{4, 2, 64}, 300}};
  for (const LinearCase& test : kLinear) {
    for (const DType dtype :
         {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (size_t activation = 0; activation < std::size(kActivations); ++activation) {
        CheckLinear(runner, test, dtype, activation, true);
        CheckLinear(runner, test, dtype, activation, false);
      }
    }
  }
}

}  // namespace
}  // namespace tensord::server
