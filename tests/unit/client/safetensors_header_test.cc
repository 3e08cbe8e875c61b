#include "tensord/client/internal/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tensord::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(SafetensorsHeaderTest, ReadsTensorsAndMetadata) {
  const SafetensorsHeader header = ParseSafetensorsHeader(R"({"__metadata__": {"a": "b", "c": ""},
          "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]},
          "n": {"data_offsets": [0, 8], "shape": [], "dtype": "I64"},
          "e": {"dtype": "BF16", "shape": [0, 4], "data_offsets": [8, 8]}}   )",
                                                          32)
                                       .value();
  EXPECT_THAT(header.metadata, ElementsAre(Pair("a", "b"), Pair("c", "")));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "w");
  EXPECT_EQ(header.entries[0].dtype, DType::kFloat32);
  EXPECT_EQ(header.entries[0].shape, Shape({2, 3}));
  EXPECT_EQ(header.entries[0].begin, 8u);
  EXPECT_EQ(header.entries[0].end, 32u);
  EXPECT_EQ(header.entries[1].shape, Shape({}));
  EXPECT_EQ(header.entries[2].shape, Shape({0, 4}));
}

TEST(SafetensorsHeaderTest, ReadsNoTensors) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 0).value().entries.empty());
}

TEST(SafetensorsHeaderTest, UnescapesNames) {
  EXPECT_EQ(ParseSafetensorsHeader(
                R"({"a\"\u00e9": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1)
                .value()
                .entries[0]
                .name,
            "a\"é");
}

TEST(SafetensorsHeaderTest, KeepsUnknownDTypes) {
  const SafetensorsHeader header =
      ParseSafetensorsHeader(R"({"q": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [0, 3]},
                                 "h": {"dtype": "F4", "shape": [2], "data_offsets": [3, 4]}})",
                             4)
          .value();
  EXPECT_EQ(header.entries[0].dtype, DType::kUnspecified);
  EXPECT_EQ(header.entries[0].dtype_name, "F8_E4M3");
}

TEST(SafetensorsHeaderTest, KnowsTheNameOfEveryDType) {
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kComplex128) {
      EXPECT_EQ(SafetensorsDTypeName(dtype), "") << "the format lacks it";
      continue;
    }
    const std::string json =
        absl::StrCat(R"({"x": {"dtype": ")", SafetensorsDTypeName(dtype),
                     R"(", "shape": [1], "data_offsets": [0, )", SizeOf(dtype), "]}}");
    EXPECT_EQ(ParseSafetensorsHeader(json, SizeOf(dtype)).value().entries[0].dtype, dtype);
  }
}

struct InvalidHeader {
  const char* name;
  std::string json;
  uint64_t data_bytes;
  const char* message;
};

std::string TensorEntry(absl::string_view dtype, absl::string_view shape,
                        absl::string_view offsets) {
  return absl::StrCat(R"({"x": {"dtype": ")", dtype, R"(", "shape": )", shape,
                      R"(, "data_offsets": )", offsets, "}}");
}

class InvalidHeaderTest : public testing::TestWithParam<InvalidHeader> {};

