#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensord/common/ops/elementwise_list.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

#define TENSORD_NAME(name, Function, typing, cost, doc) #name,
constexpr const char* kUnaryOps[] = {TENSORD_UNARY_OPS(TENSORD_NAME) "gelu"};
#undef TENSORD_NAME

TEST(ElementwiseTest, ResultsDoNotDependOnThePosition) {
  OpRunner runner;
  for (const double x : {0.7, 1.7}) {
    const HostTensor same = MakeTensor(DType::kFloat32, {77}, std::vector<double>(77, x));
    for (const char* op : kUnaryOps) {
      const auto y = runner.Run(op, {same});
      ASSERT_TRUE(y.ok());
      for (int i = 1; i < 77; ++i) {
        EXPECT_EQ(y->bytes.substr(4 * i, 4), y->bytes.substr(0, 4)) << op << " " << x << " " << i;
      }
    }
  }
}

TEST(ElementwiseTest, IntegersWrapAround) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt8, {3}, {127, -128, -128});
  const HostTensor b = MakeTensor(DType::kInt8, {3}, {1, 1, 2});
  EXPECT_THAT(runner.Run("add", {a, b})->ToDoubles(), ElementsAre(-128, -127, -126));
  EXPECT_THAT(runner.Run("sub", {a, b})->ToDoubles(), ElementsAre(126, 127, 126));
  EXPECT_THAT(runner.Run("mul", {a, b})->ToDoubles(), ElementsAre(127, -128, 0));
  EXPECT_THAT(runner.Run("neg", {a})->ToDoubles(), ElementsAre(-127, -128, -128));
  EXPECT_THAT(runner.Run("abs", {a})->ToDoubles(), ElementsAre(127, -128, -128));
}

TEST(ElementwiseTest, IntegerPowersFollowTheProduct) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt32, {7}, {3, -2, 0, 1, -1, -1, 5});
  const HostTensor b = MakeTensor(DType::kInt32, {7}, {4, 3, 0, -3, -3, -4, -1});
  EXPECT_THAT(runner.Run("pow", {a, b})->ToDoubles(), ElementsAre(81, -8, 1, 1, -1, 1, 0));
}

TEST(ElementwiseTest, IntegerDivisionRoundsDownAndHasNoError) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt8, {6}, {7, -7, 7, -7, 5, -128});
  const HostTensor b = MakeTensor(DType::kInt8, {6}, {2, 2, -2, -2, 0, -1});
  EXPECT_THAT(runner.Run("floor_divide", {a, b})->ToDoubles(), ElementsAre(3, -4, -4, 3, 0, -128));
  EXPECT_THAT(runner.Run("remainder", {a, b})->ToDoubles(), ElementsAre(1, 1, -1, -1, 0, 0));
}

TEST(ElementwiseTest, FloatingDivisionFollowsPython) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kFloat32, {7}, {0, -0.0, 7, -7, kInf, 5, 5});
  const HostTensor b = MakeTensor(DType::kFloat32, {7}, {-3, 3, -2, 2, 2, 0, -kInf});
  const auto quotient = runner.Run("floor_divide", {a, b})->ToDoubles();
  const auto rest = runner.Run("remainder", {a, b})->ToDoubles();
  EXPECT_TRUE(quotient[0] == 0 && std::signbit(quotient[0]));
  EXPECT_TRUE(quotient[1] == 0 && std::signbit(quotient[1]));
  EXPECT_TRUE(rest[0] == 0 && std::signbit(rest[0])) << "a zero has the divisor's sign";
  EXPECT_TRUE(rest[1] == 0 && !std::signbit(rest[1]));
  EXPECT_THAT(std::vector<double>(quotient.begin() + 2, quotient.begin() + 4), ElementsAre(-4, -4));
  EXPECT_THAT(std::vector<double>(rest.begin() + 2, rest.begin() + 4), ElementsAre(-1, 1));
  EXPECT_TRUE(std::isnan(quotient[4]) && std::isnan(rest[4]));
  EXPECT_TRUE(quotient[5] == kInf && std::isnan(rest[5]));
  EXPECT_TRUE(quotient[6] == -1 && rest[6] == -kInf);
}

