#include "tensord/common/attributes.h"

#include <gtest/gtest.h>

#include <iterator>

#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

TEST(Attributes, KeepsTheLastValueOfAName) {
  Attributes attrs = {{"axis", int64_t{1}}, {"keepdims", true}};
  attrs.Set("axis", int64_t{2});
  EXPECT_EQ(attrs.Int("axis"), 2);
  EXPECT_TRUE(attrs.Bool("keepdims"));
  EXPECT_EQ(std::distance(attrs.begin(), attrs.end()), 2);
  EXPECT_EQ(attrs.Find("axes"), nullptr);
  EXPECT_TRUE(Attributes().empty());
}

TEST(Attributes, ReturnsValuesOfEveryType) {
  const Attributes attrs = {{"b", true},
                            {"i", int64_t{-5}},
                            {"f", 2.5},
                            {"s", "relu"},
                            {"l", std::vector<int64_t>{1, 2}},
                            {"d", DType::kInt8},
                            {"raw", Bytes{"\1"}}};
  EXPECT_TRUE(attrs.Bool("b"));
  EXPECT_EQ(attrs.Int("i"), -5);
  EXPECT_EQ(attrs.Float("f"), 2.5);
  EXPECT_EQ(attrs.String("s"), "relu");
  EXPECT_EQ(attrs.Ints("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(attrs.Type("d"), DType::kInt8);
  EXPECT_EQ(attrs.Data("raw"), "\1");
  std::string types;
  for (const auto& [name, value] : attrs) absl::StrAppend(&types, AttrTypeName(value), " ");
  EXPECT_EQ(types, "bool int float string ints dtype bytes ");
}

TEST(AttributesDeathTest, AskingForTheWrongTypeIsABug) {
  const Attributes attrs = {{"axis", int64_t{1}}};
  EXPECT_DEATH(attrs.Float("axis"), "axis.*int");
  EXPECT_DEATH(attrs.Int("axes"), "axes.*missing");
}

}  // namespace
}  // namespace tensord