TEST_P(InvalidHeaderTest, IsRefused) {
  const absl::Status status =
      ParseSafetensorsHeader(GetParam().json, GetParam().data_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

const InvalidHeader kInvalidHeaders[] = {
    {"Empty", "", 0, "doesn't begin with"},
    {"NoObject", "[1]", 0, "doesn't begin with"},
    {"SpaceBefore", " {}", 0, "doesn't begin with"},
    {"Unfinished", R"({"x": {"dtype")", 0, "isn't JSON"},
    {"SomethingBehind", "{} {}", 0, "isn't JSON"},
    {"ZeroByte", std::string("{}\0{", 4), 0, "zero byte"},
    {"NotUtf8", "{\"\xff\": {}}", 0, "isn't JSON"},
    {"ControlCharacter", "{\"a\nb\": {}}", 0, "isn't JSON"},
    {"TensorNoObject", R"({"x": 5})", 0, "a number in a wrong place"},
    {"TensorNull", R"({"x": null})", 0, "null in a wrong place"},
    {"NoDType", R"({"x": {"shape": [1], "data_offsets": [0, 4]}})", 4, "has no \"dtype\""},
    {"NoShape", R"({"x": {"dtype": "F32", "data_offsets": [0, 4]}})", 4, "has no \"shape\""},
    {"NoOffsets", R"({"x": {"dtype": "F32", "shape": [1]}})", 4, "has no \"data_offsets\""},
    {"FieldTwice", R"({"x": {"dtype": "F32", "dtype": "F32"}})", 0, "has \"dtype\" twice"},
    {"UnknownField", R"({"x": {"stride": [1]}})", 0, "unknown field \"stride\""},
    {"NameTwice",
     R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
         "x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
     2, "\"x\" occurs twice"},
    {"MetadataTwice", R"({"__metadata__": {}, "__metadata__": {}})", 0, "occurs twice"},
    {"MetadataKeyTwice", R"({"__metadata__": {"a": "1", "a": "2"}})", 0, "has \"a\" twice"},
    {"MetadataNoString", R"({"__metadata__": {"a": 1}})", 0, "a number in a wrong place"},
    {"MetadataNested", R"({"__metadata__": {"a": {}}})", 0, "an object in a wrong place"},
    {"UnknownDType", TensorEntry("F33", "[1]", "[0, 4]"), 4, "unknown dtype \"F33\""},
    {"DTypeNumber", R"({"x": {"dtype": 3}})", 0, "a number in a wrong place"},
    {"ShapeNoList", R"({"x": {"shape": 3}})", 0, "a number in a wrong place"},
    {"ShapeNested", TensorEntry("F32", "[[1]]", "[0, 4]"), 4, "a list in a wrong place"},
    {"DimNegative", TensorEntry("F32", "[-1]", "[0, 4]"), 4, "has -1 in its shape"},
    {"DimFraction", TensorEntry("F32", "[1.5]", "[0, 4]"), 4, "has 1.5 in its shape"},
    {"DimHuge", TensorEntry("F32", "[18446744073709551615]", "[0, 4]"), 4, "the limit is"},
    {"DimPast64Bits", TensorEntry("F32", "[18446744073709551616]", "[0, 4]"), 4, "in its shape"},
    {"ProductOverflows", TensorEntry("U8", "[4294967296, 4294967296]", "[0, 0]"), 0,
     "is too large"},
    {"RankTooHigh",
     TensorEntry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                 "[0, 1]"),
     1, "more than 32 dimensions"},
    {"OneOffset", TensorEntry("F32", "[1]", "[0]"), 4, "must have two data_offsets"},
    {"ThreeOffsets", TensorEntry("F32", "[1]", "[0, 4, 8]"), 4, "must have two data_offsets"},
    {"OffsetNegative", TensorEntry("F32", "[1]", "[-4, 0]"), 4, "has -4 in its data_offsets"},
    {"OffsetsReversed", TensorEntry("F32", "[1]", "[4, 0]"), 4, "has data_offsets 4 to 0"},
    {"PastTheEnd", TensorEntry("F32", "[1]", "[0, 4]"), 3, "the file has 3 bytes of data"},
    {"FarPastTheEnd", TensorEntry("F32", "[1]", "[18446744073709551612, 18446744073709551615]"), 4,
     "the file has 4 bytes of data"},
    {"ShapeTooSmall", TensorEntry("F32", "[1]", "[0, 8]"), 8, "has 8 bytes; F32[1] takes 4"},
    {"ShapeTooLarge", TensorEntry("F32", "[3]", "[0, 8]"), 8, "has 8 bytes; F32[3] takes 12"},
    {"HalfAByte", TensorEntry("F4", "[3]", "[0, 2]"), 2, "has 2 bytes; F4[3] takes 2"},
    {"HoleBefore", TensorEntry("U8", "[1]", "[1, 2]"), 2, "leaving a hole after byte 0"},
    {"HoleBetween",
     R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
         "y": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})",
     3, "tensor \"y\" begins at byte 2, leaving a hole after byte 1"},
    {"HoleBehind", TensorEntry("U8", "[1]", "[0, 1]"), 2, "the tensors end at byte 1 of the data"},
    {"Overlap",
     R"({"x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
         "y": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
     3, "tensor \"y\" begins at byte 1, inside another tensor, which ends at 2"},
    {"DataWithoutTensors", "{}", 1, "the tensors end at byte 0 of the data, which has 1"},
};

INSTANTIATE_TEST_SUITE_P(SafetensorsHeaderTest, InvalidHeaderTest,
                         testing::ValuesIn(kInvalidHeaders),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SafetensorsHeaderTest, RefusesDeepNesting) {
  const std::string deep(1'000'000, '[');
  const absl::Status status =
      ParseSafetensorsHeader(absl::StrCat(R"({"x": {"shape": )", deep), 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsHeaderTest, MessagesStayShortAndPrintable) {
  const std::string name = absl::StrCat("\\u0001", std::string(100'000, 'n'));
  const absl::Status status =
      ParseSafetensorsHeader(absl::StrCat("{\"", name, "\": 5, \"y\": 1}"), 0).status();
  EXPECT_THAT(status.message(), HasSubstr("\\x01nnn"));
  EXPECT_LT(status.message().size(), 1000u);
}

}  // namespace
}  // namespace tensord::internal
