#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using ::testing::ElementsAre;

struct AxesCase {
  Shape shape;
  std::vector<int64_t> axes;
};

const AxesCase kAxes[] = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {0}},
    {{3, 4}, {0}},
    {{3, 4}, {1}},
    {{3, 4}, {}},
    {{5, 1, 4}, {1}},
    {{100, 3}, {0}},
    {{5000, 3}, {0}},
    {{40000, 3}, {0}},
    {{3, 5000}, {1}},
    {{70, 300}, {0}},
    {{2000, 300}, {0}},
    {{2, 90, 70}, {1}},
    {{2, 3, 4, 5}, {0, 2}},
    {{2, 3, 4, 5}, {1, 3}},
    {{2, 3, 4, 5, 2}, {0, 2, 4}},
    {{6, 5, 4}, {0, 1}},
    {{150000}, {0}},
};

// Calls `visit(output, element)` for every element of the input.
template <typename Visit>
void ForEachElement(const Shape& shape, std::vector<int64_t> axes, Visit visit) {
  if (axes.empty()) {
    for (int i = 0; i < shape.rank(); ++i) axes.push_back(i);
  }
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    int64_t rest = i, output = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % shape.dim(axis);
      rest /= shape.dim(axis);
      if (std::count(axes.begin(), axes.end(), axis) != 0) continue;
      output += index * stride;
      stride *= shape.dim(axis);
    }
    visit(output, i);
  }
}

struct Statistics {
  double sum = 0, abs_sum = 0, squares = 0, cubes = 0, max = -kInf, min = kInf, largest = 0;
  double smallest = kInf, nonzero = 0, count = 0, argmax = -1, argmin = -1;
};

std::map<int64_t, Statistics> Reference(const HostTensor& x, const std::vector<int64_t>& axes) {
  std::map<int64_t, Statistics> all;
  ForEachElement(x.spec.shape, axes, [&](int64_t output, int64_t i) {
    Statistics& s = all[output];
    const double value = x.At(i), magnitude = std::fabs(value);
    if (s.count == 0 || value > s.max) s.argmax = s.count;
    if (s.count == 0 || value < s.min) s.argmin = s.count;
    s.sum += value;
    s.abs_sum += magnitude;
    s.squares += value * value;
    s.cubes += magnitude * magnitude * magnitude;
    s.max = std::max(s.max, value);
    s.min = std::min(s.min, value);
    s.largest = std::max(s.largest, magnitude);
    s.smallest = std::min(s.smallest, magnitude);
    s.nonzero += value != 0 ? 1 : 0;
    s.count += 1;
  });
  return all;
}

double RoundedTo(DType dtype, double value) { return MakeTensor(dtype, {}, {value}).At(0); }

class ReduceTest : public ::testing::Test {
 protected:
  // Compares every output of the op with the value that `pick` selects from the reference.
  template <typename Pick>
  void Expect(const char* op, const HostTensor& x, const AxesCase& test, double tolerance,
              Pick pick, Attributes attrs = {}) {
    attrs.Set("axes", test.axes);
    const auto y = runner_.Run(op, {x}, attrs);
    ASSERT_TRUE(y.ok()) << y.status();
    for (const auto& [output, statistics] : Reference(x, test.axes)) {
      const double expected = pick(statistics);
      if (y->At(output) == expected) continue;  // also where both are infinite
      ASSERT_NEAR(y->At(output), expected, tolerance * (std::fabs(expected) + statistics.abs_sum))
          << op << " " << x.spec.ToString() << " output " << output;
    }
  }

  OpRunner runner_;
};

