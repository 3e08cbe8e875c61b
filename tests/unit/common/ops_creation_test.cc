#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Full(AttrValue value, DType dtype = DType::kUnspecified) {
  return Result("full", {}, {{"shape", Ints{2}}, {"value", std::move(value)}, {"dtype", dtype}});
}

AttrValue FullValue(AttrValue value, DType dtype) {
  return *NormalForm("full", {}, {{"shape", Ints{}}, {"value", std::move(value)}, {"dtype", dtype}})
              .Find("value");
}

std::string Arange(AttrValue start, AttrValue stop, AttrValue step,
                   DType dtype = DType::kUnspecified) {
  return Result("arange", {},
                {{"start", std::move(start)},
                 {"stop", std::move(stop)},
                 {"step", std::move(step)},
                 {"dtype", dtype}});
}

TEST(Zeros, HasTheGivenShapeAndDType) {
  for (const char* op : {"zeros", "ones"}) {
    EXPECT_EQ(Result(op, {}, {{"shape", Ints{2, 3}}}), "float32[2, 3]");
    EXPECT_EQ(Result(op, {}, {{"shape", Ints{}}, {"dtype", DType::kBool}}), "bool[]");
    EXPECT_THAT(Result(op, {}, {{"shape", Ints{-1}}}), HasSubstr("negative dimension -1"));
    EXPECT_THAT(Result(op, {}, {{"shape", Ints{kMax, kMax}}}), HasSubstr("2^48"));
    EXPECT_THAT(Result(op, {}, {{"shape", Ints(33, 1)}}), HasSubstr("33 dimensions"));
    EXPECT_THAT(Result(op, {}, {{"shape", Ints{1}}, {"dtype", DType::kUnspecified}}),
                HasSubstr("dtype"));
  }
}

TEST(Full, TakesItsDTypeFromTheValue) {
  EXPECT_EQ(Full(1.5), "float32[2]");
  EXPECT_EQ(Full(int64_t{1}), "int64[2]");
  EXPECT_EQ(Full(true), "bool[2]");
  EXPECT_EQ(Full(1.5, DType::kFloat16), "float16[2]");
}

TEST(Full, ConvertsTheValueToTheDTypesKind) {
  EXPECT_EQ(FullValue(1.9, DType::kInt32), AttrValue(int64_t{1}));
  EXPECT_EQ(FullValue(-0.5, DType::kUInt8), AttrValue(int64_t{0}));
  EXPECT_EQ(FullValue(true, DType::kInt8), AttrValue(int64_t{1}));
  EXPECT_EQ(FullValue(int64_t{3}, DType::kFloat16), AttrValue(3.0));
  EXPECT_EQ(FullValue(0.5, DType::kBool), AttrValue(true));
  EXPECT_EQ(FullValue(kMin, DType::kInt64), AttrValue(kMin));
  EXPECT_EQ(FullValue(-0x1p63, DType::kInt64), AttrValue(kMin));
  EXPECT_EQ(FullValue(kInf, DType::kBFloat16), AttrValue(kInf));
}

