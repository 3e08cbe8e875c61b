// Tests random numbers: the generator, equal bits on all devices, bounds and distributions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tensord/tests/conformance/execution_path.h"
#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

// The answers are from Random123's file kat_vectors: philox4x32 with 10 rounds.
TEST(RandomTest, ReferenceGivesTheKnownAnswers) {
  struct KnownAnswer {
    uint32_t counter[4], key[2], words[4];
  };
  const KnownAnswer answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const KnownAnswer& answer : answers) {
    const Words words = ReferencePhilox(answer.counter, answer.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], answer.words[i]);
  }
}

class RandomOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto execution_path = MakeExecutionPath();
    ASSERT_TRUE(execution_path.ok()) << execution_path.status();
    execution_path_ = *std::move(execution_path);
  }

  HostTensor Draw(const std::string& op, const Attributes& attrs, const std::string& device) {
    absl::StatusOr<std::vector<HostTensor>> drawn = execution_path_->Run(op, attrs, {}, device, 1);
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    return drawn.ok() ? std::move((*drawn)[0]) : HostTensor{};
  }

  std::unique_ptr<ExecutionPath> execution_path_;
};

Attributes Seeded(std::vector<int64_t> shape, int64_t seed, DType dtype = DType::kFloat32,
                  int64_t stream = 0) {
  Attributes attrs = {{"shape", std::move(shape)}, {"seed", seed}, {"dtype", dtype}};
  if (stream != 0) attrs.Set("stream", stream);
  return attrs;
}

TEST_F(RandomOpsTest, FirstBlockOfSeedZeroIsTheKnownAnswer) {
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (const std::string& device : execution_path_->devices()) {
    const Values drawn = Widen(Draw("uniform", Seeded({4}, 0), device));
    ASSERT_EQ(drawn.size(), 4);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(drawn.real[i], (words[i] >> 8) * 0x1p-24) << device;
  }
}

TEST_F(RandomOpsTest, SameSeedGivesEqualBitsOnEveryDevice) {
  const auto expect_equal = [&](const char* op, const Attributes& attrs) {
    const HostTensor first = Draw(op, attrs, "cpu:0");
    for (const std::string& device : execution_path_->devices()) {
      EXPECT_EQ(Draw(op, attrs, device).bytes, first.bytes) << op << " on " << device;
    }
  };
  for (int64_t stream : {int64_t{0}, int64_t{1}, INT64_MIN}) {
    for (DType dtype : kFloatingDTypes) {
      for (const char* op : {"uniform", "normal"}) {
        expect_equal(op, Seeded({10007}, 20260101, dtype, stream));
      }
    }
    for (DType dtype : kIntegerDTypes) {
      Attributes attrs = Seeded({10007}, 20260101, dtype, stream);
      attrs.Set("high", int64_t{101});
      expect_equal("randint", attrs);
    }
  }
}

TEST_F(RandomOpsTest, DropoutGivesEqualBitsOnEveryDevice) {
  for (DType dtype : kFloatingDTypes) {
    const HostTensor x = Draw("normal", Seeded({10007}, 1, dtype), "cpu:0");
    const Attributes attrs = {{"p", 0.3}, {"seed", int64_t{5}}, {"mask", true}};
    const auto first = execution_path_->Run("dropout", attrs, {x}, "cpu:0", 2);
    ASSERT_TRUE(first.ok()) << first.status();
    for (const std::string& device : execution_path_->devices()) {
      const auto again = execution_path_->Run("dropout", attrs, {x}, device, 2);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ((*again)[0].bytes, (*first)[0].bytes) << device;
      EXPECT_EQ((*again)[1].bytes, (*first)[1].bytes) << device;
    }
  }
}

// The FNV-1a hash of a normal tensor of a million elements must be the same for all execution
// paths, devices, compilers and machines.
TEST_F(RandomOpsTest, BitsDontDependOnTheBuild) {
  const HostTensor drawn = Draw("normal", Seeded({1 << 20}, 7, DType::kFloat64), "cpu:0");
  uint64_t hash = 0xcbf29ce484222325ull;
  for (uint8_t byte : drawn.bytes) hash = (hash ^ byte) * 0x100000001b3ull;
  EXPECT_EQ(hash, 628667270012292409ull);
}

TEST_F(RandomOpsTest, NumbersDependOnTheSeedAndNotOnTheSize) {
  const HostTensor one = Draw("uniform", Seeded({64}, 1), "cpu:0");
  EXPECT_NE(Draw("uniform", Seeded({64}, 2), "cpu:0").bytes, one.bytes);
  EXPECT_NE(Draw("uniform", Seeded({64}, 1 + (int64_t{1} << 32)), "cpu:0").bytes, one.bytes);
  // An element depends on its position, and not on the number of elements.
  HostTensor longer = Draw("uniform", Seeded({8, 1001}, 1), "cpu:0");
  longer.bytes.resize(one.bytes.size());
  EXPECT_EQ(longer.bytes, one.bytes);
}

TEST_F(RandomOpsTest, UniformStaysInItsBounds) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Attributes attrs = Seeded({200000}, 11, dtype);
    attrs.Set("low", 3.0);
    attrs.Set("high", 3.0000002384185791);  // the next float32 after 3
    for (double x : Widen(Draw("uniform", attrs, "cpu:0")).real) {
      ASSERT_GE(x, 3.0);
      ASSERT_LT(x, 3.0000002384185791);
    }
  }
}

