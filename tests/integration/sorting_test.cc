// The functions of client/sorting.h.
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SortingTest : public ClientFixture {};

TEST_F(SortingTest, SortReturnsValuesAndIndices) {
  const Tensor x = FromVector<float>(first_, {2, 3}, {3, 1, 2, -1, NAN, -2});
  const auto [values, indices] = Sort(x);
  const std::vector<float> sorted = *values.Read<float>();
  EXPECT_THAT(absl::MakeSpan(sorted).first(5), ElementsAre(1, 2, 3, -2, -1));
  EXPECT_TRUE(std::isnan(sorted[5]));
  EXPECT_THAT(*indices.Read<int64_t>(), ElementsAre(1, 2, 0, 2, 0, 1));
  EXPECT_THAT(*Sort(x, {.axis = 0, .descending = true}).indices.Read<int64_t>(),
              ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(*ArgSort(x, {.axis = 0}).Read<int64_t>(), ElementsAre(1, 0, 1, 0, 1, 0));
}

TEST_F(SortingTest, TopKTakesTheExtremes) {
  const Tensor x = FromVector<int32_t>(first_, {5}, {4, 9, 1, 9, 3});
  const auto [values, indices] = TopK(x, 3);
  EXPECT_THAT(*values.Read<int32_t>(), ElementsAre(9, 9, 4));
  EXPECT_THAT(*indices.Read<int64_t>(), ElementsAre(1, 3, 0));
  EXPECT_THAT(*TopK(x, 2, {.largest = false}).values.Read<int32_t>(), ElementsAre(1, 3));
}

TEST_F(SortingTest, SearchSortedFindsPlaces) {
  const Tensor sorted = Floats({1, 2, 2, 5});
  const Tensor x = Floats({0, 2, 5, NAN});
  EXPECT_THAT(*SearchSorted(sorted, x).Read<int64_t>(), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(*SearchSorted(sorted, x, {.right = true}).Read<int64_t>(), ElementsAre(0, 3, 4, 4));
}

TEST_F(SortingTest, NonZeroPadsAndCuts) {
  const Tensor x = FromVector<float>(first_, {2, 3}, {0, 7, 0, NAN, -0.0f, 1});
  EXPECT_THAT(*NonZero(x, 4).Read<int64_t>(), ElementsAre(0, 1, 1, 0, 1, 0, 2, 0));
  EXPECT_THAT(*NonZero(x, 2).Read<int64_t>(), ElementsAre(0, 1, 1, 0));
}

TEST_F(SortingTest, BothResultsHaveTheError) {
  const Tensor x = Floats({1, 2});
  const auto [values, indices] = TopK(x, 3);
  EXPECT_THAT(values.status().message(), HasSubstr("k is 3 and must be from 0 to 2"));
  EXPECT_EQ(indices.status(), values.status());
  EXPECT_THAT(Sort(x, {.axis = 1}).indices.status().message(), HasSubstr("axis 1"));
}

// Both results of an op are used, and one of them is the input of another op.
TEST_F(SortingTest, ResultsOfAProgram) {
  const Tensor x = Floats({3, 1, 2});
  const auto program = Program::Record(first_, {x.spec()}, [](absl::Span<const Tensor> inputs) {
    const auto [values, indices] = Sort(inputs[0]);
    return std::vector<Tensor>{values * 2, indices};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<Tensor> outputs = program->Run({x});
  EXPECT_THAT(*outputs[0].Read<float>(), ElementsAre(2, 4, 6));
  EXPECT_THAT(*outputs[1].Read<int64_t>(), ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace tensord::integration
