// Compares the results of the instruction set levels that this processor has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensord/common/ops/elementwise.h"
#include "tensord/server/device/adam_numbers.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/random_math.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kCount = 1003;  // not a multiple of a vector length

template <typename Function>
bool UsesLibm(int number) {
  return CostOf(static_cast<Function>(number)) == ElementwiseCost::kLibm;
}

std::string Inputs(DType dtype, int seed) {
  HostTensor tensor = Spread(dtype, {kCount}, IsFloating(dtype) ? -20 : 0, 100, seed);
  if (dtype == DType::kFloat32) {
    const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, 3e38f, -3e38f};
    std::memcpy(tensor.bytes.data() + 40, special, sizeof(special));
  }
  return tensor.bytes;
}

// If `tolerance` is 0, expects the same bits. Otherwise expects values within the tolerance, and
// NaN equals NaN. Ops that use libm need a tolerance.
void ExpectSame(const std::string& a, const std::string& b, DType dtype, double tolerance,
                const std::string& what) {
  if (tolerance == 0) {
    EXPECT_TRUE(a == b) << what;
    return;
  }
  const HostTensor x = {{dtype, {kCount}}, a}, y = {{dtype, {kCount}}, b};
  for (int64_t i = 0; i < kCount; ++i) {
    if (std::isnan(x.At(i)) && std::isnan(y.At(i))) continue;
    if (x.At(i) == y.At(i)) continue;
    // gelu of a large negative number is a small difference of larger numbers.
    ASSERT_NEAR(x.At(i), y.At(i), tolerance * (std::fabs(x.At(i)) + 1)) << what << " " << i;
  }
}

class IsaLevelsTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    loops_ = LoopsOf(GetParam());
    if (loops_ == nullptr) GTEST_SKIP() << "this build or processor lacks this level";
  }

  const Loops& baseline_ = *LoopsOf(IsaLevel::kBaseline);
  const Loops* loops_ = nullptr;
};

TEST_P(IsaLevelsTest, UnaryOpsAgree) {
  for (int op = 0; op < kUnaryFunctionCount; ++op) {
    for (const DType dtype : kAllDTypes) {
      const UnaryLoop loop = loops_->unary[op][Index(dtype)];
      const UnaryLoop reference = baseline_.unary[op][Index(dtype)];
      ASSERT_EQ(loop == nullptr, reference == nullptr);
      if (loop == nullptr) continue;
      const std::string x = Inputs(dtype, 1);
      std::string y(x.size(), '\0'), expected(x.size(), '\0');
      loop(x.data(), y.data(), kCount);
      reference(x.data(), expected.data(), kCount);
      const double ulp = dtype == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
      ExpectSame(expected, y, dtype, UsesLibm<UnaryFunction>(op) ? 16 * ulp : 0,
                 testing::PrintToString(op) + " over " + std::string(DTypeName(dtype)));
    }
  }
}

TEST_P(IsaLevelsTest, BinaryOpsAgree) {
  for (int op = 0; op < kBinaryFunctionCount; ++op) {
    for (const DType dtype : kAllDTypes) {
      const BinaryLoop loop = loops_->binary[op][Index(dtype)];
      if (loop == nullptr) continue;
      const std::string a = Inputs(dtype, 1), b = Inputs(dtype, 2);
      for (const auto& [a_step, b_step] : {std::pair(1, 1), std::pair(0, 1), std::pair(1, 0)}) {
        std::string y(a.size(), '\0'), expected(a.size(), '\0');
        loop(a.data(), a_step, b.data(), b_step, y.data(), kCount);
        baseline_.binary[op][Index(dtype)](a.data(), a_step, b.data(), b_step, expected.data(),
                                           kCount);
        const bool libm = UsesLibm<BinaryFunction>(op) && IsFloating(dtype);
        ExpectSame(expected, y, dtype, libm ? 1e-6 : 0, "binary " + testing::PrintToString(op));
      }
    }
  }
}

TEST_P(IsaLevelsTest, CastsAgree) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      const CastLoop loop = loops_->cast[Index(from)][Index(to)];
      if (loop == nullptr) continue;
      const std::string x = Inputs(from, 1);
      std::string y(kCount * SizeOf(to), '\0'), expected = y;
      loop(x.data(), y.data(), kCount);
      baseline_.cast[Index(from)][Index(to)](x.data(), expected.data(), kCount);
      EXPECT_TRUE(y == expected) << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

