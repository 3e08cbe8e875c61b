// Results don't depend on the number of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

int64_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// If OpenMP can't start a thread during an op, it ends the process.
TEST(ThreadsTest, TheTeamExistsBeforeItsFirstWork) {
  std::thread([] {
    const cpu::Team team(5);
    team.Bind();
    const int64_t bound = ThreadsOfThisProcess();
    team.For(1 << 20, 1, [](int64_t, int64_t) {});
    EXPECT_EQ(ThreadsOfThisProcess(), bound);
  }).join();
}

TEST(ThreadsTest, SumsAreTheSameBits) {
  OpRunner one(1), two(2), five(5);
  const std::pair<Shape, Ints> kCases[] = {
      {{300001}, {0}},    {{400, 500}, {0}},  {{400, 500}, {1}},      {{100000, 3}, {0}},
      {{3, 100000}, {1}}, {{70000, 70}, {0}}, {{30, 50, 40}, {0, 2}}, {{2, 40000, 3}, {1}}};
  for (const auto& [shape, axes] : kCases) {
    for (const char* op : {"sum", "mean", "norm"}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
        const HostTensor x = Spread(dtype, shape, -1, 1);
        const auto expected = one.Run(op, {x}, {{"axes", axes}});
        ASSERT_TRUE(expected.ok());
        for (OpRunner* runner : {&two, &five}) {
          EXPECT_EQ(runner->Run(op, {x}, {{"axes", axes}})->bytes, expected->bytes)
              << op << " " << x.spec.ToString();
        }
      }
    }
  }
}

TEST(ThreadsTest, VariancesAreTheSameBits) {
  OpRunner one(1), two(2), five(5);
  const std::pair<Shape, Ints> kCases[] = {
      {{300001}, {0}}, {{100000, 3}, {0}}, {{3, 100000}, {1}}, {{30, 50, 40}, {0, 2}}};
  for (const auto& [shape, axes] : kCases) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
      const HostTensor x = Spread(dtype, shape, -1, 1);
      const auto expected = one.RunAll("var_mean", {x}, {{"axes", axes}});
      ASSERT_TRUE(expected.ok());
      for (OpRunner* runner : {&two, &five}) {
        const auto got = runner->RunAll("var_mean", {x}, {{"axes", axes}});
        for (int i = 0; i < 2; ++i) {
          EXPECT_EQ((*got)[i].bytes, (*expected)[i].bytes) << i << " of " << x.spec.ToString();
        }
      }
    }
  }
}

struct NetworkCase {
  const char* op;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;  // of the first inputs; kUnspecified, and of all others: the case's
  Attributes attrs;
};

TEST(ThreadsTest, NetworkOpsAreTheSameBits) {
  OpRunner one(1), two(2), five(5);
  const DType any = DType::kUnspecified, f32 = DType::kFloat32;
  const Attributes training = {{"training", true}};
  const NetworkCase kCases[] = {
      {"softmax_backward", {{300, 200}, {300, 200}}, {}, {{"axis", int64_t{0}}}},
      {"layer_norm", {{999, 100}, {100}, {100}}, {}, {}},
      {"layer_norm_backward",
       {{999, 100}, {999, 100}, {999, 1}, {999, 1}, {100}},
       {any, any, f32, f32},
       {}},
      {"cross_entropy", {{100, 900}, {100}}, {any, DType::kInt64}, {{"label_smoothing", 0.1}}},
      {"sdpa", {{7, 150, 20}, {7, 150, 20}, {7, 150, 20}}, {}, {{"causal", true}}},
      {"sdpa", {{4, 1, 20}, {2, 1200, 20}, {2, 1200, 20}}, {}, {}},
      {"sdpa_backward",
       {{4, 90, 20}, {4, 90, 20}, {2, 90, 20}, {2, 90, 20}, {4, 90, 20}, {4, 90}, {90, 90}},
       {any, any, any, any, any, f32, f32},
       {{"mask_gradient", true}}},
      {"batch_norm", {{50, 7, 300}, {7}, {7}}, {}, training},
      {"batch_norm_backward",
       {{50, 7, 300}, {50, 7, 300}, {7}, {7}},
       {any, any, f32, f32},
       training},
      {"max_pool", {{7, 99, 101}}, {}, {{"kernel", Ints{3, 3}}, {"stride", Ints{2}}}},
      {"avg_pool", {{7, 99, 101}}, {}, {{"kernel", Ints{3, 3}}, {"padding", Ints{1}}}},
      {"avg_pool_backward",
       {{7, 49, 50}},
       {},
       {{"kernel", Ints{3, 3}}, {"stride", Ints{2}}, {"size", Ints{99, 101}}}},
      {"adam_step", {{50001}, {50001}, {50001}, {50001}, {}, {}}, {}, {}},
      {"lstm_cell", {{99, 4 * 301}, {99, 4 * 301}, {99, 301}}, {}, {}},
      {"gru_gates_backward", {{99, 301}, {99, 5 * 301}, {99, 301}}, {}, {}}};
  for (const NetworkCase& c : kCases) {
    for (const DType dtype : {f32, DType::kFloat16}) {
      std::vector<HostTensor> inputs;
      for (size_t i = 0; i < c.shapes.size(); ++i) {
        const bool given = i < c.dtypes.size() && c.dtypes[i] != any;
        inputs.push_back(Spread(given ? c.dtypes[i] : dtype, c.shapes[i], 0.5, 4, int(i) + 1));
      }
      const auto expected = one.RunAll(c.op, inputs, c.attrs);
      ASSERT_TRUE(expected.ok()) << c.op << ": " << expected.status();
      for (OpRunner* runner : {&two, &five}) {
        const auto got = runner->RunAll(c.op, inputs, c.attrs);
        ASSERT_TRUE(got.ok());
        for (size_t i = 0; i < got->size(); ++i) {
          EXPECT_EQ((*got)[i].bytes, (*expected)[i].bytes)
              << c.op << " " << i << " of " << DTypeName(dtype);
        }
      }
    }
  }
}

