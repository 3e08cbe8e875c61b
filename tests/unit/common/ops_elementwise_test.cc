#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Elementwise, NumericUnaryKeepsTheDTypeAndRefusesBool) {
  for (const char* op : {"neg", "abs", "sign", "relu"}) {
    for (DType dtype : kRealDTypes) {
      const std::string result = Result(op, {Of(dtype, {2, 0})});
      if (IsBool(dtype)) {
        EXPECT_THAT(result, AllOf(HasSubstr("not defined for bool"), HasSubstr("cast")));
      } else {
        EXPECT_EQ(result, Of(dtype, {2, 0}).ToString());
      }
    }
  }
}

TEST(Elementwise, FloatUnaryReadsOtherDTypesAsFloat32) {
  for (const char* op : {"exp", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "erf",
                         "erfc", "erfinv"}) {
    for (DType dtype : kRealDTypes) {
      const DType expected = IsFloating(dtype) ? dtype : DType::kFloat32;
      EXPECT_EQ(Result(op, {Of(dtype, {})}), Of(expected, {}).ToString());
      EXPECT_EQ(ReadAs(op, {Of(dtype)}), expected);
    }
  }
}

TEST(Elementwise, RoundingOfIntegersAndBoolIsAnAlias) {
  for (const char* op : {"floor", "ceil", "trunc", "round"}) {
    for (DType dtype : kRealDTypes) {
      EXPECT_EQ(Result(op, {Of(dtype)}),
                Of(dtype).ToString() + (IsFloating(dtype) ? "" : " alias"));
    }
  }
}

TEST(Elementwise, ConjOfEveryRealDTypeIsAnAlias) {
  for (DType dtype : kRealDTypes) {
    EXPECT_EQ(Result("conj", {Of(dtype)}), Of(dtype).ToString() + " alias");
  }
}

TEST(Elementwise, GeluAndSiluAreFloatingOnly) {
  for (const char* op : {"gelu", "silu"}) {
    for (DType dtype : kRealDTypes) {
      EXPECT_THAT(Result(op, {Of(dtype)}), IsFloating(dtype)
                                               ? testing::Matcher<std::string>(Of(dtype).ToString())
                                               : HasSubstr("cast first, for example to float32"));
    }
  }
  EXPECT_EQ(Result("gelu", {F32({2})}, {{"approximate", "tanh"}}), "float32[2]");
  EXPECT_THAT(Result("gelu", {F32({2})}, {{"approximate", "erf"}}),
              AllOf(HasSubstr("\"erf\""), HasSubstr("\"none\", \"tanh\"")));
}

TEST(Elementwise, CastsToEveryDTypeAndAliasesTheSame) {
  for (DType from : kRealDTypes) {
    for (DType to : kRealDTypes) {
      EXPECT_EQ(Result("cast", {Of(from)}, {{"dtype", to}}),
                Of(to).ToString() + (from == to ? " alias" : ""));
    }
  }
}

TEST(Elementwise, ComplexIsOnlyCastToItself) {
  for (DType dtype : {DType::kComplex64, DType::kComplex128}) {
    EXPECT_EQ(Result("cast", {Of(dtype)}, {{"dtype", dtype}}), Of(dtype).ToString() + " alias");
    for (DType other : kRealDTypes) {
      EXPECT_THAT(Result("cast", {Of(dtype)}, {{"dtype", other}}), HasSubstr("complex arithmetic"));
      EXPECT_THAT(Result("cast", {Of(other)}, {{"dtype", dtype}}), HasSubstr("complex arithmetic"));
    }
  }
}

// Every op that computes refuses complex operands, and says so.
TEST(Elementwise, ArithmeticRefusesComplex) {
  for (const OpSchema* schema : AllOps()) {
    const bool needs_attrs =
        std::any_of(schema->attrs.begin(), schema->attrs.end(),
                    [](const AttrDef& def) { return !def.default_value.has_value(); });
    if (schema->takes_complex || schema->min_inputs == 0 || needs_attrs) continue;
    const std::vector<TensorSpec> inputs(schema->min_inputs, Of(DType::kComplex64, {2, 2}));
    EXPECT_THAT(Result(schema->name, inputs),
                AllOf(StartsWith("INVALID_ARGUMENT: " + schema->name + ":"),
                      HasSubstr("doesn't take complex64"), HasSubstr("no complex arithmetic")));
  }
}

TEST(Elementwise, WhereSelectsComplexElementsOfOneDType) {
  const TensorSpec condition = Of(DType::kBool), x = Of(DType::kComplex64);
  EXPECT_EQ(Result("where", {condition, x, x}), "complex64[2]");
  EXPECT_THAT(Result("where", {condition, x, Of(DType::kComplex128)}), HasSubstr("complex64 and"));
  EXPECT_THAT(Result("where", {condition, x, F32({2})}), HasSubstr("complex64 and float32"));
}

