#include "tensord/client/scalar.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/scalar_typing.h"
#include "tensord/common/util/op_words.h"

namespace tensord {
namespace {

using internal::PromotedDType;
using internal::ScalarInput;
using internal::ToScalarInput;

TEST(ScalarTest, KeepsTheKindOfItsValue) {
  EXPECT_TRUE(Scalar(true).is_bool());
  EXPECT_TRUE(Scalar(1).is_int());
  EXPECT_TRUE(Scalar(size_t{3}).is_int());
  EXPECT_TRUE(Scalar(1.0f).is_float());
  EXPECT_EQ(std::get<int64_t>(Scalar(uint8_t{200}).value()), 200);
  EXPECT_EQ(std::get<int64_t>(Scalar(-5).value()), -5);
  EXPECT_EQ(std::get<double>(Scalar(0.5).value()), 0.5);
}

TEST(ScalarTest, IntegerAboveInt64IsKeptExactly) {
  const Scalar largest(~uint64_t{0});
  EXPECT_TRUE(largest.is_int() && largest.is_large());
  EXPECT_EQ(std::get<uint64_t>(largest.value()), ~uint64_t{0});
  EXPECT_FALSE(Scalar(~uint64_t{0} / 2).is_large());
}

TEST(ScalarTest, IntegerAboveInt64IsAUint64Alone) {
  EXPECT_EQ(PromotedDType(DType::kBool, ~uint64_t{0}), DType::kUInt64);
  EXPECT_EQ(PromotedDType(DType::kUInt64, ~uint64_t{0}), DType::kUInt64);
  EXPECT_EQ(PromotedDType(DType::kFloat32, ~uint64_t{0}), DType::kFloat32);
}

TEST(ScalarTest, BecomesAnInputOfEveryDTypeThatHoldsItsValue) {
  const auto word = [](Scalar value, DType dtype) -> std::optional<uint64_t> {
    const std::optional<ScalarInput> input = ToScalarInput(value, dtype, 0);
    return input.has_value() ? std::optional(input->word) : std::nullopt;
  };
  EXPECT_EQ(word(65535, DType::kUInt16), IntToWord(65535));
  EXPECT_EQ(word(65536, DType::kUInt16), std::nullopt);
  EXPECT_EQ(word(-1, DType::kUInt32), std::nullopt);
  EXPECT_EQ(word(-32768, DType::kInt16), IntToWord(-32768));
  EXPECT_EQ(word(-32769, DType::kInt16), std::nullopt);
  EXPECT_EQ(word(~uint64_t{0}, DType::kUInt64), IntToWord(-1));
  EXPECT_EQ(word(-1, DType::kUInt64), std::nullopt);
  EXPECT_EQ(word(~uint64_t{0}, DType::kInt64), std::nullopt);
  EXPECT_EQ(word(~uint64_t{0}, DType::kFloat32), FloatToWord(0x1p64));
  for (const Scalar value : {Scalar(1), Scalar(2.0), Scalar(true)}) {
    EXPECT_EQ(word(value, DType::kComplex64), std::nullopt);
  }
}

TEST(ScalarTest, TakesTheDTypeOfATensorOfItsKindOrAHigherOne) {
  EXPECT_EQ(PromotedDType(DType::kFloat16, 2.5), DType::kFloat16);
  EXPECT_EQ(PromotedDType(DType::kFloat64, 2), DType::kFloat64);
  EXPECT_EQ(PromotedDType(DType::kBFloat16, true), DType::kBFloat16);
  EXPECT_EQ(PromotedDType(DType::kUInt8, 2), DType::kUInt8);
  EXPECT_EQ(PromotedDType(DType::kInt32, true), DType::kInt32);
  EXPECT_EQ(PromotedDType(DType::kBool, true), DType::kBool);
  EXPECT_EQ(PromotedDType(DType::kUInt16, 2), DType::kUInt16);
  EXPECT_EQ(PromotedDType(DType::kComplex64, 2.5), DType::kComplex64);
}

TEST(ScalarTest, HigherKindPromotesTheTensor) {
  EXPECT_EQ(PromotedDType(DType::kInt64, 2.0), DType::kFloat32);
  EXPECT_EQ(PromotedDType(DType::kUInt8, 0.5), DType::kFloat32);
  EXPECT_EQ(PromotedDType(DType::kUInt64, 0.5), DType::kFloat32);
  EXPECT_EQ(PromotedDType(DType::kBool, 3), DType::kInt64);
  EXPECT_EQ(PromotedDType(DType::kBool, 0.5), DType::kFloat32);
}

}  // namespace
}  // namespace tensord