struct Moments {
  double mean, variance, skew, kurtosis;
};
Moments MomentsOf(const std::vector<double>& x) {
  double sum[4] = {};
  for (double v : x) sum[0] += v;
  const double mean = sum[0] / static_cast<double>(x.size());
  for (double v : x) {
    for (int power = 2; power <= 4; ++power) sum[power - 1] += std::pow(v - mean, power);
  }
  const double n = static_cast<double>(x.size());
  const double variance = sum[1] / n;
  return {mean, variance, sum[2] / n / std::pow(variance, 1.5), sum[3] / n / variance / variance};
}

// Allows four standard errors of each moment of 2^20 numbers. The seed is fixed, so the result is
// the same in each run.
TEST_F(RandomOpsTest, MomentsMatchTheDistributions) {
  const double n = 1 << 20;
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Moments uniform =
        MomentsOf(Widen(Draw("uniform", Seeded({1 << 20}, 5, dtype), "cpu:0")).real);
    EXPECT_NEAR(uniform.mean, 0.5, 4 * std::sqrt(1.0 / 12 / n));
    EXPECT_NEAR(uniform.variance, 1.0 / 12, 4 * std::sqrt(1.0 / 180 / n));
    const Moments normal =
        MomentsOf(Widen(Draw("normal", Seeded({1 << 20}, 5, dtype), "cpu:0")).real);
    EXPECT_NEAR(normal.mean, 0, 4 / std::sqrt(n));
    EXPECT_NEAR(normal.variance, 1, 4 * std::sqrt(2 / n));
    EXPECT_NEAR(normal.skew, 0, 4 * std::sqrt(6 / n));
    EXPECT_NEAR(normal.kurtosis, 3, 4 * std::sqrt(24 / n));
  }
}

// Elements 2k and 2k+1 come from the same two random words (Box and Muller), but must not be
// correlated.
TEST_F(RandomOpsTest, NeighboursAreUncorrelated) {
  const std::vector<double> x = Widen(Draw("normal", Seeded({1 << 20}, 9), "cpu:0")).real;
  for (int lag : {1, 2, 3, 4}) {
    double sum = 0;
    for (size_t i = 0; i + lag < x.size(); ++i) sum += x[i] * x[i + lag];
    EXPECT_NEAR(sum / static_cast<double>(x.size()), 0, 4.0 / 1024) << "lag " << lag;
  }
}

// Returns the maximum distance between the distribution of the sample and `cumulative` (Kolmogorov
// and Smirnov), times the square root of the sample's size. It exceeds 1.95 with a probability of
// 0.001.
double KolmogorovSmirnov(std::vector<double> sample, double (*cumulative)(double)) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double distance = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double expected = cumulative(sample[i]);
    distance = std::max({distance, expected - static_cast<double>(i) / n,
                         static_cast<double>(i + 1) / n - expected});
  }
  return distance * std::sqrt(n);
}
constexpr double kMaxKolmogorovSmirnov = 1.95;

TEST_F(RandomOpsTest, UniformAndNormalPassTheKolmogorovSmirnovTest) {
  for (int64_t stream : {0, 1, 2}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Attributes attrs = Seeded({1 << 18}, 17, dtype, stream);
      EXPECT_LT(KolmogorovSmirnov(Widen(Draw("uniform", attrs, "cpu:0")).real,
                                  [](double x) { return x; }),
                kMaxKolmogorovSmirnov);
      EXPECT_LT(KolmogorovSmirnov(Widen(Draw("normal", attrs, "cpu:0")).real,
                                  [](double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }),
                kMaxKolmogorovSmirnov);
    }
  }
}

// Pearson's chi-squared test with 9 degrees of freedom: the statistic exceeds 27.9 with a
// probability of 0.001.
TEST_F(RandomOpsTest, RandintIsUniform) {
  for (int64_t stream : {0, 1}) {
    Attributes attrs = Seeded({1 << 18}, 4, DType::kInt64, stream);
    attrs.Set("low", int64_t{-5});
    attrs.Set("high", int64_t{5});
    double counts[10] = {};
    for (int64_t x : Widen(Draw("randint", attrs, "cpu:0")).whole) {
      ASSERT_GE(x, -5);
      ASSERT_LT(x, 5);
      ++counts[x + 5];
    }
    const double expected = (1 << 18) / 10.0;
    double statistic = 0;
    for (double count : counts) statistic += (count - expected) * (count - expected) / expected;
    EXPECT_LT(statistic, 27.9);
  }
}

// Makes 2^16 draws of 64 bits from each of 16 streams. If streams overlapped, a draw would occur
// twice. Two of 2^20 random draws are equal with a probability of 3e-8.
TEST_F(RandomOpsTest, StreamsDontOverlap) {
  std::vector<int64_t> all;
  for (int64_t stream = -8; stream < 8; ++stream) {
    Attributes attrs = Seeded({1 << 16}, 4, DType::kInt64, stream << 32 | (stream & 3));
    attrs.Set("low", INT64_MIN);
    attrs.Set("high", INT64_MAX);
    const std::vector<int64_t> drawn = Widen(Draw("randint", attrs, "cpu:0")).whole;
    all.insert(all.end(), drawn.begin(), drawn.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST_F(RandomOpsTest, StreamsAreUncorrelated) {
  const std::vector<double> x = Widen(Draw("normal", Seeded({1 << 18}, 9), "cpu:0")).real;
  for (int64_t stream : {int64_t{1}, int64_t{2}, int64_t{1} << 32}) {
    const std::vector<double> y =
        Widen(Draw("normal", Seeded({1 << 18}, 9, DType::kFloat32, stream), "cpu:0")).real;
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    EXPECT_NEAR(sum / static_cast<double>(x.size()), 0, 4.0 / 512) << "stream " << stream;
  }
}

}  // namespace
}  // namespace tensord::conformance
