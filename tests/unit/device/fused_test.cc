// Compares the bits of fused elementwise kernels with those of their steps, run one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

// One step: an op over inputs (i >= 0) and earlier results (-1, -2, …).
struct Op {
  const char* name;
  std::vector<int> operands;
  Attributes attrs = {};
};

class FusedTest : public ::testing::Test {
 protected:
  // Runs the steps one by one, which sets expected_. Prepares the fused kernel in kernel_.
  void Build(const std::vector<HostTensor>& inputs, const std::vector<Op>& ops) {
    inputs_ = inputs;
    steps_.clear();
    plans_.clear();
    std::vector<HostTensor> values;
    for (const Op& op : ops) {
      std::vector<HostTensor> operands;
      std::vector<TensorSpec> specs;
      for (const int i : op.operands) {
        operands.push_back(i >= 0 ? inputs[i] : values[-i - 1]);
        specs.push_back(operands.back().spec);
      }
      plans_.push_back(*PlanOp(op.name, specs, op.attrs));
      values.push_back(*runner_.Run(op.name, operands, op.attrs));
    }
    expected_ = values.back();
    for (size_t i = 0; i < ops.size(); ++i) {
      steps_.push_back({plans_[i].schema,
                        &plans_[i].attrs,
                        {ops[i].operands.begin(), ops[i].operands.end()},
                        plans_[i].output().dtype});
    }
    std::vector<TensorSpec> specs;
    for (const HostTensor& input : inputs) specs.push_back(input.spec);
    kernel_ = runner_.device().PrepareFused({specs, steps_, &expected_.spec});
  }

  // Runs the fused kernel out of place, and then in place over each input that allows it. Expects
  // the bits of the single steps each time.
  void Check(const std::vector<HostTensor>& inputs, const std::vector<Op>& ops) {
    Build(inputs, ops);
    ASSERT_TRUE(kernel_.ok()) << kernel_.status();
    std::string what;
    for (const HostTensor& input : inputs) what += " " + input.spec.ToString();
    std::vector<BufferRef> buffers;
    std::vector<const Buffer*> pointers;
    for (const HostTensor& input : inputs) {
      buffers.push_back(*runner_.Upload(input));
      pointers.push_back(buffers.back().get());
    }
    const BufferRef output = *runner_.device().Allocate(expected_.spec.size_bytes());
    ASSERT_TRUE(
        (*kernel_)->Launch(TestLaunch(runner_.device()).context(), pointers, output.get()).ok());
    EXPECT_TRUE(runner_.Download(*output, expected_.spec).bytes == expected_.bytes) << what;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if ((*kernel_)->in_place(static_cast<int>(i)) != 0) continue;
      ASSERT_EQ(buffers[i]->size_bytes(), expected_.spec.size_bytes());
      ++in_place_runs_;
      const std::string original = runner_.Download(*buffers[i], inputs[i].spec).bytes;
      ASSERT_TRUE((*kernel_)
                      ->Launch(TestLaunch(runner_.device()).context(), pointers, buffers[i].get())
                      .ok());
      EXPECT_TRUE(runner_.Download(*buffers[i], expected_.spec).bytes == expected_.bytes)
          << what << " over input " << i;
      ASSERT_TRUE(
          runner_.device().Write(*buffers[i], 0, original.data(), buffers[i]->size_bytes()).ok());
    }
  }

  OpRunner runner_{2};
  std::vector<HostTensor> inputs_;
  std::vector<OpPlan> plans_;
  std::vector<FusedSpec::Step> steps_;
  HostTensor expected_;
  absl::StatusOr<std::unique_ptr<PreparedKernel>> kernel_;
  int in_place_runs_ = 0;
};

const std::vector<Op> kChain = {{"mul", {0, 1}},  {"add", {-1, 2}}, {"relu", {-2}},
                                {"sub", {-3, 1}}, {"tanh", {-4}},   {"maximum", {-5, 2}},
                                {"div", {-6, 0}}, {"gelu", {-7}}};

TEST_F(FusedTest, AChainOverEveryFloatingDTypeAndManySizes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{64}, Shape{1025}, Shape{50, 1003}}) {
      Check({Spread(dtype, shape, 0.5, 2, 1), Spread(dtype, shape, 0.5, 2, 2),
             Spread(dtype, {}, 0.5, 2, 3)},
            kChain);
    }
  }
  EXPECT_GT(in_place_runs_, 10);
}

