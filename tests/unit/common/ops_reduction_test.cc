#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kReductions[] = {"sum", "mean", "max", "min", "norm", "argmax", "argmin"};

std::string Reduce(const char* op, Shape shape, Ints axes, bool keepdims = false) {
  return PlanOp(op, {F32(std::move(shape))}, {{"axes", std::move(axes)}, {"keepdims", keepdims}})
      .value()
      .output()
      .shape.ToString();
}

TEST(Reduction, RemovesOrKeepsReducedAxes) {
  for (const char* op : kReductions) {
    EXPECT_EQ(Reduce(op, {2, 3, 4}, {}), "[]");
    EXPECT_EQ(Reduce(op, {2, 3, 4}, {1}), "[2, 4]");
    EXPECT_EQ(Reduce(op, {2, 3, 4}, {-1, 0}), "[3]");
    EXPECT_EQ(Reduce(op, {2, 3, 4}, {-1, 0}, true), "[1, 3, 1]");
    EXPECT_EQ(Reduce(op, {2, 3}, {}, true), "[1, 1]");
    EXPECT_EQ(Reduce(op, {}, {}), "[]");
    EXPECT_EQ(Reduce(op, {}, {-1}, true), "[]");
    EXPECT_EQ(Reduce(op, {0, 3}, {1}), "[0]");
  }
}

TEST(Reduction, AxesInNormalForm) {
  const auto axes = [](Shape shape, Ints given) {
    const std::vector<TensorSpec> inputs = {F32(std::move(shape))};
    EXPECT_THAT(Result("sum", inputs, {{"axes", given}}), HasSubstr("float32["));
    return NormalForm("sum", inputs, {{"axes", given}}).Ints("axes");
  };
  EXPECT_THAT(axes({2, 3, 4}, {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(axes({2, 3, 4}, {-1, 0}), ElementsAre(0, 2));
  EXPECT_THAT(axes({}, {}), IsEmpty());
  EXPECT_THAT(axes({}, {0}), IsEmpty());
}

TEST(Reduction, RefusesBadAxes) {
  for (const char* op : kReductions) {
    const auto refusal = [op](Shape shape, Ints axes) {
      return Result(op, {F32(std::move(shape))}, {{"axes", std::move(axes)}});
    };
    EXPECT_THAT(refusal({2, 3}, {2}), AllOf(HasSubstr("axis 2 is out of range"), HasSubstr(op)));
    EXPECT_THAT(refusal({2, 3}, {-3}), HasSubstr("from -2 to 1"));
    EXPECT_THAT(refusal({2, 3}, {std::numeric_limits<int64_t>::min()}), HasSubstr("out of range"));
    EXPECT_THAT(refusal({2, 3}, {1, -1}), HasSubstr("axis 1 is named twice"));
    EXPECT_THAT(refusal({}, {1}), HasSubstr("scalar"));
  }
}

TEST(Reduction, DTypes) {
  for (DType dtype : kRealDTypes) {
    const std::vector<TensorSpec> in = {Of(dtype)};
    const DType sum = IsFloating(dtype) ? dtype : DType::kInt64;
    EXPECT_EQ(Result("sum", in), Of(sum, {}).ToString());
    EXPECT_EQ(ReadAs("sum", in), dtype);
    for (const char* op : {"max", "min"}) EXPECT_EQ(Result(op, in), Of(dtype, {}).ToString());
    for (const char* op : {"argmax", "argmin"}) {
      EXPECT_EQ(Result(op, in), "int64[]");
      EXPECT_EQ(ReadAs(op, in), dtype);
    }
    for (const char* op : {"mean", "norm"}) {
      EXPECT_THAT(Result(op, in), IsFloating(dtype)
                                      ? testing::Matcher<std::string>(Of(dtype, {}).ToString())
                                      : HasSubstr("cast first, for example to float32"));
    }
  }
}

TEST(Reduction, OfNoElements) {
  for (const char* op : {"sum", "mean", "norm"}) {
    EXPECT_EQ(Result(op, {F32({2, 0})}, {{"axes", Ints{1}}}), "float32[2]");
  }
  for (const char* op : {"max", "min", "argmax", "argmin"}) {
    EXPECT_THAT(Result(op, {F32({2, 0})}, {{"axes", Ints{1}}}), HasSubstr("no elements"));
    EXPECT_THAT(Result(op, {F32({0})}), HasSubstr("no elements"));
    EXPECT_THAT(Result(op, {F32({2, 0})}, {{"axes", Ints{0}}}), HasSubstr("[0]"));
  }
}

TEST(Reduction, NormOrders) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (double ord : {0.0, 1.0, 2.0, 2.5, -1.0, infinity, -infinity}) {
    EXPECT_EQ(Result("norm", {F32({3})}, {{"ord", ord}}), "float32[]");
  }
  EXPECT_THAT(Result("norm", {F32({3})}, {{"ord", std::nan("")}}), HasSubstr("ord is NaN"));
  EXPECT_EQ(Result("norm", {F32({0})}, {{"ord", 3.0}}), "float32[]");
  EXPECT_THAT(Result("norm", {F32({0})}, {{"ord", -1.0}}), HasSubstr("no norm of order -1"));
  EXPECT_THAT(Result("norm", {F32({0})}, {{"ord", std::numeric_limits<double>::infinity()}}),
              HasSubstr("no norm of order inf"));
}

TEST(Softmax, AxisAndDType) {
  for (const char* op : {"softmax", "log_softmax"}) {
    EXPECT_EQ(Result(op, {F32({2, 3})}), "float32[2, 3]");
    EXPECT_EQ(NormalForm(op, {F32({2, 3})}, {}).Int("axis"), 1);
    EXPECT_EQ(NormalForm(op, {F32({2, 3})}, {{"axis", int64_t{-2}}}).Int("axis"), 0);
    EXPECT_EQ(NormalForm(op, {F32({})}, {}).Int("axis"), 0);
    EXPECT_EQ(Result(op, {F32({})}, {{"axis", int64_t{0}}}), "float32[]");
    EXPECT_EQ(Result(op, {F32({2, 0})}), "float32[2, 0]");
    EXPECT_THAT(Result(op, {F32({2, 3})}, {{"axis", int64_t{2}}}), HasSubstr("from -2 to 1"));
    EXPECT_THAT(Result(op, {F32({})}, {{"axis", int64_t{1}}}), HasSubstr("scalar"));
    EXPECT_THAT(Result(op, {Of(DType::kInt32)}), HasSubstr("cast first"));
  }
}

}  // namespace
}  // namespace tensord
