// Elementwise functions and reductions that are compositions, by their values.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class CompositionTest : public ClientFixture {
 protected:
  template <typename T>
  Tensor Of(const std::vector<T>& values) {
    return FromVector<T>(first_, {static_cast<int64_t>(values.size())}, values);
  }
  Tensor Bools(const std::vector<int32_t>& values) { return Of(values).To(DType::kBool); }
};

TEST_F(CompositionTest, SquareAndReciprocal) {
  EXPECT_THAT(*Square(Floats({-3, 0.5})).Read<float>(), ElementsAre(9, 0.25));
  EXPECT_THAT(*Square(Of<int8_t>({-3, 12})).Read<int8_t>(), ElementsAre(9, -112));
  EXPECT_THAT(*Reciprocal(Floats({4, -0.0f})).Read<float>(), ElementsAre(0.25, -kInf));
  EXPECT_THAT(*Reciprocal(Of<int32_t>({4})).Read<float>(), ElementsAre(0.25));
  EXPECT_EQ(Reciprocal(Floats({4}).To(DType::kBFloat16)).dtype(), DType::kBFloat16);
}

TEST_F(CompositionTest, ClampKeepsNanAndLetsTheMaximumWin) {
  const std::vector<float> values = *Clamp(Floats({-2, 0.5, 7, kNan}), -1, 2).Read<float>();
  EXPECT_THAT(absl::MakeSpan(values).first(3), ElementsAre(-1, 0.5, 2));
  EXPECT_TRUE(std::isnan(values[3]));
  EXPECT_THAT(*Clamp(Floats({0, 9}), 5, 3).Read<float>(), ElementsAre(3, 3));
  EXPECT_THAT(*Clamp(Of<int32_t>({-5, 5}), -1, Of<int32_t>({0, 4})).Read<int32_t>(),
              ElementsAre(-1, 4));
}

TEST_F(CompositionTest, ClassifiesFloats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    const Tensor x = Floats({1, -0.0f, kInf, -kInf, kNan}).To(dtype);
    EXPECT_THAT(*IsNan(x).Read<bool>(), ElementsAre(false, false, false, false, true));
    EXPECT_THAT(*IsInf(x).Read<bool>(), ElementsAre(false, false, true, true, false));
    EXPECT_THAT(*IsFinite(x).Read<bool>(), ElementsAre(true, true, false, false, false));
    EXPECT_THAT(*SignBit(Floats({1, -0.0f, kInf, -kInf, 0}).To(dtype)).Read<bool>(),
                ElementsAre(false, true, false, true, false));
  }
}

TEST_F(CompositionTest, IntegersAndBoolAreFinite) {
  for (const DType dtype : {DType::kBool, DType::kUInt8, DType::kInt64}) {
    const Tensor x = Of<int32_t>({0, 3}).To(dtype);
    EXPECT_THAT(*IsNan(x).Read<bool>(), ElementsAre(false, false));
    EXPECT_THAT(*IsInf(x).Read<bool>(), ElementsAre(false, false));
    EXPECT_THAT(*IsFinite(x).Read<bool>(), ElementsAre(true, true));
    EXPECT_THAT(*SignBit(x).Read<bool>(), ElementsAre(false, false));
  }
  EXPECT_THAT(*SignBit(Of<int32_t>({-1, 1})).Read<bool>(), ElementsAre(true, false));
}

TEST_F(CompositionTest, LogicalFunctionsTakeAnyDtypes) {
  const Tensor a = Floats({0, 0, -2.5, kNan});
  const Tensor b = Of<int64_t>({0, 1, 0, 1});
  EXPECT_THAT(*LogicalAnd(a, b).Read<bool>(), ElementsAre(false, false, false, true));
  EXPECT_THAT(*LogicalOr(a, b).Read<bool>(), ElementsAre(false, true, true, true));
  EXPECT_THAT(*LogicalXor(a, b).Read<bool>(), ElementsAre(false, true, true, false));
  EXPECT_THAT(*LogicalNot(a).Read<bool>(), ElementsAre(true, true, false, false));
  EXPECT_THAT(*LogicalNot(b).Read<bool>(), ElementsAre(true, false, true, false));
  const Tensor c = Bools({0, 1, 0, 1});
  EXPECT_THAT(*LogicalAnd(a, c).Read<bool>(), ElementsAre(false, false, false, true));
  EXPECT_THAT(*LogicalNot(c).Read<bool>(), ElementsAre(true, false, true, false));
}