TEST_P(IsaLevelsTest, EveryHalfConvertsAlike) {
  std::vector<uint16_t> bits(1 << 16), back(1 << 16), expected_back(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(1 << 16), expected(1 << 16);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const int d = Index(dtype), f32 = Index(DType::kFloat32);
    loops_->cast[d][f32](bits.data(), wide.data(), 1 << 16);
    baseline_.cast[d][f32](bits.data(), expected.data(), 1 << 16);
    EXPECT_EQ(std::memcmp(wide.data(), expected.data(), wide.size() * 4), 0);
    loops_->cast[f32][d](wide.data(), back.data(), 1 << 16);
    baseline_.cast[f32][d](expected.data(), expected_back.data(), 1 << 16);
    EXPECT_EQ(back, expected_back);
  }
}

TEST_P(IsaLevelsTest, ReductionsAgree) {
  for (int reduction = 0; reduction < kReductionCount; ++reduction) {
    for (const DType dtype : kAllDTypes) {
      const ReductionLoops& loops = loops_->reduction[reduction][Index(dtype)];
      if (loops.rows == nullptr) continue;
      const HostTensor x = Spread(dtype, {kCount}, 0, 100);
      const ReductionLoops& reference = baseline_.reduction[reduction][Index(dtype)];
      std::string row(loops.acc_bytes, '\0'), expected_row = row;
      std::string columns(17 * loops.acc_bytes, '\0'), expected_columns = columns;
      loops.rows(x.bytes.data(), 1, kCount, 3.0, row.data());
      reference.rows(x.bytes.data(), 1, kCount, 3.0, expected_row.data());
      loops.columns(x.bytes.data(), 59, 17, 17, 3.0, columns.data());
      reference.columns(x.bytes.data(), 59, 17, 17, 3.0, expected_columns.data());
      if (static_cast<Reduction>(reduction) == Reduction::kSumPowers) continue;  // by libm's pow
      EXPECT_EQ(row, expected_row) << reduction << DTypeName(dtype);
      EXPECT_EQ(columns, expected_columns) << reduction << DTypeName(dtype);
    }
  }
}

TEST_P(IsaLevelsTest, ScansAgree) {
  for (int scan = 0; scan < kScanCount; ++scan) {
    for (const DType dtype : kAllDTypes) {
      const ScanLoops& loops = loops_->scan[scan][Index(dtype)];
      if (loops.row == nullptr) continue;
      const ScanLoops& reference = baseline_.scan[scan][Index(dtype)];
      const HostTensor x = Spread(dtype, {kCount}, 0, 3);
      const ScanMode mode = {.exclusive = scan == 0, .reverse = IsFloating(dtype)};
      std::string y(x.bytes.size(), '\0'), expected = y;
      std::vector<double> carry(17), expected_carry(17);
      const auto expect_same = [&] {
        EXPECT_TRUE(y == expected) << scan << DTypeName(dtype);
        EXPECT_EQ(std::memcmp(carry.data(), expected_carry.data(), 17 * sizeof(double)), 0);
      };
      loops.begin(carry.data(), 17);
      reference.begin(expected_carry.data(), 17);
      loops.row(x.bytes.data(), y.data(), kCount, mode, carry.data());
      reference.row(x.bytes.data(), expected.data(), kCount, mode, expected_carry.data());
      expect_same();
      loops.columns(x.bytes.data(), y.data(), 59, 17, 17, mode, carry.data());
      reference.columns(x.bytes.data(), expected.data(), 59, 17, 17, mode, expected_carry.data());
      expect_same();
    }
  }
}

TEST_P(IsaLevelsTest, RandomNumbersAgree) {
  constexpr RandomStream kStream = {99, 7};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    std::string y(kCount * SizeOf(dtype), '\0'), expected = y;
    for (const auto table : {&Loops::uniform, &Loops::normal}) {
      (loops_->*table)[Index(dtype)](kStream, 2, kCount, -1.0, 1.5, y.data());
      (baseline_.*table)[Index(dtype)](kStream, 2, kCount, -1.0, 1.5, expected.data());
      EXPECT_TRUE(y == expected) << DTypeName(dtype);
    }
    const HostTensor x = Spread(dtype, {kCount}, -3, 3);
    std::vector<uint8_t> mask(kCount), expected_mask(kCount);
    const DropoutRule rule = MakeDropoutRule(0.3);
    loops_->dropout[Index(dtype)](kStream, 2, kCount, rule, x.bytes.data(), y.data(), mask.data());
    baseline_.dropout[Index(dtype)](kStream, 2, kCount, rule, x.bytes.data(), expected.data(),
                                    expected_mask.data());
    EXPECT_TRUE(y == expected && mask == expected_mask) << DTypeName(dtype);
  }
  for (const int64_t size : {1, 2, 4, 8}) {
    std::string y(kCount * size, '\0'), expected = y;
    const RandintRange range = {5, uint64_t{3} << 61};
    loops_->randint[SizeIndex(size)](kStream, 2, kCount, range, y.data());
    baseline_.randint[SizeIndex(size)](kStream, 2, kCount, range, expected.data());
    EXPECT_TRUE(y == expected) << size;
  }
}