TEST_F(ReduceTest, SumsAndMeansAgreeWithDouble) {
  const std::pair<DType, double> kTolerances[] = {{DType::kFloat32, 1e-6},
                                                  {DType::kFloat64, 1e-14},
                                                  {DType::kFloat16, 1e-3},
                                                  {DType::kBFloat16, 8e-3}};
  for (const AxesCase& test : kAxes) {
    for (const auto& [dtype, tolerance] : kTolerances) {
      const HostTensor x = Spread(dtype, test.shape, -0.5, 0.6);
      Expect("sum", x, test, tolerance, [](const Statistics& s) { return s.sum; });
      Expect("mean", x, test, tolerance, [](const Statistics& s) { return s.sum / s.count; });
    }
    for (const DType dtype : {DType::kBool, DType::kInt8, DType::kInt32}) {
      const HostTensor x = Spread(dtype, test.shape, IsBool(dtype) ? 0 : -100, 1);
      Expect("sum", x, test, 0, [](const Statistics& s) { return s.sum; });
    }
  }
}

TEST_F(ReduceTest, ExtremaAndTheirIndicesAreExact) {
  for (const AxesCase& test : kAxes) {
    for (const DType dtype : kRealDTypes) {
      const HostTensor x = Spread(dtype, test.shape, IsBool(dtype) ? 0 : 1, IsBool(dtype) ? 1 : 90);
      Expect("max", x, test, 0, [](const Statistics& s) { return s.max; });
      Expect("min", x, test, 0, [](const Statistics& s) { return s.min; });
      Expect("argmax", x, test, 0, [](const Statistics& s) { return s.argmax; });
      Expect("argmin", x, test, 0, [](const Statistics& s) { return s.argmin; });
    }
  }
}

TEST_F(ReduceTest, NormsOfEveryOrder) {
  const auto expect = [&](const HostTensor& x, const AxesCase& test, double ord, auto pick) {
    const double tolerance = x.spec.dtype == DType::kFloat16 ? 1e-3 : 1e-6;
    Expect("norm", x, test, tolerance,
           [&](const Statistics& s) { return RoundedTo(x.spec.dtype, pick(s)); }, {{"ord", ord}});
  };
  for (const AxesCase& test : kAxes) {
    for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
      const HostTensor x = Spread(dtype, test.shape, -0.5, 0.6);
      expect(x, test, 1, [](const Statistics& s) { return s.abs_sum; });
      expect(x, test, 2, [](const Statistics& s) { return std::sqrt(s.squares); });
      expect(x, test, 3, [](const Statistics& s) { return std::cbrt(s.cubes); });
      expect(x, test, 0, [](const Statistics& s) { return s.nonzero; });
      expect(x, test, kInf, [](const Statistics& s) { return s.largest; });
      expect(x, test, -kInf, [](const Statistics& s) { return s.smallest; });
    }
  }
}

TEST_F(ReduceTest, NormsOfHugeAndTinyNumbersNeitherOverflowNorVanish) {
  const HostTensor huge = MakeTensor(DType::kFloat32, {2}, {3e30, 4e30});
  EXPECT_NEAR(runner_.Run("norm", {huge})->At(0) / 5e30, 1, 1e-6);
  const HostTensor tiny = MakeTensor(DType::kFloat32, {2}, {3e-30, 4e-30});
  EXPECT_NEAR(runner_.Run("norm", {tiny})->At(0) / 5e-30, 1, 1e-6);
}

TEST_F(ReduceTest, ALongSumOfFloatsKeepsItsPrecision) {
  const int64_t n = 1 << 22;
  const HostTensor x = MakeTensor(DType::kFloat32, {n}, std::vector<double>(n, 0.1f));
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  EXPECT_NEAR(runner_.Run("sum", {x})->At(0), exact, exact * 3e-7);
}

