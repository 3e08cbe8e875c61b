// Tensors of the C++ client: indexing, copies by a device's name, listings and printed errors.
#include <gmock/gmock.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

using ClientTensorTest = ClientFixture;

TEST_F(ClientTensorTest, AnonymousCallerHasNoName) {
  const auto info = client_.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->caller, "");
}

TEST_F(ClientTensorTest, ListsWhyATensorHasFailed) {
  const Tensor fine = Ones(second_, {2});
  const Tensor failed = Ones(second_, {17 << 20});
  const auto listed = client_.ListTensors();
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_TRUE((*listed)[0].status.ok());
  EXPECT_EQ((*listed)[0].size_bytes, 8);
  EXPECT_EQ((*listed)[1].handle, failed.handle());
  ExpectError((*listed)[1].status, Code::kResourceExhausted, {"out of memory"});
  EXPECT_EQ((*listed)[1].size_bytes, 0) << "a failed tensor has no memory";
}

TEST_F(ClientTensorTest, PrintsErrorsWithoutTheirPayloads) {
  const Tensor big = Ones(second_, {17 << 20});
  const absl::Status root = big.Wait();
  ASSERT_NE(ErrorReason(root), "") << "the server attaches none";
  EXPECT_EQ(big.ToString(),
            absl::StrCat("tensor(<error: RESOURCE_EXHAUSTED: ", root.message(), ">)"));
}

