#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using ::testing::ElementsAre;
using Ints = std::vector<int64_t>;

// Returns a tensor of 0, 1, 2, …, modulo 113, so that every dtype but bool holds the values.
HostTensor Counting(DType dtype, const Shape& shape) {
  std::vector<double> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 113);
  return MakeTensor(dtype, shape, values);
}

Ints IndexOf(const Shape& shape, int64_t i) {
  Ints index(shape.rank());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = i % shape.dim(axis);
    i /= shape.dim(axis);
  }
  return index;
}

int64_t OffsetOf(const Shape& shape, const Ints& index) {
  int64_t offset = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) offset = offset * shape.dim(axis) + index[axis];
  return offset;
}

TEST(LayoutTest, PermutesAnyAxesOfAnySize) {
  OpRunner runner;
  const std::pair<Shape, Ints> kCases[] = {{{2, 3}, {1, 0}},
                                           {{100, 70}, {1, 0}},
                                           {{65, 129}, {1, 0}},
                                           {{3, 4, 5}, {2, 0, 1}},
                                           {{3, 4, 5}, {2, 1, 0}},
                                           {{30, 40, 50}, {1, 0, 2}},
                                           {{2, 3, 4, 5, 6}, {4, 2, 0, 3, 1}},
                                           {{200, 100, 3}, {2, 0, 1}},
                                           {{3, 200, 100}, {1, 2, 0}},
                                           {{50, 40, 2}, {1, 0, 2}},
                                           {{1, 5, 1, 7}, {3, 2, 1, 0}},
                                           {{300, 200}, {1, 0}},
                                           {{0, 3}, {1, 0}}};
  for (const auto& [shape, axes] : kCases) {
    for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      const HostTensor x = Counting(dtype, shape);
      const auto y = runner.Run("permute", {x}, {{"axes", axes}});
      ASSERT_TRUE(y.ok()) << y.status();
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        const Ints out = IndexOf(y->spec.shape, i);
        Ints in(axes.size());
        for (size_t d = 0; d < axes.size(); ++d) in[axes[d]] = out[d];
        ASSERT_EQ(y->At(i), x.At(OffsetOf(shape, in))) << shape.ToString() << " " << i;
      }
    }
  }
}

TEST(LayoutTest, SlicesAsPythonDoes) {
  OpRunner runner;
  struct Case {
    Shape shape;
    Ints starts, stops, steps;
  };
  const Case kCases[] = {{{10}, {2}, {9}, {3}},
                         {{6, 8}, {1, 0}, {5, 8}, {1, 1}},
                         {{6, 8}, {0, 1}, {6, 7}, {2, 3}},
                         {{100, 300}, {3, 5}, {90, 299}, {1, 1}},
                         {{4, 5, 6}, {1, 0, 2}, {3, 5, 4}, {1, 2, 1}},
                         {{4, 5, 6}, {1, 1, 1}, {2, 2, 2}, {5, 5, 5}},
                         {{4, 5}, {2, 0}, {2, 5}, {1, 1}}};
  for (const Case& test : kCases) {
    for (const DType dtype : {DType::kBool, DType::kBFloat16, DType::kInt32, DType::kFloat64}) {
      const HostTensor x = Counting(dtype, test.shape);
      const auto y = runner.Run(
          "slice", {x}, {{"starts", test.starts}, {"stops", test.stops}, {"steps", test.steps}});
      ASSERT_TRUE(y.ok()) << y.status();
      for (int64_t i = 0; i < y->spec.num_elements(); ++i) {
        Ints index = IndexOf(y->spec.shape, i);
        for (size_t d = 0; d < index.size(); ++d) {
          index[d] = test.starts[d] + index[d] * test.steps[d];
        }
        ASSERT_EQ(y->At(i), x.At(OffsetOf(test.shape, index))) << test.shape.ToString() << i;
      }
    }
  }
}

TEST(LayoutTest, ConcatenatesAlongAnyAxis) {
  OpRunner runner;
  for (const int64_t axis : {0, 1, 2}) {
    std::vector<HostTensor> parts;
    Shape whole({30, 40, 20});
    int64_t total = 0;
    for (const int64_t extent : {3, 0, 17, 1}) {
      Shape shape({30, 40, 20});
      shape.set_dim(static_cast<int>(axis), extent);
      parts.push_back(Spread(DType::kFloat32, shape, 0, 99, static_cast<int>(extent)));
      total += extent;
    }
    whole.set_dim(static_cast<int>(axis), total);
    const auto y = runner.Run("concat", parts, {{"axis", axis}});
    ASSERT_TRUE(y.ok()) << y.status();
    ASSERT_EQ(y->spec.shape, whole);
    for (int64_t i = 0; i < whole.num_elements(); ++i) {
      Ints index = IndexOf(whole, i);
      size_t part = 0;
      while (index[axis] >= parts[part].spec.shape.dim(static_cast<int>(axis))) {
        index[axis] -= parts[part++].spec.shape.dim(static_cast<int>(axis));
      }
      ASSERT_EQ(y->At(i), parts[part].At(OffsetOf(parts[part].spec.shape, index))) << i;
    }
  }
}

TEST(LayoutTest, BroadcastsToAShape) {
  OpRunner runner;
  const HostTensor x = MakeTensor(DType::kInt32, {2, 1}, {5, 6});
  const auto y = runner.Run("broadcast_to", {x}, {{"shape", Ints{2, 2, 3}}});
  EXPECT_THAT(y->ToDoubles(), ElementsAre(5, 5, 5, 6, 6, 6, 5, 5, 5, 6, 6, 6));
  const HostTensor scalar = MakeTensor(DType::kFloat16, {}, {1.5});
  const auto many = runner.Run("broadcast_to", {scalar}, {{"shape", Ints{300, 300}}});
  for (int64_t i = 0; i < 90000; ++i) ASSERT_EQ(many->At(i), 1.5);
}

TEST(LayoutTest, CreatesConstantsRangesAndIdentities) {
  OpRunner runner;
  for (const DType dtype : kAllDTypes) {
    const Attributes attrs = {{"shape", Ints{3, 50000}}, {"dtype", dtype}};
    const auto zeros = runner.Run("zeros", {}, attrs), ones = runner.Run("ones", {}, attrs);
    for (int64_t i = 0; i < 150000; ++i) {
      ASSERT_EQ(zeros->At(i), 0);
      ASSERT_EQ(ones->At(i), 1);
    }
    const auto eye =
        runner.Run("eye", {}, {{"rows", int64_t{2}}, {"cols", int64_t{3}}, {"dtype", dtype}});
    EXPECT_THAT(eye->ToDoubles(), ElementsAre(1, 0, 0, 0, 1, 0));
  }
  const auto full = runner.Run("full", {}, {{"shape", Ints{2}}, {"value", 2.5}});
  EXPECT_THAT(full->ToDoubles(), ElementsAre(2.5, 2.5));
  const auto range = runner.Run(
      "arange", {}, {{"start", int64_t{7}}, {"stop", int64_t{-2}}, {"step", int64_t{-3}}});
  EXPECT_THAT(range->ToDoubles(), ElementsAre(7, 4, 1));
  const auto real = runner.Run("arange", {}, {{"stop", 1.0}, {"step", 0.25}});
  EXPECT_THAT(real->ToDoubles(), ElementsAre(0, 0.25, 0.5, 0.75));
  const auto long_range = runner.Run("arange", {}, {{"stop", int64_t{100000}}});
  for (int64_t i = 0; i < 100000; ++i) ASSERT_EQ(long_range->At(i), i);
}

}  // namespace
}  // namespace tensord::server
