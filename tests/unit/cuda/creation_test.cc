#include "cuda_fixture.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

TEST_F(CudaTest, FillsEveryDType) {
  for (DType dtype : kAllDTypes) {
    for (const Ints& shape : {Ints{1027}, Ints{}, Ints{0}}) {
      ExpectSame("zeros", {}, {{"shape", shape}, {"dtype", dtype}});
      ExpectSame("ones", {}, {{"shape", shape}, {"dtype", dtype}});
      ExpectSame("full", {}, {{"shape", shape}, {"dtype", dtype}, {"value", int64_t{77}}});
    }
    ExpectSame("eye", {}, {{"rows", int64_t{9}}, {"cols", int64_t{5}}, {"dtype", dtype}});
    ExpectSame("eye", {}, {{"rows", int64_t{5}}, {"cols", int64_t{9}}, {"dtype", dtype}});
    for (int64_t k : {3, -3, 9, -9}) {
      ExpectSame("eye", {},
                 {{"rows", int64_t{5}}, {"cols", int64_t{9}}, {"k", k}, {"dtype", dtype}});
    }
  }
  ExpectSame("full", {}, {{"shape", Ints{3}}, {"value", -2.5}});
}

TEST_F(CudaTest, ArangesInIntegersAndInFloats) {
  for (DType dtype : kRealDTypes) {
    if (IsBool(dtype)) continue;
    ExpectSame(
        "arange", {},
        {{"start", int64_t{3}}, {"stop", int64_t{100}}, {"step", int64_t{7}}, {"dtype", dtype}}, 0);
  }
  ExpectSame("arange", {}, {{"start", 1.5}, {"stop", -300.0}, {"step", -0.1}}, 0);
}

// The same seed gives the same bits on every device.
TEST_F(CudaTest, GivesTheCpusRandomNumbers) {
  for (DType dtype : kAllDTypes) {
    if (!IsFloating(dtype)) continue;
    for (int64_t size : {0, 1, 2, 3, 5, 10007}) {
      const Attributes uniform = {{"shape", Ints{size}},
                                  {"seed", int64_t{-42}},
                                  {"low", -2.0},
                                  {"high", 3.3},
                                  {"dtype", dtype}};
      EXPECT_EQ(Run(*cuda_, "uniform", {}, uniform).bytes, Run(*cpu_, "uniform", {}, uniform).bytes)
          << DTypeName(dtype) << " " << size;
      const Attributes normal = {{"shape", Ints{size}},
                                 {"seed", int64_t{1} << 40},
                                 {"mean", 1.5},
                                 {"stddev", 0.3},
                                 {"dtype", dtype}};
      EXPECT_EQ(Run(*cuda_, "normal", {}, normal).bytes, Run(*cpu_, "normal", {}, normal).bytes)
          << DTypeName(dtype) << " " << size;
    }
  }
}

}  // namespace
}  // namespace tensord::server
