// The functions of client/random.h that run several ops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kMany = 100000;

class RandomFunctionsTest : public ClientFixture {
 protected:
  std::vector<double> Read(const Tensor& x) {
    auto values = x.To(DType::kFloat64).Read<double>();
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<double>{};
  }
  static double MeanOf(const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  }
};

TEST_F(RandomFunctionsTest, LikeTakesShapeDTypeAndDevice) {
  const Tensor x = Zeros(second_, {2, 3}, {.dtype = DType::kFloat16});
  EXPECT_EQ(UniformLike(x, 1).spec(), x.spec());
  EXPECT_EQ(NormalLike(x, 1, {.mean = 5}).device(), second_);
  EXPECT_EQ(RandIntLike(x.To(DType::kInt32), 0, 5, 1).dtype(), DType::kInt32);
  EXPECT_EQ(Read(UniformLike(x, 1)), Read(Uniform(second_, {2, 3}, 1, {.dtype = x.dtype()})));
  EXPECT_FALSE(RandIntLike(x, 0, 5, 1).ok());
}

TEST_F(RandomFunctionsTest, RandPermHasEachNumberOnceInAnyOrder) {
  constexpr int64_t kCount = 1000;
  const Tensor permutation = RandPerm(first_, kCount, 3);
  EXPECT_EQ(permutation.spec(), (TensorSpec{DType::kInt64, {kCount}}));
  std::vector<double> x = Read(permutation);
  EXPECT_NE(x, Read(RandPerm(first_, kCount, 4)));
  EXPECT_EQ(x, Read(RandPerm(first_, kCount, 3)));
  std::sort(x.begin(), x.end());
  EXPECT_EQ(x, Read(Arange(first_, kCount)));
  // Each number is equally likely to be first.
  std::vector<double> first;
  for (int64_t seed = 0; seed < 400; ++seed) first.push_back(Read(RandPerm(first_, 3, seed))[0]);
  EXPECT_NEAR(MeanOf(first), 1, 4 * std::sqrt(2.0 / 3 / 400));
  EXPECT_EQ(RandPerm(first_, 0, 3).spec(), (TensorSpec{DType::kInt64, {0}}));
  EXPECT_THAT(std::string(RandPerm(first_, -1, 3).status().message()),
              HasSubstr("rand_perm: n is -1"));
}

TEST_F(RandomFunctionsTest, BernoulliHasTheProbabilities) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    const Tensor p = BroadcastTo(Floats({0, 0.25, 1}).To(dtype), {kMany, 3});
    const Tensor drawn = Bernoulli(p, 1);
    EXPECT_EQ(drawn.spec(), p.spec());
    const auto means = Read(Mean(drawn.To(DType::kFloat32), {.axes = {0}}));
    EXPECT_EQ(means[0], 0);
    EXPECT_NEAR(means[1], 0.25, 4 * std::sqrt(0.25 * 0.75 / kMany));
    EXPECT_EQ(means[2], 1);
  }
  const Tensor flags = Bernoulli(first_, {kMany}, 0.7, 2);
  EXPECT_EQ(flags.dtype(), DType::kBool);
  EXPECT_NEAR(MeanOf(Read(flags)), 0.7, 4 * std::sqrt(0.7 * 0.3 / kMany));
  EXPECT_THAT(std::string(Bernoulli(first_, {3}, 1.5, 2).status().message()), HasSubstr("1.5"));
  EXPECT_THAT(std::string(Bernoulli(Zeros(first_, {2}).To(DType::kInt32), 1).status().message()),
              HasSubstr("floating"));
}

TEST_F(RandomFunctionsTest, ExponentialHasItsMeanAndIsNeverZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    std::vector<double> x = Read(Exponential(first_, {kMany}, 3, {.rate = 4, .dtype = dtype}));
    EXPECT_NEAR(MeanOf(x), 0.25, 4 * 0.25 / std::sqrt(kMany));
    std::sort(x.begin(), x.end());
    EXPECT_GT(x[0], 0);
    EXPECT_NEAR(x[kMany / 2], std::log(2) / 4, 0.004) << "the median";
  }
  EXPECT_EQ(Exponential(first_, {3}, 3, {.dtype = DType::kFloat16}).dtype(), DType::kFloat16);
  for (double rate : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(Exponential(first_, {3}, 3, {.rate = rate}).ok());
  }
}