// Rows of kCount numbers from 0.5 to 4. An output has room for twice as many elements.
class NetworkLoopsTest : public IsaLevelsTest {
 protected:
  // Calls run(loops, dtype, inputs, output) for the loops of both levels, and compares the outputs.
  template <typename Run>
  void Compare(double tolerance, const std::string& what, Run run) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      std::vector<std::string> inputs;
      for (int i = 0; i < 5; ++i) {
        inputs.push_back(Spread(dtype, {kCount}, 0.5, 4, i + 1).bytes);
      }
      std::string outputs[2];
      const NetworkLoops* const levels[] = {NetworkLoopsOf(IsaLevel::kBaseline),
                                            NetworkLoopsOf(GetParam())};
      for (int i = 0; i < 2; ++i) {
        outputs[i].assign(inputs[0].size() * 2, '\0');
        run(*levels[i], Index(dtype), inputs, outputs[i].data());
      }
      for (const size_t half : {size_t{0}, inputs[0].size()}) {
        ExpectSame(outputs[0].substr(half, inputs[0].size()),
                   outputs[1].substr(half, inputs[0].size()), dtype,
                   dtype == DType::kFloat64 ? tolerance * 0x1p-29 : tolerance, what);
      }
    }
  }
};
constexpr double kLibmTolerance = 16 * 0x1p-23;

TEST_P(NetworkLoopsTest, SoftmaxGradientsAgree) {
  for (const bool log : {false, true}) {
    Compare(log ? 64 * kLibmTolerance : 0, "row",
            [log](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
              (log ? loops.log_softmax_backward : loops.softmax_backward)[dtype].row(
                  in[0].data(), in[1].data(), out, kCount);
            });
    Compare(log ? 64 * kLibmTolerance : 0, "columns",
            [log](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
              (log ? loops.log_softmax_backward : loops.softmax_backward)[dtype].columns(
                  in[0].data(), in[1].data(), out, 17, 59, 59);
            });
  }
}

TEST_P(NetworkLoopsTest, NormsAgree) {
  for (const bool center : {false, true}) {
    Compare(0, "layer_norm", [=](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
      char* const statistics = out + in[0].size();
      loops.layer_norm[dtype].row(in[0].data(), in[1].data(), in[2].data(), out, kCount, 1e-5,
                                  center, center ? statistics + 8 : nullptr, statistics);
    });
    Compare(0, "layer_norm_backward",
            [=](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
              loops.layer_norm[dtype].backward_row({in[0].data(), in[1].data(), in[2].data(), out,
                                                    out + in[0].size(), nullptr, kCount, center,
                                                    0.75, 1.25});
            });
  }
  Compare(0, "batch_norm", [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
    loops.batch_norm[dtype].normalize(in[0].data(), kCount, 0.75, 1.5, 0.25, out);
    double sums[2] = {0, 0};
    loops.batch_norm[dtype].add_products(in[0].data(), in[1].data(), kCount, 0.75, sums);
    loops.batch_norm[dtype].gradient(in[0].data(), in[1].data(), kCount, 0.75, sums[0], sums[1],
                                     1.5, out + in[0].size());
  });
}

TEST_P(NetworkLoopsTest, CrossEntropyAgrees) {
  Compare(kLibmTolerance, "row",
          [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
            const CrossEntropyLoops& of = loops.cross_entropy[dtype];
            of.log_sums(in[0].data(), kCount, 1, 1, out, out + 8);
            of.backward(in[0].data(), kCount, 1, 1, in[1].data(), in[2].data(), in[3].data(),
                        in[4].data(), out + in[0].size());
          });
  Compare(kLibmTolerance, "columns",
          [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
            const CrossEntropyLoops& of = loops.cross_entropy[dtype];
            of.log_sums(in[0].data(), 17, 59, 59, out, out + 59 * 8);
            of.backward(in[0].data(), 17, 59, 59, in[1].data(), in[2].data(), in[3].data(),
                        in[4].data(), out + in[0].size());
          });
}

TEST_P(NetworkLoopsTest, AttentionAgrees) {
  // 5 rows in 16 lanes, beside 3 keys; the values have 16 columns.
  Compare(1e-5, "attention", [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
    const AttentionLoops& of = loops.attention[dtype];
    std::string qt(16 * 20 * 8, '\0'), scores(3 * 16 * 8, '\0');
    std::string max(16 * 8, '\0'), sum = max, values(16 * 16 * 8, '\0'), lse = max;
    of.transpose(in[0].data(), 5, 20, 20, 0.001, 16, qt.data());
    const AttentionTile tile = {
        5,  16,      3,       20,      qt.data(),    in[1].data(), 20, in[2].data(),
        20, nullptr, nullptr, nullptr, scores.data()};
    const AttentionSums sums = {max.data(), sum.data(), values.data(), 16, true};
    of.forward(tile, sums);
    of.finish(sums, 5, 16, out, lse.data());
  });
}

