#include "cuda_fixture.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

TEST_F(CudaTest, PermutesOverAllDTypes) {
  for (DType dtype : kAllDTypes) {
    ExpectSame("permute", {MakeValues(dtype, {67, 129}, 1)}, {{"axes", Ints{1, 0}}});
    ExpectSame("permute", {MakeValues(dtype, {3, 40, 5, 33}, 2)}, {{"axes", Ints{3, 0, 2, 1}}});
  }
}

TEST_F(CudaTest, PermutesEveryWay) {
  const std::pair<Shape, Ints> cases[] = {
      {{4, 3, 2}, {2, 1, 0}},  {{9, 10, 11}, {1, 0, 2}},           {{9, 10, 16}, {0, 2, 1}},
      {{2, 3, 64}, {1, 0, 2}}, {{2, 1, 3, 1, 4}, {4, 3, 2, 1, 0}}, {{0, 4}, {1, 0}},
      {{32, 8, 8}, {2, 0, 1}}, {{5, 6, 7, 8}, {2, 3, 0, 1}}};
  for (const auto& [shape, axes] : cases) {
    ExpectSame("permute", {MakeValues(DType::kFloat32, shape, 3)}, {{"axes", axes}});
    ExpectSame("permute", {MakeValues(DType::kInt8, shape, 3)}, {{"axes", axes}});
  }
}

// Tiles have 32 or 64 rows and columns. A thread moves 1 to 4 elements at a time.
TEST_F(CudaTest, TransposesMatricesOfEverySize) {
  for (DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (int64_t rows : {8, 31, 33, 34, 63, 64, 66, 127, 132}) {
      for (int64_t columns : {8, 32, 33, 35, 36, 65, 68, 128}) {
        ExpectSame("permute", {MakeValues(dtype, {rows, columns}, 6)}, {{"axes", Ints{1, 0}}});
      }
      ExpectSame("permute", {MakeValues(dtype, {3, rows, 2, 40}, 7)}, {{"axes", Ints{2, 0, 3, 1}}});
    }
  }
}

TEST_F(CudaTest, TransposesUnalignedOperands) {
  for (int64_t shift : {1, 2, 3}) {
    ShiftOperands(shift);
    for (DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32}) {
      ExpectSame("permute", {MakeValues(dtype, {64, 128}, 8)}, {{"axes", Ints{1, 0}}});
    }
  }
}

TEST_F(CudaTest, SlicesWithStartsAndSteps) {
  const std::tuple<Shape, Ints, Ints, Ints> cases[] = {
      {{10}, {2}, {9}, {3}},
      {{6, 8}, {1, 0}, {5, 8}, {1, 1}},
      {{6, 8}, {0, 3}, {6, 7}, {2, 1}},
      {{40, 50}, {0, 1}, {40, 50}, {1, 2}},
      {{4, 5, 6}, {1, 2, 3}, {1, 5, 6}, {1, 1, 1}},
      {{4, 16, 16}, {1, 4, 8}, {3, 12, 16}, {1, 1, 1}}};
  for (const auto& [shape, starts, stops, steps] : cases) {
    for (DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
      ExpectSame("slice", {MakeValues(dtype, shape, 4)},
                 {{"starts", starts}, {"stops", stops}, {"steps", steps}});
    }
  }
}

TEST_F(CudaTest, BroadcastsTo) {
  const std::pair<Shape, Ints> cases[] = {
      {{1}, {1000}}, {{3, 1}, {3, 50}}, {{64}, {5, 64}}, {{}, {2, 3}}, {{40, 1}, {9, 40, 33}}};
  for (const auto& [shape, to] : cases) {
    for (DType dtype : {DType::kBool, DType::kBFloat16, DType::kInt32, DType::kInt64}) {
      ExpectSame("broadcast_to", {MakeValues(dtype, shape, 5)}, {{"shape", to}});
    }
  }
}

TEST_F(CudaTest, ConcatenatesAlongEveryAxis) {
  for (DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (int64_t axis = 0; axis < 3; ++axis) {
      std::vector<HostTensor> parts;
      for (int64_t width : {1, 0, 3, 8}) {
        Shape shape{3, 5, 4};
        shape.set_dim(static_cast<int>(axis), width);
        parts.push_back(MakeValues(dtype, shape, static_cast<uint64_t>(width)));
      }
      ExpectSame("concat", parts, {{"axis", axis}});
    }
  }
}

TEST_F(CudaTest, ConcatenatesMoreThanOneLaunchTakes) {
  std::vector<HostTensor> parts;
  for (uint64_t i = 0; i < 150; ++i) {
    parts.push_back(MakeValues(DType::kInt32, {2, static_cast<int64_t>(i % 4)}, i));
  }
  ExpectSame("concat", parts, {{"axis", int64_t{1}}});
}

}  // namespace
}  // namespace tensord::server
