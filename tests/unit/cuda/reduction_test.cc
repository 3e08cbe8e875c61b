#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda_fixture.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

struct ReduceCase {
  Shape shape;
  Ints axes;
};

// Reductions over rows, columns, inner and outer axes, all elements of a tensor that is long enough
// to be split, a scalar, and an empty tensor.
const ReduceCase kReduceCases[] = {{{33, 1000}, {1}},         {{1000, 33}, {0}}, {{70000}, {}},
                                   {{6, 7, 8}, {0, 2}},       {{6, 7, 8}, {1}},  {{5, 200, 3}, {1}},
                                   {{3, 300, 100}, {0, 1}},   {{4, 1, 5}, {1}},  {{}, {}},
                                   {{2, 3, 4, 5, 6}, {1, 3}}, {{0, 4}, {1}}};

TEST_F(CudaTest, SumsAndMeans) {
  for (const ReduceCase& c : kReduceCases) {
    for (DType dtype : kRealDTypes) {
      ExpectSame("sum", {MakeValues(dtype, c.shape, 1)}, {{"axes", c.axes}}, 16, 64);
      if (!IsFloating(dtype)) continue;
      ExpectSame("mean", {MakeValues(dtype, c.shape, 2)}, {{"axes", c.axes}, {"keepdims", true}},
                 16, 1);
    }
  }
}

TEST_F(CudaTest, ReducesEmptyTensors) {
  const HostTensor empty = MakeValues(DType::kFloat32, {3, 0}, 3);
  ExpectSame("sum", {empty}, {{"axes", Ints{1}}});
  ExpectSame("mean", {empty}, {{"axes", Ints{1}}});
  ExpectSame("norm", {empty}, {{"axes", Ints{1}}});
}