TEST(ElementwiseTest, ShiftsPastTheWidthLeaveZeroOrTheSign) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt32, {5}, {-5, -5, -5, 5, 5});
  const HostTensor count = MakeTensor(DType::kInt32, {5}, {1, 32, -1, 31, 100});
  EXPECT_THAT(runner.Run("shift_right", {a, count})->ToDoubles(), ElementsAre(-3, -1, -1, 0, 0));
  EXPECT_THAT(runner.Run("shift_left", {a, count})->ToDoubles(),
              ElementsAre(-10, 0, 0, -2147483648.0, 0));
  const HostTensor bytes = MakeTensor(DType::kUInt8, {3}, {200, 200, 200});
  const HostTensor counts = MakeTensor(DType::kUInt8, {3}, {7, 8, 255});
  EXPECT_THAT(runner.Run("shift_right", {bytes, counts})->ToDoubles(), ElementsAre(1, 0, 0));
  EXPECT_THAT(runner.Run("shift_left", {bytes, counts})->ToDoubles(), ElementsAre(0, 0, 0));
}

TEST(ElementwiseTest, UnsignedIntegersAreExactAboveTheRangeOfInt64) {
  OpRunner runner;
  const auto of = [](std::vector<uint64_t> values) {
    return HostTensor{{DType::kUInt64, {static_cast<int64_t>(values.size())}},
                      std::string(reinterpret_cast<const char*>(values.data()), 8 * values.size())};
  };
  const HostTensor a = of({~uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0}, 7});
  const HostTensor b = of({2, 3, uint64_t{1} << 63, 0});
  const HostTensor count = of({1, 63, 64, ~uint64_t{0}});
  EXPECT_EQ(runner.Run("floor_divide", {a, b})->bytes,
            of({~uint64_t{0} / 2, (uint64_t{1} << 63) / 3, 1, 0}).bytes);
  EXPECT_EQ(runner.Run("remainder", {a, b})->bytes, of({1, 2, ~uint64_t{0} >> 1, 0}).bytes);
  EXPECT_EQ(runner.Run("shift_right", {a, count})->bytes, of({~uint64_t{0} >> 1, 1, 0, 0}).bytes);
  EXPECT_EQ(runner.Run("shift_left", {a, count})->bytes, of({~uint64_t{1}, 0, 0, 0}).bytes);
  EXPECT_EQ(runner.Run("sign", {a})->bytes, of({1, 1, 1, 1}).bytes);
}

TEST(ElementwiseTest, SixteenBitIntegersDivideAndShiftInTheirOwnWidth) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kInt16, {5}, {-32768, -7, -5, -5, 5});
  const HostTensor b = MakeTensor(DType::kInt16, {5}, {-1, 2, 16, -1, 15});
  EXPECT_THAT(runner.Run("floor_divide", {a, b})->ToDoubles(), ElementsAre(-32768, -4, -1, 5, 0));
  EXPECT_THAT(runner.Run("remainder", {a, b})->ToDoubles(), ElementsAre(0, 1, 11, 0, 5));
  EXPECT_THAT(runner.Run("shift_right", {a, b})->ToDoubles(), ElementsAre(-1, -2, -1, -1, 0));
  EXPECT_THAT(runner.Run("shift_left", {a, b})->ToDoubles(), ElementsAre(0, -28, 0, 0, -32768));
  const HostTensor x = MakeTensor(DType::kUInt16, {3}, {65535, 65535, 65535});
  const HostTensor y = MakeTensor(DType::kUInt16, {3}, {15, 16, 65535});
  EXPECT_THAT(runner.Run("shift_right", {x, y})->ToDoubles(), ElementsAre(1, 0, 0));
  EXPECT_THAT(runner.Run("shift_left", {x, y})->ToDoubles(), ElementsAre(32768, 0, 0));
  EXPECT_THAT(runner.Run("floor_divide", {x, y})->ToDoubles(), ElementsAre(4369, 4095, 1));
}