TEST(Elementwise, BinaryPromotesAndBroadcasts) {
  for (const char* op : {"add", "sub", "mul", "div", "pow", "maximum", "minimum", "floor_divide",
                         "remainder", "atan2"}) {
    EXPECT_EQ(Result(op, {Of(DType::kFloat16, {2, 1}), Of(DType::kFloat64, {3})}), "float64[2, 3]");
    EXPECT_THAT(Result(op, {F32({2, 3}), F32({4})}),
                AllOf(StartsWith(std::string("INVALID_ARGUMENT: ") + op), HasSubstr("3 and 4")));
    EXPECT_THAT(Result(op, {F32({2}), Of(DType::kInt64)}), HasSubstr("int64 to float32"));
    EXPECT_EQ(ReadAs(op, {Of(DType::kFloat16), Of(DType::kBFloat16)}), DType::kFloat32);
  }
}

TEST(Elementwise, IntegersAndBoolByOp) {
  for (const char* op : {"add", "mul", "maximum", "minimum"}) {
    EXPECT_EQ(Result(op, {Of(DType::kBool), Of(DType::kBool)}), "bool[2]");
  }
  for (const char* op : {"sub", "pow"}) {
    EXPECT_THAT(Result(op, {Of(DType::kBool), Of(DType::kBool)}), HasSubstr("bool"));
    EXPECT_EQ(Result(op, {Of(DType::kUInt8), Of(DType::kInt8)}), "int16[2]");
  }
  for (DType dtype : {DType::kBool, DType::kUInt8, DType::kInt64}) {
    EXPECT_EQ(Result("div", {Of(dtype), Of(dtype)}), "float32[2]");
    EXPECT_EQ(ReadAs("div", {Of(dtype), Of(dtype)}), DType::kFloat32);
  }
}

TEST(Elementwise, FunctionsOfTwoFloatsRefuseOtherDTypesOrReadThemAsFloat32) {
  for (const char* op : {"hypot", "logaddexp", "nextafter"}) {
    EXPECT_THAT(Result(op, {Of(DType::kInt32), Of(DType::kInt32)}), HasSubstr("floating dtype"));
  }
  for (const char* op : {"atan2", "copysign"}) {
    EXPECT_EQ(Result(op, {Of(DType::kInt32), Of(DType::kInt8)}), "float32[2]");
    EXPECT_EQ(ReadAs(op, {Of(DType::kBool), Of(DType::kBool)}), DType::kFloat32);
  }
}

TEST(Elementwise, BitwiseOpsTakeIntegersAndBoolAndShiftsOnlyIntegers) {
  for (const char* op : {"bitwise_and", "bitwise_or", "bitwise_xor"}) {
    EXPECT_EQ(Result(op, {Of(DType::kBool), Of(DType::kBool)}), "bool[2]");
    EXPECT_EQ(Result(op, {Of(DType::kUInt8, {2, 1}), Of(DType::kInt64, {3})}), "int64[2, 3]");
    EXPECT_EQ(Result(op, {Of(DType::kUInt64), Of(DType::kUInt16)}), "uint64[2]");
    EXPECT_THAT(Result(op, {F32({2}), F32({2})}), HasSubstr("needs integers or bool"));
  }
  for (const char* op : {"shift_left", "shift_right"}) {
    EXPECT_EQ(Result(op, {Of(DType::kInt8), Of(DType::kInt32)}), "int32[2]");
    EXPECT_EQ(Result(op, {Of(DType::kInt8), Of(DType::kUInt16)}), "int32[2]");
    EXPECT_THAT(Result(op, {Of(DType::kBool), Of(DType::kBool)}), HasSubstr("an integer dtype"));
    EXPECT_THAT(Result(op, {F32({2}), F32({2})}), HasSubstr("an integer dtype"));
  }
}

TEST(Elementwise, ComparisonsGiveBoolOfPromotedOperands) {
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    EXPECT_EQ(Result(op, {Of(DType::kInt8, {2, 1}), Of(DType::kInt64, {4})}), "bool[2, 4]");
    EXPECT_EQ(ReadAs(op, {Of(DType::kInt8), Of(DType::kInt64)}), DType::kInt64);
    EXPECT_EQ(Result(op, {Of(DType::kBool), Of(DType::kBool)}), "bool[2]");
    EXPECT_THAT(Result(op, {Of(DType::kBool), Of(DType::kInt8)}), HasSubstr("bool to int8"));
  }
}

TEST(Elementwise, WhereBroadcastsThreeWays) {
  const TensorSpec condition = Of(DType::kBool, {2, 1, 1});
  EXPECT_EQ(Result("where", {condition, F32({3, 1}), Of(DType::kFloat64, {4})}),
            "float64[2, 3, 4]");
  EXPECT_EQ(ReadAs("where", {condition, F32({}), F32({})}), DType::kBool);
  EXPECT_THAT(Result("where", {F32({2}), F32({2}), F32({2})}), HasSubstr("must be bool"));
  EXPECT_THAT(Result("where", {condition, F32({2}), F32({3})}), HasSubstr("don't broadcast"));
  EXPECT_THAT(Result("where", {condition, F32({}), Of(DType::kInt8, {})}), HasSubstr("cast"));
}

TEST(Elementwise, ABroadcastResultPastTheLimitIsRefused) {
  EXPECT_THAT(Result("add", {F32({int64_t{1} << 30, 1}), F32({1, int64_t{1} << 30})}),
              AllOf(HasSubstr("result is too large"), HasSubstr("281474976710656")));
}

}  // namespace
}  // namespace tensord