TEST_F(FusedTest, ResultsLargerThanTheCacheAreTheSame) {
  const Shape shape = {(40 << 20) / 4 + 13};
  Check({Spread(DType::kFloat32, shape, 0.5, 2, 1), Spread(DType::kFloat32, shape, 0.5, 2, 2)},
        {{"add", {0, 1}}, {"mul", {-1, 0}}});
}

TEST_F(FusedTest, InputsThatBroadcast) {
  const HostTensor x = Spread(DType::kFloat32, {60, 70}, 1, 2, 1);
  for (const Shape& other : {Shape{70}, Shape{60, 1}, Shape{1}, Shape{1, 70}}) {
    Check({x, Spread(DType::kFloat32, other, 1, 2, 2)},
          {{"mul", {0, 1}}, {"add", {-1, 1}}, {"sub", {1, -2}}});
  }
  Check({Spread(DType::kFloat32, {60, 1}, 1, 2, 1), Spread(DType::kFloat32, {70}, 1, 2, 2)},
        {{"mul", {0, 1}}, {"exp", {-1}}});
  const HostTensor wide = Spread(DType::kFloat16, {20, 3000}, 1, 2, 1);
  Check({wide, Spread(DType::kFloat16, {3000}, 1, 2, 2), Spread(DType::kFloat16, {20, 1}, 1, 2, 3)},
        {{"mul", {0, 1}}, {"add", {-1, 2}}});
}

TEST_F(FusedTest, StepsOverSingleElements) {
  const HostTensor x = Spread(DType::kFloat32, {3000}, 1, 2, 1);
  const HostTensor s = Spread(DType::kFloat32, {}, 1, 2, 2), t = Spread(DType::kFloat32, {1}, 1, 2);
  Check({x, s, t}, {{"mul", {1, 2}}, {"exp", {-1}}, {"add", {0, -2}}, {"sub", {-3, -1}}});
}

TEST_F(FusedTest, ComparisonsWhereAndCasts) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kInt8}) {
    const HostTensor a = Spread(dtype, {5000}, -9, 9, 1), b = Spread(dtype, {5000}, -9, 9, 2);
    Check({a, b}, {{"lt", {0, 1}}, {"where", {-1, 0, 1}}, {"add", {-2, 0}}});
    Check({a, b}, {{"add", {0, 1}}, {"gt", {-1, 0}}});
    Check({a, b}, {{"add", {0, 1}},
                   {"cast", {-1}, {{"dtype", DType::kFloat64}}},
                   {"mul", {-2, -2}},
                   {"cast", {-3}, {{"dtype", DType::kBFloat16}}}});
  }
  const HostTensor p = Spread(DType::kBool, {999}, 0, 1, 1), q = Spread(DType::kBool, {999}, 0, 1);
  Check({p, q}, {{"mul", {0, 1}}, {"add", {-1, 0}}, {"eq", {-2, 1}}});
}

TEST_F(FusedTest, LongLivedValuesAndRepeatedOperands) {
  const HostTensor x = Spread(DType::kFloat32, {2500}, 1, 2, 1);
  Check({x}, {{"exp", {0}},
              {"log", {0}},
              {"sqrt", {0}},
              {"mul", {-1, -1}},
              {"add", {-2, -3}},
              {"add", {-4, -5}},
              {"mul", {-6, -6}},
              {"sub", {-7, -1}}});
}

TEST_F(FusedTest, RefusesOtherOps) {
  const HostTensor x = Spread(DType::kFloat32, {8, 8}, 1, 2, 1);
  Build({x}, {{"exp", {0}}, {"matmul", {-1, 0}}});
  EXPECT_EQ(kernel_.status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(FusedTest, TooManyLiveValuesAreRefused) {
  const HostTensor x = Spread(DType::kFloat32, {8}, 1, 2, 1);
  std::vector<Op> ops;
  for (int i = 0; i < 30; ++i) ops.push_back({"exp", {0}});
  int last = -1;
  for (int i = 1; i < 30; ++i) {
    ops.push_back({"add", {last, -i - 1}});
    last = -static_cast<int>(ops.size());
  }
  Build({x}, ops);
  EXPECT_EQ(kernel_.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tensord::server