TEST(ElementwiseTest, NextafterStepsInTheDTypeOfItsOperands) {
  OpRunner runner;
  const std::pair<DType, double> kSteps[] = {{DType::kFloat16, 0x1p-10},
                                             {DType::kBFloat16, 0x1p-7},
                                             {DType::kFloat32, 0x1p-23},
                                             {DType::kFloat64, 0x1p-52}};
  for (const auto& [dtype, step] : kSteps) {
    const HostTensor a = MakeTensor(dtype, {4}, {1, 1, -1, kInf});
    const HostTensor b = MakeTensor(dtype, {4}, {2, -kInf, -2, kInf});
    EXPECT_THAT(runner.Run("nextafter", {a, b})->ToDoubles(),
                ElementsAre(1 + step, 1 - step / 2, -1 - step, kInf));
  }
}

TEST(ElementwiseTest, MaximumAndMinimumPropagateNan) {
  OpRunner runner;
  const HostTensor a = MakeTensor(DType::kFloat16, {3}, {kNan, 1, 2});
  const HostTensor b = MakeTensor(DType::kFloat16, {3}, {1, kNan, -kInf});
  for (const char* op : {"maximum", "minimum"}) {
    const auto y = runner.Run(op, {a, b});
    EXPECT_TRUE(std::isnan(y->At(0))) << op;
    EXPECT_TRUE(std::isnan(y->At(1))) << op;
  }
  EXPECT_EQ(runner.Run("maximum", {a, b})->At(2), 2);
  EXPECT_EQ(runner.Run("minimum", {a, b})->At(2), -kInf);
}

