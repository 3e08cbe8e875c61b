// The functions of client/indexing.h, by their values.
#include <cstdint>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class IndexingTest : public ClientFixture {
 protected:
  Tensor Ints(const std::vector<int64_t>& values, Shape shape = {}) {
    if (shape.rank() == 0) shape = {static_cast<int64_t>(values.size())};
    return FromVector<int64_t>(first_, shape, values);
  }
  // 0, 1, … in this shape.
  Tensor Count(const Shape& shape) { return Reshape(Arange(first_, shape.num_elements()), shape); }
};

TEST_F(IndexingTest, ReadsAtIndices) {
  const Tensor x = Count({3, 4});
  EXPECT_THAT(*Index(x, {Ints({-1, 0})}).Read<int64_t>(), ElementsAre(8, 9, 10, 11, 0, 1, 2, 3));
  EXPECT_THAT(*Index(x, {Ints({1, 2}), Ints({3, -4})}).Read<int64_t>(), ElementsAre(7, 8));
  EXPECT_THAT(*IndexSelect(x, 1, Ints({2})).Read<int64_t>(), ElementsAre(2, 6, 10));
  EXPECT_THAT(IndexSelect(x, 1, Count({1, 1})).status().message(), HasSubstr("one dimension"));
  EXPECT_THAT(*Gather(x, 1, Ints({3, 0, 1}, {3, 1})).Read<int64_t>(), ElementsAre(3, 4, 9));
  EXPECT_THAT(*TakeAlongDim(x, Ints({2, 0}, {1, 2}), 1).Read<int64_t>(),
              ElementsAre(2, 0, 6, 4, 10, 8));
  const Tensor words = Embedding(Ints({2, 0, 2, 1}, {2, 2}), x);
  EXPECT_EQ(words.shape(), Shape({2, 2, 4}));
  EXPECT_THAT(*IndexSelect(words, 2, Ints({0})).Read<int64_t>(), ElementsAre(8, 0, 8, 4));
}

TEST_F(IndexingTest, WritesAtIndices) {
  const Tensor x = Count({6});
  const Tensor i = Ints({1, -1, 1}), values = Ints({10, 20, 30});
  EXPECT_THAT(*IndexPut(x, {i}, values).Read<int64_t>(), ElementsAre(0, 30, 2, 3, 4, 20));
  EXPECT_THAT(*IndexPut(x, {i}, values, {.accumulate = true}).Read<int64_t>(),
              ElementsAre(0, 41, 2, 3, 4, 25));
  EXPECT_THAT(*Scatter(x, 0, i, values).Read<int64_t>(), ElementsAre(0, 30, 2, 3, 4, 20));
  EXPECT_THAT(*ScatterAdd(x, 0, i, values).Read<int64_t>(), ElementsAre(0, 41, 2, 3, 4, 25));
  EXPECT_THAT(*Scatter(x, 0, i, values, {.reduce = ScatterReduction::kMul}).Read<int64_t>(),
              ElementsAre(0, 300, 2, 3, 4, 100));
  EXPECT_THAT(*OneHot(Ints({2, -3}), 3).Read<int64_t>(), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(OneHot(i, 0).status().message(), HasSubstr("at least one class"));
}

TEST_F(IndexingTest, WritesIntoADonatedTensor) {
  const Tensor x = Count({6});
  const Tensor i = Ints({1}), value = Ints({50});
  const Tensor y = IndexPut(x, {i}, value, {.donate = true});
  EXPECT_THAT(*y.Read<int64_t>(), ElementsAre(0, 50, 2, 3, 4, 5));
  EXPECT_FALSE(x.Read<int64_t>().ok());
}

TEST_F(IndexingTest, ReportsAnIndexOutOfRangeWhenTheResultIsRead) {
  const Tensor y = Index(Count({10}), {Ints({1, 12})});
  const auto values = y.Read<int64_t>();
  EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(values.status().message(),
              HasSubstr("index 12 at [1] of input 1 is out of range for axis 0 of size 10"));
}

TEST_F(IndexingTest, ReadsAndWritesViews) {
  const Tensor x = Count({2, 3});
  EXPECT_THAT(*AsStrided(x, {3, 2}, {1, 3}).Read<int64_t>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(*AsStrided(x, {3}, {-1}, 5).Read<int64_t>(), ElementsAre(5, 4, 3));
  EXPECT_THAT(*AsStridedScatter(x, Ints({7, 8}), {2}, {4}).Read<int64_t>(),
              ElementsAre(7, 1, 2, 3, 8, 5));
  EXPECT_THAT(*SelectScatter(x, Ints({7, 8}), 1, -1).Read<int64_t>(),
              ElementsAre(0, 1, 7, 3, 4, 8));
  EXPECT_THAT(SelectScatter(x, Ints({7, 8}), 1, 3).status().message(), HasSubstr("out of range"));
  EXPECT_THAT(*SliceScatter(x, Ints({6, 7, 8, 9}, {2, 2}), {.axis = 1, .step = 2}).Read<int64_t>(),
              ElementsAre(6, 1, 7, 8, 4, 9));
  EXPECT_THAT(*Pad(x, {1, 0, 0, 1}, 9).Read<int64_t>(),
              ElementsAre(9, 0, 1, 2, 9, 3, 4, 5, 9, 9, 9, 9));
  EXPECT_THAT(Pad(x, {-1, 0}).status().message(), HasSubstr("negative"));
  EXPECT_THAT(*Bitcast(Floats({1, -2}), DType::kInt32).Read<int32_t>(),
              ElementsAre(0x3f800000, static_cast<int32_t>(0xc0000000u)));
}

}  // namespace
}  // namespace tensord::integration