TEST(Full, KeepsUint64ValuesAboveInt64AsFloats) {
  EXPECT_EQ(FullValue(0x1p63, DType::kUInt64), AttrValue(0x1p63));
  EXPECT_EQ(FullValue(0x1p62, DType::kUInt64), AttrValue(int64_t{1} << 62));
  EXPECT_EQ(FullValue(kMax, DType::kUInt64), AttrValue(kMax));
  EXPECT_THAT(Full(int64_t{-1}, DType::kUInt64), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(Full(0x1p64, DType::kUInt64), HasSubstr("doesn't fit uint64"));
  EXPECT_EQ(Arange(0x1p63, 0x1p63 + 4096, 2048.0, DType::kUInt64), "uint64[2]");
}

TEST(Full, ChecksTheRangesOf16And32Bits) {
  EXPECT_THAT(Full(int64_t{32768}, DType::kInt16), HasSubstr("from -32768 to 32767"));
  EXPECT_THAT(Full(int64_t{65536}, DType::kUInt16), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(Full(0x1p32, DType::kUInt32), HasSubstr("from 0 to 4294967295"));
  EXPECT_EQ(Full(0x1p32 - 1, DType::kUInt32), "uint32[2]");
}

TEST(Full, TakesRealValuesForComplex) {
  EXPECT_EQ(Full(1.5, DType::kComplex64), "complex64[2]");
  EXPECT_EQ(FullValue(int64_t{2}, DType::kComplex128), AttrValue(2.0));
  EXPECT_THAT(Full(1e39, DType::kComplex64), HasSubstr("doesn't fit complex64"));
}

TEST(Creation, RangesAndRandomNumbersArentComplex) {
  for (DType dtype : {DType::kComplex64, DType::kComplex128}) {
    EXPECT_THAT(Result("arange", {}, {{"stop", 3.0}, {"dtype", dtype}}),
                AllOf(HasSubstr("arange"), HasSubstr("no complex arithmetic")));
    for (const char* op : {"uniform", "normal"}) {
      EXPECT_THAT(Result(op, {}, {{"shape", Ints{2}}, {"seed", int64_t{1}}, {"dtype", dtype}}),
                  AllOf(HasSubstr(op), HasSubstr("no complex arithmetic")));
    }
  }
}

TEST(Full, RefusesValuesThatDoNotFit) {
  EXPECT_THAT(Full(int64_t{256}, DType::kUInt8), HasSubstr("value 256 doesn't fit uint8"));
  EXPECT_THAT(Full(int64_t{-1}, DType::kUInt8), HasSubstr("from 0 to 255"));
  EXPECT_THAT(Full(-129.0, DType::kInt8), HasSubstr("from -128 to 127"));
  EXPECT_THAT(Full(int64_t{1} << 31, DType::kInt32), HasSubstr("2147483647"));
  for (double value : {0x1p63, -0x1p64, kInf, -kInf, 1e300, std::nan("")}) {
    EXPECT_THAT(Full(value, DType::kInt64), HasSubstr("doesn't fit int64"));
  }
  EXPECT_THAT(Full(65520.0, DType::kFloat16), HasSubstr("ends at 65504"));
  EXPECT_THAT(Full(-65519.9999999, DType::kFloat16), HasSubstr("ends at 65504"));
  EXPECT_THAT(Full(0x1.ffp127, DType::kBFloat16), HasSubstr("doesn't fit bfloat16"));
  EXPECT_THAT(Full(0x1.ffffffp127), HasSubstr("doesn't fit float32"));
  EXPECT_THAT(Full(1e39), HasSubstr("doesn't fit float32"));
  const Attributes nan = NormalForm("full", {}, {{"shape", Ints{}}, {"value", std::nan("")}});
  EXPECT_TRUE(std::isnan(nan.Float("value")));
}

TEST(Full, AcceptsValuesThatRoundToAFiniteValue) {
  EXPECT_EQ(Full(-65519.0, DType::kFloat16), "float16[2]");
  EXPECT_EQ(Full(3.39e38, DType::kBFloat16), "bfloat16[2]");
  EXPECT_EQ(Full(3.402823466385289e+38), "float32[2]");
  EXPECT_EQ(Full(std::numeric_limits<double>::max(), DType::kFloat64), "float64[2]");
  EXPECT_EQ(Full(-kInf, DType::kFloat16), "float16[2]");
}

TEST(Arange, HasTheLengthOfTheRange) {
  EXPECT_EQ(Result("arange", {}, {{"stop", int64_t{5}}}), "int64[5]");
  EXPECT_EQ(Arange(int64_t{1}, int64_t{10}, int64_t{3}), "int64[3]");
  EXPECT_EQ(Arange(int64_t{1}, int64_t{11}, int64_t{3}), "int64[4]");
  EXPECT_EQ(Arange(int64_t{10}, int64_t{0}, int64_t{-4}), "int64[3]");
  EXPECT_EQ(Arange(int64_t{5}, int64_t{0}, int64_t{1}), "int64[0]");
  EXPECT_EQ(Arange(int64_t{0}, int64_t{5}, int64_t{-1}), "int64[0]");
  EXPECT_EQ(Arange(0.0, 1.0, 0.25), "float32[4]");
  EXPECT_EQ(Arange(int64_t{0}, 2.5, int64_t{1}), "float32[3]");
  EXPECT_EQ(Arange(1.0, 0.0, 1.0), "float32[0]");
  EXPECT_EQ(Arange(int64_t{0}, int64_t{3}, int64_t{1}, DType::kFloat16), "float16[3]");
  EXPECT_EQ(Arange(0.0, 3.0, 0.5, DType::kInt32), "int32[6]");
  EXPECT_EQ(Arange(kMax - 1, kMax, kMax), "int64[1]");
  EXPECT_EQ(Arange(kMin, kMin + 3, int64_t{2}), "int64[2]");
}

TEST(Arange, NormalFormIsAllIntsOrAllFloats) {
  const auto start = [](AttrValue stop, DType dtype) {
    const Attributes attrs =
        NormalForm("arange", {}, {{"stop", std::move(stop)}, {"dtype", dtype}});
    return std::string(AttrTypeName(*attrs.Find("start")));
  };
  EXPECT_EQ(start(int64_t{3}, DType::kUnspecified), "int");
  EXPECT_EQ(start(int64_t{3}, DType::kInt8), "int");
  EXPECT_EQ(start(int64_t{3}, DType::kFloat32), "float");
  EXPECT_EQ(start(3.0, DType::kInt8), "float");
}

TEST(Arange, RejectsInvalidArguments) {
  EXPECT_THAT(Arange(int64_t{0}, int64_t{5}, int64_t{0}), HasSubstr("step must not be 0"));
  EXPECT_THAT(Arange(0.0, 5.0, 0.0), HasSubstr("step must not be 0"));
  EXPECT_THAT(Arange(kMin, kMax, int64_t{1}), HasSubstr("2^48"));
  EXPECT_THAT(Arange(kMax, kMin, int64_t{-1}), HasSubstr("2^48"));
  EXPECT_THAT(Arange(kMin, kMax, int64_t{1} << 62), HasSubstr("2^63 or more apart"));
  EXPECT_THAT(Arange(kMax, kMin, kMin), HasSubstr("2^63 or more apart"));
  EXPECT_THAT(Arange(0.0, 1e300, 1.0), HasSubstr("2^48"));
  EXPECT_THAT(Arange(0.0, 1.0, 1e-310), HasSubstr("2^48"));
  EXPECT_THAT(Arange(-1.7e308, 1.7e308, 1.0), HasSubstr("2^48"));
  for (double bad : {kInf, -kInf, std::nan("")}) {
    EXPECT_THAT(Arange(bad, 1.0, 1.0), HasSubstr("must be finite"));
    EXPECT_THAT(Arange(0.0, bad, 1.0), HasSubstr("must be finite"));
    EXPECT_THAT(Arange(0.0, 1.0, bad), HasSubstr("must be finite"));
  }
  EXPECT_THAT(Arange(int64_t{0}, int64_t{257}, int64_t{1}, DType::kUInt8),
              HasSubstr("reaches 256"));
  EXPECT_THAT(Arange(-1.0, 2.0, 1.0, DType::kUInt8), HasSubstr("reaches -1"));
  EXPECT_THAT(Arange(true, int64_t{3}, int64_t{1}), HasSubstr("not a bool"));
  EXPECT_THAT(Arange(int64_t{0}, int64_t{2}, int64_t{1}, DType::kBool), HasSubstr("bool"));
}

TEST(Eye, RowsAndColumns) {
  EXPECT_EQ(Result("eye", {}, {{"rows", int64_t{3}}}), "float32[3, 3]");
  EXPECT_EQ(Result("eye", {}, {{"rows", int64_t{3}}, {"cols", int64_t{0}}}), "float32[3, 0]");
  EXPECT_EQ(NormalForm("eye", {}, {{"rows", int64_t{3}}}).Int("cols"), 3);
  EXPECT_THAT(Result("eye", {}, {{"rows", int64_t{-1}}}), HasSubstr("negative"));
  EXPECT_THAT(Result("eye", {}, {{"rows", int64_t{1}}, {"cols", kMin}}), HasSubstr("negative"));
  EXPECT_THAT(Result("eye", {}, {{"rows", kMax}}), HasSubstr("2^48"));
}

TEST(Constant, TakesExactlyTheBytes) {
  const auto constant = [](Ints shape, DType dtype, size_t bytes) {
    return Result(
        "constant", {},
        {{"shape", std::move(shape)}, {"dtype", dtype}, {"data", Bytes{std::string(bytes, '\0')}}});
  };
  EXPECT_EQ(constant({2, 3}, DType::kInt32, 24), "int32[2, 3]");
  EXPECT_EQ(constant({0}, DType::kInt32, 0), "int32[0]");
  EXPECT_EQ(constant({}, DType::kBool, 1), "bool[]");
  EXPECT_THAT(constant({2}, DType::kFloat64, 15),
              AllOf(HasSubstr("float64[2] takes 16 bytes"), HasSubstr("data has 15")));
  EXPECT_THAT(constant({2}, DType::kFloat64, 17), HasSubstr("data has 17"));
  EXPECT_THAT(constant({kMax, 8}, DType::kFloat64, 0), HasSubstr("2^48"));
  EXPECT_THAT(constant({-2}, DType::kInt8, 2), HasSubstr("negative"));
}

}  // namespace
}  // namespace tensord