TEST_F(ReduceTest, EmptyInputs) {
  const HostTensor empty = MakeTensor(DType::kFloat32, {2, 0}, {});
  const Attributes last = {{"axes", std::vector<int64_t>{1}}};
  EXPECT_THAT(runner_.Run("sum", {empty}, last)->ToDoubles(), ElementsAre(0, 0));
  EXPECT_THAT(runner_.Run("norm", {empty}, last)->ToDoubles(), ElementsAre(0, 0));
  EXPECT_TRUE(std::isnan(runner_.Run("mean", {empty}, last)->At(1)));
  const Attributes first = {{"axes", std::vector<int64_t>{0}}};
  EXPECT_EQ(runner_.Run("max", {empty}, first)->spec.num_elements(), 0);
  EXPECT_EQ(runner_.Run("argmax", {empty}, first)->spec.num_elements(), 0);
  EXPECT_FALSE(runner_.Run("max", {empty}, last).ok());
}

TEST_F(ReduceTest, PropagatesNanAndFindsItsFirstIndex) {
  std::vector<double> values(5000, 1.0);
  values[3210] = values[4000] = kNan;
  values[100] = kInf;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const HostTensor row = MakeTensor(dtype, {5000}, values);
    EXPECT_TRUE(std::isnan(runner_.Run("max", {row})->At(0)));
    EXPECT_TRUE(std::isnan(runner_.Run("min", {row})->At(0)));
    EXPECT_EQ(runner_.Run("argmax", {row})->At(0), 3210);
    EXPECT_EQ(runner_.Run("argmin", {row})->At(0), 3210);
    const HostTensor columns = MakeTensor(dtype, {2500, 2}, values);
    const Attributes first = {{"axes", std::vector<int64_t>{0}}};
    EXPECT_THAT(runner_.Run("argmax", {columns}, first)->ToDoubles(), ElementsAre(1605, 0));
    EXPECT_TRUE(std::isnan(runner_.Run("max", {columns}, first)->At(0)));
    const HostTensor wide = MakeTensor(dtype, {50, 100}, values);
    for (const char* op : {"max", "min"}) {
      const std::vector<double> y = runner_.Run(op, {wide}, first)->ToDoubles();
      for (int column = 0; column < 100; ++column) {
        EXPECT_EQ(std::isnan(y[column]), column == 0 || column == 10) << op << " " << column;
      }
    }
  }
}

// ---------------------------------------------------------------- softmax

TEST_F(ReduceTest, SoftmaxOverAnyAxis) {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
           {{}, 0}, {{5}, 0}, {{40, 33}, 1}, {{40, 33}, 0}, {{3, 50, 40}, 1}, {{2, 3000}, 1}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      const HostTensor x = Spread(dtype, shape, -8, 9);
      const auto y = runner_.Run("softmax", {x}, {{"axis", axis}});
      const auto log_y = runner_.Run("log_softmax", {x}, {{"axis", axis}});
      ASSERT_TRUE(y.ok() && log_y.ok());
      std::map<int64_t, double> sum;
      const auto visit = [&](auto visitor) {
        ForEachElement(shape, shape.rank() == 0 ? std::vector<int64_t>{} : std::vector{axis},
                       visitor);
      };
      visit([&](int64_t output, int64_t i) { sum[output] += std::exp(x.At(i)); });
      const double tolerance = dtype == DType::kBFloat16 ? 1e-2 : 3e-6;
      visit([&](int64_t output, int64_t i) {
        const double expected = std::exp(x.At(i)) / sum[output];
        ASSERT_NEAR(y->At(i), expected, tolerance * expected) << shape.ToString();
        ASSERT_NEAR(log_y->At(i), std::log(expected), tolerance * (1 - std::log(expected)));
      });
    }
  }
}

TEST_F(ReduceTest, SoftmaxOfOnlyMinusInfinityIsNan) {
  const HostTensor x = MakeTensor(DType::kFloat32, {2, 2}, {-kInf, -kInf, 0, -kInf});
  const auto y = runner_.Run("softmax", {x});
  EXPECT_TRUE(std::isnan(y->At(0)) && std::isnan(y->At(1)));
  EXPECT_EQ(y->At(2), 1);
  EXPECT_EQ(y->At(3), 0);
  EXPECT_EQ(runner_.Run("log_softmax", {x})->At(3), -kInf);
}

}  // namespace
}  // namespace tensord::server
