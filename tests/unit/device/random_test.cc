#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tensord/server/device/random_math.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

TEST(RandomTest, PhiloxMatchesRandom123) {
  std::mt19937_64 generator(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t seed = generator(), stream = generator(), block = generator();
    const r123::Philox4x32::ctr_type expected =
        r123::Philox4x32()({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                           {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}});
    const PhiloxBlock actual = Philox({seed, stream}, block);
    for (int k = 0; k < 4; ++k) ASSERT_EQ(actual.word[k], expected[k]);
  }
}

TEST(RandomTest, LogarithmSineAndCosineAreExactToAnUlpOrTwo) {
  std::mt19937_64 generator(2);
  for (int i = 0; i < 100000; ++i) {
    const double u = std::ldexp(static_cast<double>((generator() >> 11) + 1) * 0x1p-53,
                                -static_cast<int>(generator() % 30));
    const double turn = static_cast<double>(generator() >> 11) * 0x1p-53;
    double sin = 0, cos = 0;
    exact::SinCosTurn(turn, &sin, &cos);
    const long double angle = 2 * M_PIl * turn;
    ASSERT_NEAR(exact::Ln(u), static_cast<double>(logl(u)), 5e-16 * std::fabs(std::log(u)));
    ASSERT_NEAR(sin, static_cast<double>(sinl(angle)), 3e-16);
    ASSERT_NEAR(cos, static_cast<double>(cosl(angle)), 3e-16);
  }
  EXPECT_EQ(exact::Ln(1.0), 0.0);
}

// Returns element i, computed alone, as random_math.h defines it.
double UniformAt(DType dtype, const RandomStream& stream, int64_t i, double low, double high) {
  if (dtype == DType::kFloat64) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(i / 2));
    return UniformDouble(Word64(block, static_cast<int>(i % 2)), {low, high});
  }
  const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(i / 4));
  const auto low_float = static_cast<float>(low), high_float = static_cast<float>(high);
  float value = UniformFloat(block.word[i % 4], {low_float, high_float});
  if (dtype == DType::kFloat16) value = std::min(value, HighestBelow<Half>(low_float, high_float));
  if (dtype == DType::kBFloat16) {
    value = std::min(value, HighestBelow<BFloat16>(low_float, high_float));
  }
  return MakeTensor(dtype, {}, {value}).At(0);
}

double NormalAt(DType dtype, const RandomStream& stream, int64_t i, double mean, double stddev) {
  double z[2];
  if (dtype == DType::kFloat64) {
    const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(i / 2));
    NormalPair64(Word64(block, 0), Word64(block, 1), &z[0], &z[1]);
    return ScaleNormal(z[i % 2], mean, stddev);
  }
  const PhiloxBlock block = Philox(stream, static_cast<uint64_t>(i / 4));
  const int64_t pair = i % 4 / 2 * 2;
  NormalPair32(block.word[pair], block.word[pair + 1], &z[0], &z[1]);
  const auto value = static_cast<float>(ScaleNormal(z[i % 2], mean, stddev));
  return MakeTensor(dtype, {}, {value}).At(0);
}

constexpr DType kFloating[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
constexpr int64_t kSeed = -0x123456789abcdef, kStream = int64_t{7} << 40;
constexpr RandomStream kNumbers = {static_cast<uint64_t>(kSeed), static_cast<uint64_t>(kStream)};

// Runs an op by its attributes seed and stream, and by the input `state`. Both must give the same.
HostTensor Draw(OpRunner& runner, const char* op, std::vector<HostTensor> inputs,
                Attributes attrs) {
  std::vector<HostTensor> with_state = inputs;
  with_state.push_back(MakeTensor(DType::kInt64, {2}, {0, 0}));
  std::memcpy(with_state.back().bytes.data(), &kSeed, 8);
  std::memcpy(with_state.back().bytes.data() + 8, &kStream, 8);
  const auto by_state = runner.Run(op, with_state, attrs);
  attrs.Set("seed", kSeed);
  attrs.Set("stream", kStream);
  const auto by_attributes = runner.Run(op, inputs, attrs);
  EXPECT_TRUE(by_attributes.ok() && by_state.ok()) << by_attributes.status() << by_state.status();
  if (!by_attributes.ok() || !by_state.ok()) return {};
  EXPECT_EQ(by_attributes->bytes, by_state->bytes) << op;
  return *by_attributes;
}

TEST(RandomTest, KernelsGiveTheDefinedBits) {
  OpRunner runner;
  for (const DType dtype : kFloating) {
    for (const int64_t n : {1, 7, 130, 50001}) {
      const HostTensor uniform =
          Draw(runner, "uniform", {},
               {{"shape", Ints{n}}, {"low", -2.0}, {"high", 3.5}, {"dtype", dtype}});
      const HostTensor normal =
          Draw(runner, "normal", {},
               {{"shape", Ints{n}}, {"mean", 1.0}, {"stddev", 2.0}, {"dtype", dtype}});
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(uniform.At(i), UniformAt(dtype, kNumbers, i, -2.0, 3.5)) << i;
        ASSERT_EQ(normal.At(i), NormalAt(dtype, kNumbers, i, 1.0, 2.0)) << i;
      }
    }
  }
}

TEST(RandomTest, RandintGivesTheDefinedBits) {
  OpRunner runner;
  for (const DType dtype : {DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64}) {
    for (const int64_t n : {1, 7, 130, 50001}) {
      const HostTensor drawn =
          Draw(runner, "randint", {},
               {{"shape", Ints{n}}, {"low", int64_t{3}}, {"high", int64_t{100}}, {"dtype", dtype}});
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t word =
            Word64(Philox(kNumbers, static_cast<uint64_t>(i / 2)), static_cast<int>(i % 2));
        const auto product = static_cast<unsigned __int128>(word) * 97;
        ASSERT_EQ(drawn.At(i), 3 + static_cast<double>(product >> 64)) << i;
      }
    }
  }
}