TEST_F(CompositionTest, BitwiseNotInvertsEveryBit) {
  EXPECT_THAT(*BitwiseNot(Of<int32_t>({0, -1, 5})).Read<int32_t>(), ElementsAre(-1, 0, -6));
  EXPECT_THAT(*BitwiseNot(Of<uint8_t>({0, 255, 5})).Read<uint8_t>(), ElementsAre(255, 0, 250));
  EXPECT_THAT(*BitwiseNot(Bools({0, 1})).Read<bool>(), ElementsAre(true, false));
  EXPECT_THAT(std::string(BitwiseNot(Floats({1})).status().message()), HasSubstr("float32"));
}

TEST_F(CompositionTest, LerpIsExactAtBothEnds) {
  const Tensor a = Floats({1, 1e8f}), b = Floats({3, 1});
  EXPECT_THAT(*Lerp(a, b, 0).Read<float>(), ElementsAre(1, 1e8f));
  EXPECT_THAT(*Lerp(a, b, 1).Read<float>(), ElementsAre(3, 1));
  EXPECT_THAT(*Lerp(a, b, Floats({0.25, 1})).Read<float>(), ElementsAre(1.5, 1));
  EXPECT_EQ(Lerp(a.To(DType::kFloat16), b.To(DType::kFloat16), 0.5).dtype(), DType::kFloat16);
}

TEST_F(CompositionTest, AddcmulAndAddcdiv) {
  const Tensor x = Floats({1, 2}), a = Floats({3, 4}), b = Floats({2, 8});
  EXPECT_THAT(*Addcmul(x, a, b).Read<float>(), ElementsAre(7, 34));
  EXPECT_THAT(*Addcmul(x, a, b, -0.5).Read<float>(), ElementsAre(-2, -14));
  EXPECT_THAT(*Addcdiv(x, a, b, 2).Read<float>(), ElementsAre(4, 3));
  EXPECT_THAT(*Addcmul(Of<int32_t>({1}), Of<int32_t>({2}), Of<int32_t>({3}), 4).Read<int32_t>(),
              ElementsAre(25));
}

// 256 + 1.0078125² is 257.0157 and would be 256 if the product were rounded and added in bfloat16;
// the nearest bfloat16 is 258 only if the sum exceeds 257.
TEST_F(CompositionTest, RoundsSixteenBitResultsOnce) {
  const auto narrow = [&](float value) { return Floats({value}).To(DType::kBFloat16); };
  const Tensor once = Addcmul(narrow(256), narrow(1.0078125f), narrow(1.0078125f));
  EXPECT_EQ(once.dtype(), DType::kBFloat16);
  EXPECT_EQ(*once.Item<float>(), 258);
  const Tensor wide = Addcmul(narrow(256), narrow(1), Floats({1.0078125f}));
  EXPECT_EQ(wide.dtype(), DType::kFloat32);
  EXPECT_EQ(*wide.Item<float>(), 257.0078125f);
}

TEST_F(CompositionTest, SoftplusIsLinearPastTheThreshold) {
  const std::vector<float> values = *Softplus(Floats({0, -2, 30, 200})).Read<float>();
  EXPECT_NEAR(values[0], std::log(2.0), 1e-6);
  EXPECT_NEAR(values[1], std::log1p(std::exp(-2.0)), 1e-6);
  EXPECT_EQ(values[2], 30);
  EXPECT_EQ(values[3], 200);
  EXPECT_NEAR(*Softplus(Floats({1}), {.beta = 2}).Item<float>(), std::log1p(std::exp(2.0)) / 2,
              1e-6);
  EXPECT_EQ(*Softplus(Floats({3}), {.threshold = 1}).Item<float>(), 3);
}

TEST_F(CompositionTest, ConjOfARealTensorIsTheTensor) {
  EXPECT_THAT(*Conj(Floats({1, -2})).Read<float>(), ElementsAre(1, -2));
}

TEST_F(CompositionTest, ErrorsBeginWithTheNameOfTheFunction) {
  const Tensor x = Floats({1, 2}), other = Floats({1, 2, 3}), ints = Of<int32_t>({1, 2});
  const std::pair<const char*, Tensor> cases[] = {
      {"clamp: maximum: shapes [2] and [3] don't broadcast", Clamp(x, other, 1)},
      {"clamp: minimum: float32 and int32 don't promote", Clamp(x, 0, ints)},
      {"logical_and: bitwise_and: shapes", LogicalAnd(x, other)},
      {"logical_or: bitwise_or: shapes", LogicalOr(x, other)},
      {"logical_xor: bitwise_xor: shapes", LogicalXor(x, other)},
      {"bitwise_not: ", BitwiseNot(x)},
      {"lerp: sub: shapes", Lerp(x, other, 0.5)},
      {"lerp: ", Lerp(x, x, other)},
      {"addcmul: mul: shapes", Addcmul(x, x, other)},
      {"addcdiv: div: shapes", Addcdiv(x, x, other)}};
  for (const auto& [begin, result] : cases) {
    EXPECT_THAT(std::string(result.status().message()), StartsWith(begin));
  }
  EXPECT_THAT(std::string(Clamp(x + other, 0, 1).status().message()), StartsWith("add: "))
      << "the error of an operand stays as it is";
}