TEST(ThreadsTest, ScansAreTheSameBits) {
  OpRunner one(1), two(2), five(5);
  for (const Shape& shape : {Shape({300001}), Shape({2, 100000}), Shape({500, 400})}) {
    for (const char* op : {"cumsum", "cumprod"}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
        for (const bool reverse : {false, true}) {
          const HostTensor x = Spread(dtype, shape, 0.99, 1.01);
          const Attributes attrs = {{"axis", int64_t{shape.rank()} - 1}, {"reverse", reverse}};
          const auto expected = one.Run(op, {x}, attrs);
          ASSERT_TRUE(expected.ok());
          for (OpRunner* runner : {&two, &five}) {
            EXPECT_EQ(runner->Run(op, {x}, attrs)->bytes, expected->bytes)
                << op << " " << x.spec.ToString();
          }
        }
      }
    }
  }
}

TEST(ThreadsTest, ElementwiseResultsAreTheSameBits) {
  OpRunner one(1), three(3);
  const HostTensor x = Spread(DType::kFloat32, {50003}, 0.1, 4);
  for (const char* op : {"exp", "log", "tanh", "gelu", "silu"}) {
    EXPECT_EQ(one.Run(op, {x})->bytes, three.Run(op, {x})->bytes) << op;
  }
  EXPECT_EQ(one.Run("softmax", {x})->bytes, three.Run("softmax", {x})->bytes);
}

TEST(TeamTest, RangesCoverEverythingOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const cpu::Team team(threads);
    team.Bind();
    for (const int64_t n : {0, 1, 7, 1000, 100000}) {
      std::vector<std::atomic<int>> seen(n);
      std::atomic<int> ranges{0};
      team.For(
          n, 10,
          [&](int64_t begin, int64_t end) {
            ++ranges;
            for (int64_t i = begin; i < end; ++i) ++seen[i];
          },
          16);
      for (const auto& count : seen) ASSERT_EQ(count, 1);
      EXPECT_LE(ranges, threads);
    }
  }
}

TEST(TeamTest, BeginsNoRangeOnceTheOpMustStop) {
  constexpr int kThreads = 3;
  const cpu::Team team(kThreads);
  team.Bind();
  std::atomic<bool> stop = false;
  const StopToken token = {.flags = {&stop}};
  const StopScope scope(&token);
  std::atomic<int> ranges = 0;
  std::atomic<int64_t> units = 0;
  team.For(1 << 20, 1, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(StopScope::Current(), &token);
    stop = true;
    ++ranges;
    units += end - begin;
  });
  EXPECT_LE(ranges, kThreads);
  EXPECT_LT(units, 1 << 20);
  team.For(100, 1, [&](int64_t, int64_t) { ADD_FAILURE() << "the op must stop"; });
}

}  // namespace
}  // namespace tensord::server