// The rules are PyTorch's: a number takes the tensor's dtype, unless it is of a higher kind.
TEST_F(ClientTensorTest, ScalarsTakeTheDTypeOfTheTensor) {
  const Tensor x = FromVector<float>(first_, {3}, {1, -2, 4});
  EXPECT_THAT(*(x * 2.5).Read<float>(), ElementsAre(2.5, -5, 10));
  EXPECT_THAT(*(10 - x).Read<float>(), ElementsAre(9, 12, 6));
  EXPECT_THAT(*(x / 4).Read<float>(), ElementsAre(0.25, -0.5, 1));
  EXPECT_THAT(*Gt(x, 1).Read<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT(*(x.To(DType::kInt32) * 3).Read<int32_t>(), ElementsAre(3, -6, 12));
  EXPECT_THAT(*(x.To(DType::kInt64) - INT64_MAX).Read<int64_t>(),
              ElementsAre(1 - INT64_MAX, INT64_MAX, 4 - INT64_MAX))
      << "-2 - INT64_MAX wraps";
  EXPECT_THAT(*(x.To(DType::kInt32) * 0.5).Read<float>(), ElementsAre(0.5, -1, 2));
  EXPECT_THAT(*(Gt(x, 1) + true).Read<bool>(), ElementsAre(true, true, true));
  EXPECT_EQ((x.To(DType::kFloat16) * 3).dtype(), DType::kFloat16);
  EXPECT_EQ((Gt(x, 1) + 1).dtype(), DType::kInt64);
}

// The server guesses that an op runs on the device of the op before it.
TEST_F(ClientTensorTest, OpWhoseFirstInputIsAScalarRunsOnTheDeviceOfItsTensor) {
  const Tensor here = FromVector<float>(first_, {2}, {1, 2});
  const Tensor there = FromVector<float>(second_, {2}, {3, 4});
  EXPECT_THAT(*(here + (10 - here)).Read<float>(), ElementsAre(10, 10));
  EXPECT_THAT(*(there + (10 - there)).Read<float>(), ElementsAre(10, 10));
  EXPECT_THAT(*(here + (10 - here)).Read<float>(), ElementsAre(10, 10));
}

TEST_F(ClientTensorTest, ScalarsKeepTheirBits) {
  const Tensor one = Ones(first_, {1}, {.dtype = DType::kFloat64});
  for (const double value : {0.1, -0.0, 1e-310, 1e300, std::numeric_limits<double>::infinity()}) {
    const double product = *(one * value).Item<double>();
    EXPECT_EQ(product, value);
    EXPECT_EQ(std::signbit(product), std::signbit(value));
  }
  EXPECT_TRUE(std::isnan(*(one * std::nan("")).Item<double>()));
  ExpectError((one.To(DType::kFloat16) + 1e6).status(), Code::kInvalidArgument, {"float16"});
  ExpectError((one.To(DType::kUInt8) + 300).status(), Code::kInvalidArgument, {"300", "uint8"});
}

TEST_F(ClientTensorTest, ScalarsInARecordedProgramAreConstants) {
  const auto program = Program::Record(
      first_, {{DType::kFloat32, {2}}},
      [](absl::Span<const Tensor> x) { return std::vector<Tensor>{x[0] * 2.0 + 1}; });
  ASSERT_TRUE(program.ok()) << program.status();
  for (int run = 1; run <= 2; ++run) {
    const Tensor y = program->Run({FromVector<float>(first_, {2}, {1.0f * run, 5})})[0];
    EXPECT_THAT(*y.Read<float>(), ElementsAre(2 * run + 1, 11));
  }
}

TEST_F(ClientTensorTest, DonatedTensorCannotBeUsedAgain) {
  const Tensor x = FromVector<float>(first_, {2}, {1, 2});
  const Tensor copy = x;
  const auto sum = RunOpWithOutputs("add", {x, x}, {}, {.donate = {1}});
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_EQ(sum->size(), 1u);
  EXPECT_THAT(*(*sum)[0].Read<float>(), ElementsAre(2, 4));
  ExpectError(copy.status(), Code::kFailedPrecondition, {"donated to add"});
  ExpectError(Relu(x).status(), Code::kFailedPrecondition, {"donated to add"});
  ExpectError(x.Read<float>().status(), Code::kFailedPrecondition, {"donated to add"});
  EXPECT_EQ(client_.ListTensors()->size(), 1u);
  EXPECT_EQ(x.spec(), (*sum)[0].spec()) << "its spec stays";
  EXPECT_EQ(x.num_elements(), 2);
  EXPECT_EQ(x.size_bytes(), 8);
  EXPECT_EQ(x.device(), first_);
}

TEST_F(ClientTensorTest, OpThatInferenceRefusesKeepsItsDonatedInputs) {
  const Tensor x = FromVector<float>(first_, {2}, {1, 2});
  const Tensor y = Ones(first_, {3});
  ExpectError(RunOpWithOutputs("add", {x, y}, {}, {.donate = {0}}).status(), Code::kInvalidArgument,
              {"[2]", "[3]"});
  ExpectError(RunOpWithOutputs("relu", {x}, {}, {.donate = {1}}).status(), Code::kInvalidArgument,
              {"donate", "1"});
  EXPECT_THAT(*x.Read<float>(), ElementsAre(1, 2));
}

TEST_F(ClientTensorTest, ToTheSameDeviceReturnsTheTensorItself) {
  const Tensor x = Ones(first_, {1000});
  ASSERT_TRUE(x.Wait().ok());
  const int64_t used = Used(first_);
  const ClientStats before = client_.stats();
  const Tensor same = x.To(first_);
  EXPECT_EQ(same.handle(), x.handle());
  EXPECT_TRUE(same.IsSameAs(x));
  EXPECT_TRUE(x.To(DType::kFloat32).IsSameAs(x));
  EXPECT_EQ(client_.stats().commands_sent, before.commands_sent);
  EXPECT_EQ(Used(first_), used);
  EXPECT_EQ(used, 4000);
  const Tensor other = x.To(second_);
  EXPECT_NE(other.handle(), x.handle());
  EXPECT_EQ(other.device(), second_);
  ASSERT_TRUE(other.Wait().ok());
  EXPECT_EQ(Used(first_), 4000);
  EXPECT_EQ(Used(second_), 4000);
}

TEST_F(ClientTensorTest, ToFindsADeviceByItsName) {
  const Tensor x = Floats({1, 2});
  const Tensor y = x.To(TestDevice(1));
  EXPECT_EQ(y.device(), second_);
  EXPECT_THAT(*y.Read<float>(), ElementsAre(1, 2));
  ExpectError(x.To("cpu:99").status(), Code::kNotFound, {"copy: no device cpu:99", TestDevice(1)});
  ExpectError(x.To("gpu 1").status(), Code::kInvalidArgument, {"copy: ", "<kind>:<number>"});
}

TEST_F(ClientTensorTest, AnIndexDropsTheFirstAxis) {
  const Tensor x = FromVector<float>(first_, {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(x[1].shape(), Shape({2}));
  EXPECT_THAT(*x[1].Read<float>(), ElementsAre(3, 4));
  EXPECT_THAT(*x[-1].Read<float>(), ElementsAre(5, 6));
  EXPECT_EQ(*x[0][1].Item<float>(), 2);
  EXPECT_EQ(x[0][1].rank(), 0);
  for (const int64_t outside : {3, -4}) {
    ExpectError(x[outside].status(), Code::kOutOfRange, {"first axis", "[3, 2]"});
  }
  ExpectError(x[0][1][0].status(), Code::kOutOfRange, {"no axes"});
}

TEST_F(ClientTensorTest, ComplexTensorsAreStoredMovedAndRead) {
  using Complex = std::complex<float>;
  const Tensor z = FromVector<Complex>(first_, {2, 2}, {{1, 2}, {3, -4}, {0, 1}, {-1, 0}});
  EXPECT_THAT(*z.Read<Complex>(),
              ElementsAre(Complex(1, 2), Complex(3, -4), Complex(0, 1), Complex(-1, 0)));
  const Tensor turned = Permute(z, {1, 0}).To(second_);
  EXPECT_THAT(*turned[0].Read<Complex>(), ElementsAre(Complex(1, 2), Complex(0, 1)));
  EXPECT_EQ(z[0].ToString(),
            absl::StrCat("tensor([1.+2.j, 3.-4.j], device='", first_.name(), "')"));
  EXPECT_EQ(*Full(first_, {}, 2.5, {DType::kComplex128}).Item<std::complex<double>>(), 2.5);
  // Large tensors are sent on another connection.
  const std::vector<Complex> many(100000, Complex(0.5f, -7));
  EXPECT_EQ(*FromVector<Complex>(first_, many).Read<Complex>(), many);
}

TEST_F(ClientTensorTest, ComplexArithmeticIsRefusedAtTheCall) {
  const Tensor z = Ones(first_, {2}, {DType::kComplex64});
  const Tensor results[] = {z + z, z * 2.0, Exp(z), Sum(z), Matmul(z, z), Cast(z, DType::kFloat32)};
  for (const Tensor& result : results) {
    ExpectError(result.status(), Code::kInvalidArgument, {"complex arithmetic", "complex64[2]"});
  }
  ExpectError(z.ReadAs<float>().status(), Code::kInvalidArgument, {"complex64", "float32"});
  ExpectError(Ones(first_, {2}).ReadAs<std::complex<float>>().status(), Code::kInvalidArgument);
}

TEST_F(ClientTensorTest, LargeUnsignedIntegersAreExact) {
  constexpr uint64_t kLarge = UINT64_MAX - 1;
  const Tensor x = FromVector<uint64_t>(first_, {1, kLarge, UINT64_MAX});
  EXPECT_THAT(*Gt(x, kLarge).Read<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT(*Maximum(x, 5).Read<uint64_t>(), ElementsAre(5, kLarge, UINT64_MAX));
  EXPECT_EQ(*Max(x).Item<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(*Argmax(x).Item<int64_t>(), 2);
  EXPECT_THAT(*Full(first_, {2}, kLarge).Read<uint64_t>(), ElementsAre(kLarge, kLarge));
  EXPECT_THAT(*(x + 1).Read<uint64_t>(), ElementsAre(2, UINT64_MAX, 0));
  EXPECT_EQ(*Full(first_, {}, kLarge, {DType::kFloat64}).Item<double>(), 0x1p64);
  ExpectError(Full(first_, {}, kLarge, {DType::kInt64}).status(), Code::kInvalidArgument,
              {"doesn't fit int64"});
  ExpectError((x + Ones(first_, {3}, {DType::kInt64})).status(), Code::kInvalidArgument,
              {"uint64 to int64"});
}

TEST_F(ClientTensorTest, NumbersAreExactUpToTheLargestUint64) {
  constexpr uint64_t kLarge = uint64_t{1} << 63;
  const Tensor x = FromVector<uint64_t>(first_, {1, kLarge + 1});
  EXPECT_THAT(*(x * 2).Read<uint64_t>(), ElementsAre(2, 2));
  EXPECT_THAT(*(kLarge - x).Read<uint64_t>(), ElementsAre(kLarge - 1, UINT64_MAX));
  EXPECT_THAT(*Remainder(x, kLarge).Read<uint64_t>(), ElementsAre(1, 1));
  EXPECT_THAT(*ShiftRight(x, 63).Read<uint64_t>(), ElementsAre(0, 1));
  EXPECT_THAT(*Where(Gt(x, 1), kLarge, x).Read<uint64_t>(), ElementsAre(1, kLarge));
  EXPECT_THAT(*Clamp(x, 5, kLarge).Read<uint64_t>(), ElementsAre(5, kLarge));
  EXPECT_THAT(*BitwiseNot(x).Read<uint64_t>(), ElementsAre(UINT64_MAX - 1, kLarge - 2));
  EXPECT_EQ((Ones(first_, {2}, {DType::kBool}) + kLarge).dtype(), DType::kUInt64);
  EXPECT_EQ((x * 0.5).dtype(), DType::kFloat32);
  EXPECT_THAT(*(Ones(first_, {1}, {DType::kFloat64}) * kLarge).Read<double>(), ElementsAre(0x1p63));
  const auto program = Program::Record(first_, {x.spec()}, [](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{(in[0] + kLarge) * 3};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(*program->Run({x})[0].Read<uint64_t>(), ElementsAre(kLarge + 3, 3));
}

TEST_F(ClientTensorTest, NumbersOutsideTheRangeOfAnIntegerDTypeAreRefused) {
  constexpr uint64_t kLarge = uint64_t{1} << 63;
  const auto ones = [&](DType dtype) { return Ones(first_, {2}, {dtype}); };
  ExpectError((ones(DType::kUInt64) * -1).status(), Code::kInvalidArgument,
              {"mul: the scalar -1 doesn't fit uint64", "from 0 to 18446744073709551615",
               "cast the tensor first, for example to int64"});
  ExpectError((ones(DType::kUInt32) + (int64_t{1} << 32)).status(), Code::kInvalidArgument,
              {"add: the scalar 4294967296 doesn't fit uint32"});
  ExpectError((ones(DType::kInt16) - 32768).status(), Code::kInvalidArgument,
              {"sub: the scalar 32768 doesn't fit int16"});
  ExpectError((ones(DType::kInt64) + kLarge).status(), Code::kInvalidArgument,
              {"add: the scalar 9223372036854775808 doesn't fit int64", "to uint64"});
}

TEST_F(ClientTensorTest, ScalarOutsideTheRangeOfAFloatingDTypeIsRefused) {
  const Tensor half = Ones(first_, {2}, {DType::kFloat16});
  ExpectError((half * 1e6).status(), Code::kInvalidArgument,
              {"mul: the scalar 1e+06 doesn't fit float16", "for example to float32"});
  ExpectError((half * 1e39).status(), Code::kInvalidArgument, {"for example to float64"});
  ExpectError(Where(Gt(half, 0), half, 1e6).status(), Code::kInvalidArgument,
              {"where: the scalar 1e+06 doesn't fit float16"});
}

TEST_F(ClientTensorTest, ScalarThatRoundsToAFiniteValueIsAccepted) {
  const float max = std::numeric_limits<float>::max();
  const Tensor zero = Zeros(first_, {1});
  EXPECT_THAT(*(zero + 3.402823466385289e+38).Read<float>(), ElementsAre(max));
  EXPECT_THAT(*Where(Gt(zero, 0), zero, -3.402823466385289e+38).Read<float>(), ElementsAre(-max));
  const Tensor half = (zero.To(DType::kFloat16) + 65519).To(DType::kFloat32);
  EXPECT_THAT(*half.Read<float>(), ElementsAre(65504));
  EXPECT_THAT(
      *Full(first_, {1}, 65519.0, {.dtype = DType::kFloat16}).To(DType::kFloat32).Read<float>(),
      ElementsAre(65504));
}

TEST_F(ClientTensorTest, ErrorInASequenceNamesTheModule) {
  const auto linear = [&](int64_t in, int64_t out) {
    return nn::Linear(in, out, {.device = first_});
  };
  const Tensor x = Ones(first_, {2, 4});
  const nn::Sequential flat(linear(4, 8), nn::ReLU(), linear(9, 2));
  ExpectError(flat(x).status(), Code::kInvalidArgument,
              {"module 2 (Linear): linear: x ends in 8 and the weight (out,in) takes 9"});
  const nn::Sequential nested(linear(4, 8), nn::Sequential(nn::ReLU(), linear(9, 2)), nn::ReLU());
  ExpectError(nested(x).status(), Code::kInvalidArgument, {"module 1.1 (Linear): linear: x ends"});
  const absl::Status of_input = nested(x + Ones(first_, {3})).status();
  EXPECT_THAT(std::string(of_input.message()), testing::StartsWith("add: "));
}

TEST_F(ClientTensorTest, RunOpRefusesAnOpWithSeveralOutputs) {
  const Tensor x = Ones(first_, {2, 4});
  for (int i = 0; i < 3; ++i) {  // from the second time on, the client knows the op's result
    ExpectError(RunOp("sort", {x}).status(), Code::kInvalidArgument,
                {"sort: has 2 outputs", "RunOpWithOutputs"});
    const auto outputs = RunOpWithOutputs("sort", {x});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->size(), 2u);
    EXPECT_TRUE((*outputs)[1].Wait().ok());
  }
  ExpectError(RunOp("dropout", {x}, {{"seed", int64_t{1}}, {"mask", true}}).status(),
              Code::kInvalidArgument, {"RunOpWithOutputs"});
  EXPECT_TRUE(RunOp("dropout", {x}, {{"seed", int64_t{1}}}).ok());
  const auto program = Program::Record(first_, {x.spec()}, [](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{RunOp("sort", {in[0]})};
  });
  ExpectError(program.status(), Code::kInvalidArgument, {"RunOpWithOutputs"});
}

TEST_F(ClientTensorTest, AnEmptyBiasIsNamed) {
  const Tensor x = Ones(first_, {2, 2});
  ExpectError(Linear(x, x, Tensor()).status(), Code::kInvalidArgument, {"linear: the bias"});
}

TEST_F(ClientTensorTest, LogSumExpNeitherOverflowsNorLosesInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto of = [&](const std::vector<float>& values) {
    return *LogSumExp(Floats(values)).Item<float>();
  };
  EXPECT_FLOAT_EQ(of({1000, 1000}), 1000 + std::log(2.0f));
  EXPECT_EQ(of({-kInf, -kInf}), -kInf);
  EXPECT_EQ(of({kInf, 1}), kInf);
  EXPECT_EQ(of({}), -kInf);
  EXPECT_TRUE(std::isnan(of({std::numeric_limits<float>::quiet_NaN(), 1})));
  const Tensor x = FromVector<float>(first_, {2, 2}, {0, 0, 3, -kInf}).To(DType::kBFloat16);
  EXPECT_EQ(LogSumExp(x, {.axes = {0}, .keepdims = true}).shape(), Shape({1, 2}));
  EXPECT_EQ(LogSumExp(x, {.axes = {0}}).dtype(), DType::kBFloat16);
  const Tensor whole = FromVector<int32_t>(first_, {2}, {2, 2});
  EXPECT_FLOAT_EQ(*LogSumExp(whole).Item<float>(), 2 + std::log(2.0f));
}

}  // namespace
}  // namespace tensord::integration