TEST(RandomTest, MultiplyHighIsExact) {
  std::mt19937_64 generator(3);
  const uint64_t extremes[] = {0, 1, 0xffffffff, uint64_t{1} << 32, ~uint64_t{0}};
  const auto check = [](uint64_t a, uint64_t b) {
    ASSERT_EQ(MultiplyHigh(a, b),
              static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64));
  };
  for (const uint64_t a : extremes) {
    for (const uint64_t b : extremes) check(a, b);
  }
  for (int i = 0; i < 10000; ++i) check(generator(), generator());
}

// An element is kept if the float32 element of `uniform` with the same number is at least p.
TEST(RandomTest, DropoutKeepsWhatUniformSays) {
  OpRunner runner;
  for (const DType dtype : kFloating) {
    for (const int64_t n : {1, 7, 130, 50001}) {
      const HostTensor x = MakeTensor(dtype, {n}, std::vector<double>(n, 3.0));
      const HostTensor u = Draw(runner, "uniform", {}, {{"shape", Ints{n}}});
      for (const double p : {0.25, 0.7, 1.0}) {
        const HostTensor y = Draw(runner, "dropout", {x}, {{"p", p}});
        const double kept = MakeTensor(dtype, {1}, {3.0 / (1 - p)}).At(0);
        for (int64_t i = 0; i < n; ++i) {
          if (u.At(i) < p) {
            ASSERT_EQ(y.At(i), 0) << i;
          } else {
            ASSERT_NEAR(y.At(i), kept, kept * RoundingTolerance(dtype, 1e-15)) << i;
          }
        }
      }
    }
  }
}

TEST(RandomTest, DropsNaNsAndKeepsThem) {
  OpRunner runner;
  const HostTensor x = MakeTensor(DType::kFloat32, {1000}, std::vector<double>(1000, std::nan("")));
  const HostTensor y = Draw(runner, "dropout", {x}, {{"p", 0.5}});
  int64_t zeros = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    zeros += y.At(i) == 0 ? 1 : 0;
    ASSERT_TRUE(y.At(i) == 0 || std::isnan(y.At(i)));
  }
  EXPECT_NEAR(static_cast<double>(zeros), 500, 80);
}

TEST(RandomTest, BitsDontDependOnTheNumberOfThreads) {
  OpRunner one(1), two(2), five(5);
  const HostTensor x = Spread(DType::kFloat16, {300001}, -1, 1);
  const std::pair<const char*, Attributes> cases[] = {
      {"uniform", {{"shape", Ints{300001}}}},
      {"normal", {{"shape", Ints{300001}}}},
      {"randint", {{"shape", Ints{300001}}, {"high", int64_t{1} << 40}}},
      {"dropout", {}}};
  for (const auto& [op, attrs] : cases) {
    std::vector<HostTensor> inputs;
    if (op == std::string("dropout")) inputs.push_back(x);
    const HostTensor expected = Draw(one, op, inputs, attrs);
    EXPECT_EQ(Draw(two, op, inputs, attrs).bytes, expected.bytes) << op;
    EXPECT_EQ(Draw(five, op, inputs, attrs).bytes, expected.bytes) << op;
  }
}

TEST(RandomTest, MomentsMatchTheParameters) {
  OpRunner runner;
  const int64_t n = 1 << 20;
  const auto uniform = runner.Run("uniform", {}, {{"shape", Ints{n}}, {"seed", int64_t{5}}});
  const auto normal = runner.Run("normal", {}, {{"shape", Ints{n}}, {"seed", int64_t{5}}});
  double sum = 0, normal_sum = 0, normal_squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_GE(uniform->At(i), 0);
    ASSERT_LT(uniform->At(i), 1);
    sum += uniform->At(i);
    normal_sum += normal->At(i);
    normal_squares += normal->At(i) * normal->At(i);
  }
  EXPECT_NEAR(sum / n, 0.5, 2e-3);
  EXPECT_NEAR(normal_sum / n, 0, 5e-3);
  EXPECT_NEAR(normal_squares / n, 1, 1e-2);
}

TEST(RandomTest, NeverGivesTheUpperBound) {
  const float low = 1.0f, high = 1.0f + 0x1p-23f;
  EXPECT_EQ(UniformFloat(0xffffffff, {low, high}), low);
  EXPECT_LT(UniformDouble(~uint64_t{0}, {1.0, 1.5}), 1.5);
  EXPECT_EQ(HighestBelow<Half>(0, 1), 1 - 0x1p-11f);
  EXPECT_EQ(HighestBelow<BFloat16>(0, 1), 1 - 0x1p-8f);
  EXPECT_EQ(HighestBelow<Half>(-1, 0), -0x1p-24f);
  EXPECT_EQ(HighestBelow<Half>(-2, -1), -1 - 0x1p-10f);
  EXPECT_EQ(HighestBelow<Half>(0, 0.1f), 0x1.998p-4f);  // 0.1f isn't a value of float16
  EXPECT_EQ(HighestBelow<Half>(3, 3), 3);
  OpRunner runner;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto drawn = runner.Run(
        "uniform", {}, {{"shape", Ints{100000}}, {"seed", int64_t{6}}, {"dtype", dtype}});
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    double largest = 0;
    for (int64_t i = 0; i < 100000; ++i) largest = std::max(largest, drawn->At(i));
    EXPECT_LT(largest, 1);
    EXPECT_GT(largest, 0.99);
  }
}

}  // namespace
}  // namespace tensord::server