TEST(ElementwiseTest, BoolsAreLogical) {
  OpRunner runner;
  HostTensor a = MakeTensor(DType::kBool, {4}, {0, 0, 1, 1});
  const HostTensor b = MakeTensor(DType::kBool, {4}, {0, 1, 0, 1});
  a.bytes[2] = 3;  // any byte but zero is true
  a.bytes[3] = 2;
  EXPECT_THAT(runner.Run("add", {a, b})->ToDoubles(), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(runner.Run("mul", {a, b})->ToDoubles(), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(runner.Run("eq", {a, b})->ToDoubles(), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(runner.Run("gt", {a, b})->ToDoubles(), ElementsAre(0, 0, 1, 0));
}

TEST(ElementwiseTest, CastsTruncateAndSaturate) {
  OpRunner runner;
  const HostTensor x = MakeTensor(DType::kFloat32, {7}, {-2.9, 2.9, 300, -300, kNan, kInf, 0.5});
  const auto cast = [&](DType to) { return runner.Run("cast", {x}, {{"dtype", to}})->ToDoubles(); };
  EXPECT_THAT(cast(DType::kInt8), ElementsAre(-2, 2, 127, -128, 0, 127, 0));
  EXPECT_THAT(cast(DType::kUInt8), ElementsAre(0, 2, 255, 0, 0, 255, 0));
  EXPECT_THAT(cast(DType::kInt32), ElementsAre(-2, 2, 300, -300, 0, 2147483647, 0));
  EXPECT_THAT(cast(DType::kBool), ElementsAre(1, 1, 1, 1, 1, 1, 1));
}

TEST(ElementwiseTest, CastsSaturateInUnsignedAnd16BitIntegers) {
  OpRunner runner;
  const HostTensor x = MakeTensor(DType::kFloat64, {6}, {-1, 65535.9, 70000, -40000, 1e30, kNan});
  const auto cast = [&](DType to) { return runner.Run("cast", {x}, {{"dtype", to}})->ToDoubles(); };
  EXPECT_THAT(cast(DType::kInt16), ElementsAre(-1, 32767, 32767, -32768, 32767, 0));
  EXPECT_THAT(cast(DType::kUInt16), ElementsAre(0, 65535, 65535, 0, 65535, 0));
  EXPECT_THAT(cast(DType::kUInt32), ElementsAre(0, 65535, 70000, 0, 4294967295, 0));
  EXPECT_THAT(cast(DType::kUInt64), ElementsAre(0, 65535, 70000, 0, 0x1p64, 0));
}

TEST(ElementwiseTest, CastsBetweenAllDTypes) {
  OpRunner runner;
  for (const DType from : kRealDTypes) {
    for (const DType to : kRealDTypes) {
      const HostTensor x = Spread(from, {2100}, 0, 100);
      const auto y = runner.Run("cast", {x}, {{"dtype", to}});
      ASSERT_TRUE(y.ok()) << y.status();
      const HostTensor expected = MakeTensor(to, {2100}, x.ToDoubles());
      EXPECT_EQ(y->bytes, expected.bytes) << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

// ---------------------------------------------------------------- broadcasting

struct BroadcastCase {
  Shape a, b, out;
};

const BroadcastCase kBroadcasts[] = {
    {{}, {}, {}},
    {{5}, {}, {5}},
    {{1}, {7}, {7}},
    {{3, 1}, {1, 4}, {3, 4}},
    {{3, 4}, {4}, {3, 4}},
    {{200, 3}, {3}, {200, 3}},
    {{200, 3}, {200, 1}, {200, 3}},
    {{2, 1, 3, 1, 2}, {4, 1, 5, 2}, {2, 4, 3, 5, 2}},
    {{70, 300}, {300}, {70, 300}},
    {{70, 1}, {1, 300}, {70, 300}},
    {{2, 3, 1}, {2, 1, 100}, {2, 3, 100}},
    {{0, 3}, {1, 3}, {0, 3}},
    {{300, 200}, {300, 1}, {300, 200}},
};

// Returns the element of `x` from which output element `i` of shape `out` is read.
double BroadcastAt(const HostTensor& x, const Shape& out, int64_t i) {
  const Dims strides = BroadcastStrides(x.spec.shape, out);
  int64_t offset = 0;
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    offset += i % out.dim(axis) * strides[axis];
    i /= out.dim(axis);
  }
  return x.At(offset);
}

TEST(ElementwiseTest, BinaryOpsBroadcast) {
  OpRunner runner;
  for (const BroadcastCase& test : kBroadcasts) {
    for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      const HostTensor a = Spread(dtype, test.a, 0, 9, 1), b = Spread(dtype, test.b, 0, 9, 2);
      const auto sum = runner.Run("add", {a, b});
      const auto less = runner.Run("lt", {a, b});
      ASSERT_TRUE(sum.ok() && less.ok());
      ASSERT_EQ(sum->spec.shape, test.out);
      for (int64_t i = 0; i < test.out.num_elements(); ++i) {
        const double x = BroadcastAt(a, test.out, i), y = BroadcastAt(b, test.out, i);
        ASSERT_EQ(sum->At(i), MakeTensor(dtype, {1}, {x + y}).At(0))
            << test.out.ToString() << " " << DTypeName(dtype) << " " << i;
        ASSERT_EQ(less->At(i), x < y ? 1 : 0) << test.out.ToString() << " " << i;
      }
    }
  }
}

TEST(ElementwiseTest, WhereBroadcastsThreeWays) {
  OpRunner runner;
  for (const DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const BroadcastCase& test : kBroadcasts) {
      const HostTensor cond = Spread(DType::kBool, test.out, 0, 1, 3);
      const HostTensor a = Spread(dtype, test.a, 0, 9, 1), b = Spread(dtype, test.b, 0, 9, 2);
      const auto y = runner.Run("where", {cond, a, b});
      ASSERT_TRUE(y.ok()) << y.status();
      for (int64_t i = 0; i < test.out.num_elements(); ++i) {
        ASSERT_EQ(y->At(i), BroadcastAt(cond.At(i) != 0 ? a : b, test.out, i)) << i;
      }
    }
  }
  const HostTensor one = MakeTensor(DType::kBool, {1}, {1});
  const auto y = runner.Run("where", {one, MakeTensor(DType::kInt64, {3}, {1, 2, 3}),
                                      MakeTensor(DType::kInt64, {}, {9})});
  EXPECT_THAT(y->ToDoubles(), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace tensord::server