TEST_P(NetworkLoopsTest, AttentionOfFewRowsAgrees) {
  // 3 rows beside 21 keys, with a depth of 32.
  Compare(1e-5, "attention", [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
    const AttentionLoops& of = loops.attention[dtype];
    std::string q(16 * 32 * 8, '\0'), scores(3 * 32 * 8, '\0'), values(3 * 16 * 8, '\0');
    std::string max(16 * 8, '\0'), sum = max, lse = max;
    of.transpose(in[0].data(), 32, 3, 3, 0.001, 32, q.data());
    const AttentionTile tile = {
        3,  32,      21,      32,      q.data(),     in[1].data(), 32, in[2].data(),
        16, nullptr, nullptr, nullptr, scores.data()};
    const AttentionSums sums = {max.data(), sum.data(), values.data(), 16, true};
    of.forward_rows(tile, sums);
    of.merge(sums, sums, 3);
    of.finish(sums, 3, 16, out, lse.data());
  });
}

TEST_P(NetworkLoopsTest, AttentionGradientsAgree) {
  // 5 rows in 16 lanes, beside 3 keys. All depths are 16.
  Compare(1e-5, "attention", [](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
    const AttentionLoops& of = loops.attention[dtype];
    const size_t tile_bytes = 16 * 16 * 8;
    std::string qt(tile_bytes, '\0'), gt = qt, scores = qt, gradients = qt, delta = qt;
    of.transpose(in[0].data(), 5, 16, 16, 0.001, 16, qt.data());
    of.transpose(in[3].data(), 5, 16, 16, 1, 16, gt.data());
    of.dots(in[3].data(), in[4].data(), 5, 16, delta.data());
    const AttentionTile tile = {
        5,  16,      3,       16,      qt.data(),    in[1].data(), 16, in[2].data(),
        16, nullptr, nullptr, nullptr, scores.data()};
    of.backward(tile, {.scale = 0.001,
                       .value_depth = 16,
                       .gt = gt.data(),
                       .lse = in[4].data(),
                       .delta = delta.data(),
                       .scores = gradients.data(),
                       .k_cols = 16,
                       .v_cols = 16,
                       .q = in[0].data(),
                       .q_stride = 16,
                       .g = in[3].data(),
                       .g_stride = 16,
                       .gq = out,
                       .gk = out + 5 * 16 * 8,
                       .gv = out + 8 * 16 * 8});
  });
}

TEST_P(NetworkLoopsTest, PoolingAgrees) {
  for (const int64_t stride : {1, 2, 3}) {
    const int64_t out = (59 + 2 - 3) / stride + 1;
    const PoolGeometry geometry = {{1, 17, 59},    {1, 17, out}, {1, 3, 3},
                                   {1, 1, stride}, {0, 1, 1},    {1, 1, 1}};
    Compare(0, "pooling", [&](const NetworkLoops& loops, int dtype, const auto& in, char* to) {
      std::vector<int64_t> indices(17 * out);
      loops.pool[dtype].max(geometry, in[0].data(), 0, 17, to, indices.data());
      loops.pool[dtype].max_backward(geometry, in[1].data(), indices.data(), to + in[0].size());
    });
    Compare(0, "averages", [&](const NetworkLoops& loops, int dtype, const auto& in, char* to) {
      loops.pool[dtype].avg(geometry, false, 0, in[0].data(), 0, 17, to);
      loops.pool[dtype].avg_backward(geometry, true, 0, in[1].data(), to + in[0].size());
    });
  }
}

TEST_P(NetworkLoopsTest, StepsOfAdamAgree) {
  const AdamNumbers numbers = {0.9, 0.999, 1e-8, -1, 0.99, 0.01, 0.1, 1.5};
  for (const bool amsgrad : {false, true}) {
    Compare(0, "adam", [&](const NetworkLoops& loops, int dtype, const auto& in, char* out) {
      std::string v(in[0].size(), '\0'), vmax = v;
      loops.adam[dtype](
          numbers,
          {in[0].data(), in[1].data(), in[2].data(), in[3].data(), amsgrad ? in[4].data() : nullptr,
           out, out + in[0].size(), v.data(), vmax.data()},
          kCount);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, NetworkLoopsTest, ::testing::ValuesIn(kAllIsaLevels),
                         [](const auto& param) {
                           return "Level" + std::to_string(static_cast<int>(param.param));
                         });
INSTANTIATE_TEST_SUITE_P(Levels, IsaLevelsTest, ::testing::ValuesIn(kAllIsaLevels),
                         [](const auto& level) {
                           return "Level" + std::to_string(static_cast<int>(level.param));
                         });

}  // namespace
}  // namespace tensord::server::cpu
