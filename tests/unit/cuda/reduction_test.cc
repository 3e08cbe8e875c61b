#include <cmath>

#include "cuda_fixture.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

struct ReduceCase {
  Shape shape;
  Ints axes;
};

// Rows, columns, both ends of three axes, everything (long enough to be split), nothing, a scalar.
const ReduceCase kCases[] = {{{33, 1000}, {1}},         {{1000, 33}, {0}}, {{70000}, {}},
                             {{6, 7, 8}, {0, 2}},       {{6, 7, 8}, {1}},  {{5, 200, 3}, {1}},
                             {{3, 300, 100}, {0, 1}},   {{4, 1, 5}, {1}},  {{}, {}},
                             {{2, 3, 4, 5, 6}, {1, 3}}, {{0, 4}, {1}}};

TEST_F(CudaTest, SumsAndMeans) {
  for (const ReduceCase& c : kCases) {
    for (DType dtype : kAllDTypes) {
      ExpectSame("sum", {MakeValues(dtype, c.shape, 1)}, {{"axes", c.axes}}, 16, 64);
      if (!IsFloating(dtype)) continue;
      ExpectSame("mean", {MakeValues(dtype, c.shape, 2)}, {{"axes", c.axes}, {"keepdims", true}},
                 16, 1);
    }
  }
}

TEST_F(CudaTest, ReducesNothingToWhatNothingComesTo) {
  const HostTensor empty = MakeValues(DType::kFloat32, {3, 0}, 3);
  ExpectSame("sum", {empty}, {{"axes", Ints{1}}});
  ExpectSame("mean", {empty}, {{"axes", Ints{1}}});
  ExpectSame("norm", {empty}, {{"axes", Ints{1}}});
}

TEST_F(CudaTest, ExtremaAndWhereTheyAre) {
  for (const char* op : {"max", "min", "argmax", "argmin"}) {
    for (const ReduceCase& c : kCases) {
      for (DType dtype : kAllDTypes) {
        ExpectSame(op, {MakeValues(dtype, c.shape, 4)}, {{"axes", c.axes}});
      }
    }
    for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
      ExpectSame(op, {MakeValues(dtype, {40, 9}, 5, true)}, {{"axes", Ints{1}}});
      ExpectSame(op, {MakeValues(dtype, {9, 40}, 5, true)}, {{"axes", Ints{0}}});
    }
  }
}

TEST_F(CudaTest, NormsOfEveryOrder) {
  for (double ord : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, double{INFINITY}, -double{INFINITY}}) {
    for (DType dtype : kAllDTypes) {
      if (!IsFloating(dtype)) continue;
      ExpectSame("norm", {MakeValues(dtype, {20, 50}, 6)}, {{"axes", Ints{1}}, {"ord", ord}}, 32);
    }
  }
  ExpectSame("norm", {MakeValues(DType::kFloat32, {1000, 100}, 7)}, {}, 32);
}

TEST_F(CudaTest, SoftmaxAlongEveryAxis) {
  const std::pair<Shape, int64_t> cases[] = {{{5, 1000}, 1}, {{1000, 5}, 0}, {{4, 30, 6}, 1},
                                             {{}, 0},        {{3, 0}, 1},    {{7, 1}, 1}};
  for (const char* op : {"softmax", "log_softmax"}) {
    for (const auto& [shape, axis] : cases) {
      for (DType dtype : kAllDTypes) {
        if (!IsFloating(dtype)) continue;
        ExpectSame(op, {MakeValues(dtype, shape, 8)}, {{"axis", axis}},
                   64);  // e^-18 of a rounded -18
      }
    }
  }
}

TEST_F(CudaTest, SoftmaxOfInfinitiesAndNaN) {
  constexpr float kInf = INFINITY;
  const auto rows = HostTensor::Of<float>(
      DType::kFloat32, {4, 3}, {-kInf, 0, 1, -kInf, -kInf, -kInf, kInf, 0, 1, NAN, 0, 1});
  ExpectSame("softmax", {rows}, {{"axis", int64_t{1}}});
  ExpectSame("log_softmax", {rows}, {{"axis", int64_t{1}}});
}

}  // namespace
}  // namespace tensord::server