TEST_F(CompositionTest, FailsWithTheErrorOfItsFirstFailedInput) {
  const Tensor failed = Tensor::Failed(absl::ResourceExhaustedError("the root of it"));
  const Tensor x = Floats({1});
  const Tensor results[] = {Square(failed),        Reciprocal(failed),    Clamp(failed, 0, 1),
                            IsNan(failed),         IsInf(failed),         IsFinite(failed),
                            SignBit(failed),       LogicalAnd(x, failed), LogicalNot(failed),
                            BitwiseNot(failed),    Lerp(x, failed, 0.5),  Lerp(x, x, failed),
                            Addcmul(x, x, failed), Addcdiv(failed, x, x), Softplus(failed)};
  for (const Tensor& result : results) EXPECT_EQ(result.status(), failed.status());
}

TEST_F(CompositionTest, VarMeanGivesBothOfOneOp) {
  const Tensor x = FromVector<float>(first_, {2, 4}, {1, 2, 3, 4, 5, 5, 5, 5});
  const auto [var, mean] = VarMean(x, {.axes = {1}});
  EXPECT_THAT(*var.Read<float>(), ElementsAre(testing::FloatEq(5.0f / 3), 0));
  EXPECT_THAT(*mean.Read<float>(), ElementsAre(2.5, 5));
  EXPECT_THAT(*Var(x, {.axes = {1}, .keepdims = true, .correction = 0}).Read<float>(),
              ElementsAre(1.25, 0));
  EXPECT_EQ(Var(x, {.axes = {1}, .keepdims = true}).shape(), Shape({2, 1}));
  EXPECT_EQ(*Std(Floats({1, 5}), {.correction = 0}).Item<float>(), 2);
  EXPECT_EQ(Std(Floats({1, 5}).To(DType::kFloat16)).dtype(), DType::kFloat16);
  const VarAndMean failed = VarMean(x.To(DType::kInt32));
  ExpectError(failed.var.status(), absl::StatusCode::kInvalidArgument, {"var_mean", "cast first"});
  ExpectError(failed.mean.status(), absl::StatusCode::kInvalidArgument, {"var_mean", "cast first"});
}

TEST_F(CompositionTest, AllAndAny) {
  const Tensor x = FromVector<float>(first_, {3, 2}, {0, -0.0f, 0, kNan, 1, kInf});
  EXPECT_THAT(*All(x, {.axes = {1}}).Read<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT(*Any(x, {.axes = {1}}).Read<bool>(), ElementsAre(false, true, true));
  EXPECT_FALSE(*All(x).Item<bool>());
  EXPECT_TRUE(*Any(Bools({0, 1})).Item<bool>());
  const Tensor none = FromVector<float>(first_, {2, 0}, {});
  EXPECT_THAT(*All(none, {.axes = {1}}).Read<bool>(), ElementsAre(true, true));
  EXPECT_THAT(*Any(none, {.axes = {1}}).Read<bool>(), ElementsAre(false, false));
}

TEST_F(CompositionTest, AccumulationsWithADType) {
  const Tensor x = Of<int8_t>({100, 100, 3});
  EXPECT_EQ(*Sum(x).Item<int64_t>(), 203);
  EXPECT_EQ(*Sum(x, {.dtype = DType::kInt8}).Item<int8_t>(), -53);
  EXPECT_EQ(*Prod(x, {.dtype = DType::kFloat32}).Item<float>(), 30000);
  EXPECT_EQ(*CountNonzero(Floats({0, kNan, 2})).Item<int64_t>(), 2);
  EXPECT_THAT(*CumSum(x, 0).Read<int64_t>(), ElementsAre(100, 200, 203));
  EXPECT_THAT(*CumSum(x, 0, {.exclusive = true, .reverse = true}).Read<int64_t>(),
              ElementsAre(103, 3, 0));
  EXPECT_THAT(*CumProd(x, -1, {.dtype = DType::kInt32}).Read<int32_t>(),
              ElementsAre(100, 10000, 30000));
}

}  // namespace
}  // namespace tensord::integration
