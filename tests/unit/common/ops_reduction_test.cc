#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kReductions[] = {"sum",  "prod",   "mean",   "max",           "min",
                                       "norm", "argmax", "argmin", "count_nonzero", "var_mean"};

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

TEST(Reduction, DTypeOfSumAndProd) {
  for (const char* op : {"sum", "prod"}) {
    EXPECT_EQ(Result(op, {Of(DType::kBool)}), "int64[]");
    for (DType in : kRealDTypes) {
      for (DType dtype : kRealDTypes) {
        const Attributes attrs = {{"dtype", dtype}};
        EXPECT_EQ(Result(op, {Of(in)}, attrs), Of(dtype, {}).ToString());
        EXPECT_EQ(NormalForm(op, {Of(in)}, attrs).Type("dtype"), dtype);
        // Integers are read as they are: a cast wouldn't change an integer result.
        const bool keeps = IsInteger(dtype) && !IsFloating(in);
        EXPECT_EQ(PlanOp(op, {Of(in)}, attrs)->input_dtypes[0], keeps ? in : dtype);
      }
    }
    EXPECT_EQ(NormalForm(op, {Of(DType::kInt8)}, {}).Type("dtype"), DType::kInt64);
    EXPECT_EQ(NormalForm(op, {Of(DType::kFloat16)}, {}).Type("dtype"), DType::kFloat16);
  }
  EXPECT_EQ(Result("count_nonzero", {Of(DType::kFloat16)}), "int64[]");
}

TEST(Reduction, VarMeanHasTwoOutputsOfTheInputsDType) {
  for (DType dtype : kRealDTypes) {
    const absl::StatusOr<OpPlan> plan =
        PlanOp("var_mean", {Of(dtype, {2, 3})}, {{"axes", Ints{1}}});
    if (!IsFloating(dtype)) {
      EXPECT_THAT(plan.status().message(), HasSubstr("cast first, for example to float32"));
      continue;
    }
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->outputs, ElementsAre(Of(dtype), Of(dtype)));
    EXPECT_EQ(plan->attrs.Float("correction"), 1);
  }
  for (double correction : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(Result("var_mean", {F32({3})}, {{"correction", correction}}),
                HasSubstr("name a finite number"));
  }
}

TEST(Scan, AxisAndDType) {
  for (const char* op : {"cumsum", "cumprod"}) {
    const auto result = [op](DType in, Attributes attrs) {
      attrs.Set("axis", int64_t{-1});
      return Result(op, {Of(in, {2, 3})}, attrs);
    };
    for (DType in : kRealDTypes) {
      EXPECT_EQ(result(in, {}), Of(IsFloating(in) ? in : DType::kInt64, {2, 3}).ToString());
      EXPECT_EQ(result(in, {{"dtype", DType::kInt8}}), "int8[2, 3]");
      EXPECT_THAT(result(in, {{"dtype", DType::kBool}}), HasSubstr("name a numeric dtype"));
    }
    EXPECT_EQ(NormalForm(op, {F32({2, 3})}, {{"axis", int64_t{-2}}}).Int("axis"), 0);
    EXPECT_EQ(Result(op, {F32({})}, {{"axis", int64_t{0}}}), "float32[]");
    EXPECT_THAT(Result(op, {F32({2, 3})}, {{"axis", int64_t{2}}}), HasSubstr("from -2 to 1"));
    EXPECT_THAT(Result(op, {F32({2, 3})}), HasSubstr("attribute axis is missing"));
  }
}

TEST(Reduction, OfNoElements) {
  for (const char* op : {"sum", "prod", "count_nonzero", "var_mean", "mean", "norm"}) {
    const DType dtype = std::string(op) == "count_nonzero" ? DType::kInt64 : DType::kFloat32;
    EXPECT_EQ(Result(op, {F32({2, 0})}, {{"axes", Ints{1}}}), Of(dtype).ToString());
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
