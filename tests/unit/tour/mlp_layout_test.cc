#include "tensord/client/tour/mlp_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tensord/client/cli/args.h"

namespace tensord::tour {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Specs = std::map<std::string, TensorSpec>;

TensorSpec Float(std::initializer_list<int64_t> dims) { return {DType::kFloat32, Shape(dims)}; }

std::string ErrorOf(const Specs& specs) {
  const auto layers = FindMlpLayers(specs);
  return layers.ok() ? "(no error)" : std::string(layers.status().message());
}

TEST(MlpLayers, OrdersLayersByNumber) {
  const auto layers = FindMlpLayers({{"0.weight", Float({128, 64})},
                                     {"0.bias", Float({128})},
                                     {"10.weight", Float({10, 32})},
                                     {"2.weight", Float({32, 128})},
                                     {"2.bias", Float({32})}});
  ASSERT_TRUE(layers.ok()) << layers.status();
  ASSERT_EQ(layers->size(), 3u);
  EXPECT_EQ((*layers)[1].weight, "2.weight");
  EXPECT_EQ((*layers)[1].bias, "2.bias");
  EXPECT_EQ((*layers)[2].weight, "10.weight");
  EXPECT_EQ((*layers)[2].bias, "");
  EXPECT_EQ((*layers)[0].in_features, 64);
  EXPECT_EQ(DescribeLayers(*layers), "64 → 128 → 32 → 10");
}

TEST(MlpLayers, ErrorsNameInvalidTensors) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("no tensors"));
  EXPECT_THAT(ErrorOf({{"conv.weight", Float({3, 3})}}), HasSubstr("\"conv.weight\""));
  EXPECT_THAT(ErrorOf({{"-1.weight", Float({3, 3})}}), HasSubstr("\"-1.weight\""));
  EXPECT_THAT(ErrorOf({{"0.bias", Float({3})}}), HasSubstr("no \"0.weight\""));
  EXPECT_THAT(ErrorOf({{"0.weight", Float({3, 3, 3})}}), HasSubstr("float32[3, 3, 3]"));
  EXPECT_THAT(ErrorOf({{"0.weight", {DType::kInt8, Shape({3, 3})}}}), HasSubstr("int8[3, 3]"));
  EXPECT_THAT(ErrorOf({{"0.weight", Float({4, 3})}, {"0.bias", Float({3})}}),
              AllOf(HasSubstr("\"0.bias\""), HasSubstr("[4]")));
  EXPECT_THAT(ErrorOf({{"0.weight", Float({4, 3})}, {"2.weight", Float({2, 5})}}),
              AllOf(HasSubstr("\"2.weight\" takes 5"), HasSubstr("gives 4")));
}

TEST(Rows, FollowsPythonsRules) {
  const auto rows = [](absl::string_view text) {
    const auto range = ParseRows(text, 1797);
    return range.ok() ? std::pair(range->first, range->last) : std::pair<int64_t, int64_t>(-1, -1);
  };
  EXPECT_EQ(rows(":"), std::pair(int64_t{0}, int64_t{1797}));
  EXPECT_EQ(rows("1200:"), std::pair(int64_t{1200}, int64_t{1797}));
  EXPECT_EQ(rows(":100"), std::pair(int64_t{0}, int64_t{100}));
  EXPECT_EQ(rows("5:10"), std::pair(int64_t{5}, int64_t{10}));
  EXPECT_EQ(rows("-7:"), std::pair(int64_t{1790}, int64_t{1797}));
  EXPECT_EQ(rows("3"), std::pair(int64_t{3}, int64_t{4}));
  EXPECT_EQ(rows(":99999"), std::pair(int64_t{0}, int64_t{1797}));
}

TEST(Rows, EmptyOrInvalidRangeIsAUsageError) {
  for (const char* text : {"10:5", "1797:", "", "a:b", "1:2:3", "1.5:"}) {
    const auto range = ParseRows(text, 1797);
    ASSERT_FALSE(range.ok()) << text;
    EXPECT_TRUE(cli::IsUsageError(range.status())) << text;
  }
  EXPECT_FALSE(ParseRows(":", 0).ok());
}

TEST(Scale, IsReadFromTheMetadata) {
  EXPECT_EQ(ScaleFromMetadata({{"input", "pixel/16"}}), 0.0625);
  EXPECT_EQ(ScaleFromMetadata({}), std::nullopt);
  EXPECT_EQ(ScaleFromMetadata({{"input", "pixel"}}), std::nullopt);
  EXPECT_EQ(ScaleFromMetadata({{"input", "pixel/0"}}), std::nullopt);
  EXPECT_EQ(ScaleFromMetadata({{"input", "pixel/nan"}}), std::nullopt);
}

TEST(Labels, OfEveryIntegerDType) {
  const std::vector<uint8_t> bytes = {1, 0, 0, 0, 9, 0, 0, 0};
  EXPECT_THAT(*DecodeLabels({DType::kInt32, Shape({2})}, bytes, 10), ElementsAre(1, 9));
  EXPECT_THAT(*DecodeLabels({DType::kUInt8, Shape({8})}, bytes, 10),
              ElementsAre(1, 0, 0, 0, 9, 0, 0, 0));
  std::vector<uint8_t> wide(8);
  const int64_t five = 5;
  std::memcpy(wide.data(), &five, sizeof(five));
  EXPECT_THAT(*DecodeLabels({DType::kInt64, Shape({1})}, wide, 10), ElementsAre(5));
}

TEST(Labels, MustBeClasses) {
  const auto outside = DecodeLabels({DType::kUInt8, Shape({3})}, {1, 2, 10}, 10);
  EXPECT_THAT(outside.status().message(),
              AllOf(HasSubstr("label 10"), HasSubstr("row 2"), HasSubstr("0 to 9")));
  EXPECT_FALSE(DecodeLabels({DType::kInt8, Shape({1})}, {0xff}, 10).ok()) << "-1";
  EXPECT_THAT(DecodeLabels({DType::kFloat32, Shape({1})}, {0, 0, 0, 0}, 10).status().message(),
              HasSubstr("float32[1]"));
}

}  // namespace
}  // namespace tensord::tour