TEST_F(RandomFunctionsTest, TruncNormalStaysWithinItsBounds) {
  const TruncNormalOptions options = {.mean = 1, .stddev = 2, .low = 0, .high = 4};
  const std::vector<double> x = Read(TruncNormal(first_, {kMany}, 3, options));
  for (double value : x) {
    ASSERT_GE(value, 0);
    ASSERT_LE(value, 4);
  }
  // mean + stddev (phi(a) - phi(b)) / (Phi(b) - Phi(a)), a = -0.5, b = 1.5
  EXPECT_NEAR(MeanOf(x), 1 + 2 * (0.3520653 - 0.1295176) / (0.9331928 - 0.3085375), 0.015);
  EXPECT_FALSE(TruncNormal(first_, {3}, 3, {.low = 1, .high = 1}).ok());
  EXPECT_FALSE(TruncNormal(first_, {3}, 3, {.stddev = 0}).ok());
}

TEST_F(RandomFunctionsTest, TruncNormalWithInfiniteBoundsIsFinite) {
  constexpr int64_t kCount = 885881, kSeed = 33;  // the last draw is the smallest possible one
  const Tensor u = Uniform(first_, {kCount}, kSeed, {.low = -1, .high = 1});
  EXPECT_EQ(*Min(u).Item<float>(), -1);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = TruncNormal(first_, {kCount}, kSeed, {.low = -infinity, .high = infinity});
  EXPECT_NEAR(*Min(x).Item<float>(), -5.4, 0.1);
}

TEST_F(RandomFunctionsTest, MultinomialDrawsByWeight) {
  const Tensor weights = FromVector<float>(first_, {2, 3}, {1, 0, 3, 0, 5, 0});
  const Tensor drawn = Multinomial(weights, 20000, /*replacement=*/true, 5);
  EXPECT_EQ(drawn.spec(), (TensorSpec{DType::kInt64, {2, 20000}}));
  const std::vector<double> x = Read(drawn);
  const std::vector<double> first(x.begin(), x.begin() + 20000);
  EXPECT_THAT(first, Each(AnyOf(0, 2)));
  EXPECT_NEAR(MeanOf(first) / 2, 0.75, 4 * std::sqrt(0.75 * 0.25 / 20000));
  EXPECT_THAT(std::vector<double>(x.begin() + 20000, x.end()), Each(1));
}

TEST_F(RandomFunctionsTest, MultinomialWithoutReplacementDrawsEachCategoryOnce) {
  const Tensor weights = BroadcastTo(Floats({1, 2, 4, 1}), {5000, 4});
  const std::vector<double> x = Read(Multinomial(weights, 3, /*replacement=*/false, 5));
  int first_is_2 = 0;
  for (size_t row = 0; row < 5000; ++row) {
    ASSERT_EQ(std::set<double>(x.begin() + 3 * row, x.begin() + 3 * row + 3).size(), 3u);
    first_is_2 += x[3 * row] == 2 ? 1 : 0;
  }
  EXPECT_NEAR(first_is_2 / 5000.0, 0.5, 4 * std::sqrt(0.25 / 5000));
  const Tensor row = Floats({1, 2, 4}).To(DType::kFloat16);
  EXPECT_EQ(Multinomial(row, 3, false, 5).spec(), (TensorSpec{DType::kInt64, {3}}));
  EXPECT_THAT(std::string(Multinomial(row, 4, false, 5).status().message()),
              HasSubstr("without replacement"));
  EXPECT_FALSE(Multinomial(row, 0, true, 5).ok());
  EXPECT_FALSE(Multinomial(Floats({1}).To(DType::kInt32), 1, true, 5).ok());
}

}  // namespace
}  // namespace tensord::integration