TEST_F(CudaTest, ExtremaAndTheirIndices) {
  for (const char* op : {"max", "min", "argmax", "argmin"}) {
    for (const ReduceCase& c : kReduceCases) {
      for (DType dtype : kRealDTypes) {
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
    for (DType dtype : kRealDTypes) {
      if (!IsFloating(dtype)) continue;
      ExpectSame("norm", {MakeValues(dtype, {20, 50}, 6)}, {{"axes", Ints{1}}, {"ord", ord}}, 32);
    }
  }
  ExpectSame("norm", {MakeValues(DType::kFloat32, {1000, 100}, 7)}, {}, 32);
}

// Extents around multiples of a pack, and of the number of elements that a block's lanes load
// together.
constexpr int64_t kExtents[] = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,   17,
                                31, 33, 63, 64, 65, 127, 128, 129, 257, 1023, 1025};

// One dtype of each size and accumulator.
constexpr DType kReducedDTypes[] = {DType::kBool,    DType::kInt8,    DType::kInt32,  DType::kInt64,
                                    DType::kFloat16, DType::kFloat32, DType::kFloat64};

TEST_F(CudaTest, ReducesRowsAndColumnsOfEveryLength) {
  for (DType dtype : kReducedDTypes) {
    for (int64_t n : kExtents) {
      const ReduceCase cases[] = {{{5, n}, {1}},    {{n, 5}, {0}},       {{5, n}, {0}},
                                  {{n, 8}, {0}},    {{3, 2, n}, {0, 2}}, {{2, 16, 3}, {0, 1}},
                                  {{2, n, 4}, {1}}, {{n}, {0}},          {{1, n}, {0}}};
      for (const ReduceCase& c : cases) {
        const HostTensor x = MakeValues(dtype, c.shape, static_cast<uint64_t>(n));
        for (const char* op : {"sum", "max", "argmin"}) {
          ExpectSame(op, {x}, {{"axes", c.axes}}, 16, 64);
        }
      }
    }
  }
}

TEST_F(CudaTest, ReducesUnalignedOperands) {
  for (int64_t shift : {1, 3, 4, 8}) {
    ShiftOperands(shift);
    for (DType dtype : kReducedDTypes) {
      for (const ReduceCase& c :
           {ReduceCase{{3, 1000}, {1}}, {{100, 16}, {0}}, {{2, 3, 64}, {0, 2}}}) {
        ExpectSame("sum", {MakeValues(dtype, c.shape, 9)}, {{"axes", c.axes}}, 16, 64);
      }
      if (!IsFloating(dtype)) continue;
      ExpectSame("softmax", {MakeValues(dtype, {3, 200}, 10)}, {{"axis", int64_t{1}}}, 64);
    }
  }
}

TEST_F(CudaTest, SumsOfIntegersDoNotOverflow) {
  constexpr int kCount = 5000;
  const auto max32 = std::numeric_limits<int32_t>::max();
  const auto min32 = std::numeric_limits<int32_t>::min();
  const HostTensor inputs[] = {
      HostTensor::Of(DType::kInt32, {kCount}, std::vector<int32_t>(kCount, max32)),
      HostTensor::Of(DType::kInt32, {kCount}, std::vector<int32_t>(kCount, min32)),
      HostTensor::Of(DType::kInt8, {kCount}, std::vector<int8_t>(kCount, -128)),
      HostTensor::Of(DType::kUInt8, {kCount}, std::vector<uint8_t>(kCount, 255)),
      // Bytes other than 0 are true.
      HostTensor::Of(DType::kBool, {kCount}, std::vector<uint8_t>(kCount, 255))};
  const double sums[] = {max32 * 5000.0, min32 * 5000.0, -128 * 5000.0, 255 * 5000.0, 5000};
  for (int i = 0; i < 5; ++i) {
    const HostTensor sum = Run(*cuda_, "sum", {inputs[i]}, {{"axes", Ints{0}}});
    EXPECT_EQ(sum.spec.dtype, DType::kInt64);
    EXPECT_EQ(sum.At(0), sums[i]) << inputs[i].spec.ToString();
  }
}

TEST_F(CudaTest, PropagatesANaNAtEveryPosition) {
  constexpr int kLength = 37;
  std::vector<float> rows(kLength * kLength, 1);
  for (int i = 0; i < kLength; ++i) rows[i * kLength + i] = NAN;
  const auto x = HostTensor::Of(DType::kFloat32, {kLength, kLength}, rows);
  for (const char* op : {"sum", "max", "min", "argmax", "argmin"}) {
    for (int64_t axis : {0, 1}) ExpectSame(op, {x}, {{"axes", Ints{axis}}});
  }
}

TEST_F(CudaTest, SoftmaxAlongEveryAxis) {
  const std::pair<Shape, int64_t> cases[] = {{{5, 1000}, 1}, {{1000, 5}, 0}, {{4, 30, 6}, 1},
                                             {{}, 0},        {{3, 0}, 1},    {{7, 1}, 1}};
  for (const char* op : {"softmax", "log_softmax"}) {
    for (const auto& [shape, axis] : cases) {
      for (DType dtype : kRealDTypes) {
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

// Returns the scale of the error bound. log_softmax subtracts numbers above 1, so rounding errors
// are relative to 1.
double SoftmaxScale(absl::string_view op) { return op == "log_softmax" ? 1 : 1e-3; }

TEST_F(CudaTest, SoftmaxOfRowsOfEveryLength) {
  for (const char* op : {"softmax", "log_softmax"}) {
    for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
      for (int64_t n : kExtents) {
        ExpectSame(op, {MakeValues(dtype, {3, n}, 11)}, {{"axis", int64_t{1}}}, 64,
                   SoftmaxScale(op));
        ExpectSame(op, {MakeValues(dtype, {n, 3}, 12)}, {{"axis", int64_t{0}}}, 64,
                   SoftmaxScale(op));
      }
    }
  }
}

// Several blocks share each of these rows.
TEST_F(CudaTest, SoftmaxOfFewLongRows) {
  for (const char* op : {"softmax", "log_softmax"}) {
    for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (int64_t n : {16384, 20001}) {
        ExpectSame(op, {MakeValues(dtype, {2, n}, 13)}, {{"axis", int64_t{1}}}, 64,
                   SoftmaxScale(op));
        // The CPU adds up a column one element after another: sqrt(n) roundings are expected.
        ExpectSame(op, {MakeValues(dtype, {n, 2}, 14)}, {{"axis", int64_t{0}}}, 512,
                   SoftmaxScale(op));
      }
    }
  }
}

TEST_F(CudaTest, SoftmaxOfInfinitiesAndNaNInLongRows) {
  constexpr float kInf = INFINITY;
  constexpr int kLength = 20001;
  std::vector<float> x(5 * kLength, -kInf);  // the first row stays all -inf
  float* row = x.data() + kLength;
  std::fill(row + kLength / 2, row + kLength, 1.0f);  // some splits see only -inf
  row += kLength;
  row[kLength - 1] = 3;
  row += kLength;
  std::fill(row, row + kLength, 2.0f);
  row[10000] = kInf;
  row += kLength;
  row[77] = NAN;
  for (const char* op : {"softmax", "log_softmax"}) {
    const Attributes along_rows{{"axis", int64_t{1}}};
    ExpectSame(op, {HostTensor::Of(DType::kFloat32, {5, kLength}, x)}, along_rows);
  }
}

}  // namespace
}  // namespace tensord::server
