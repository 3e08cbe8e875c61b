// Compares the bits of prepared kernels, run repeatedly and in place, with those of Launch().
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

class PreparedTest : public ::testing::Test {
 protected:
  // A prepared op and buffers of its inputs.
  struct Case {
    OpPlan plan;
    std::vector<HostTensor> inputs;
    std::unique_ptr<PreparedKernel> kernel;
    std::vector<BufferRef> buffers;

    std::vector<const Buffer*> Inputs() const {
      std::vector<const Buffer*> pointers;
      for (const BufferRef& buffer : buffers) pointers.push_back(buffer.get());
      return pointers;
    }
  };

  Case Prepare(const char* op, std::vector<HostTensor> inputs, const Attributes& attrs) {
    Case c;
    std::vector<TensorSpec> specs;
    for (const HostTensor& input : inputs) specs.push_back(input.spec);
    c.plan = *PlanOp(op, specs, attrs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (specs[i].dtype != c.plan.input_dtypes[i]) {
        inputs[i] = *runner_.Run("cast", {inputs[i]}, {{"dtype", c.plan.input_dtypes[i]}});
        specs[i] = inputs[i].spec;
      }
      c.buffers.push_back(*runner_.Upload(inputs[i]));
    }
    c.inputs = std::move(inputs);
    c.kernel = *runner_.device().Prepare({c.plan.schema, &c.plan.attrs, specs, c.plan.outputs});
    return c;
  }

  HostTensor Run(Case& c) {
    const BufferRef output = *runner_.device().Allocate(c.plan.output().size_bytes());
    if (output->size_bytes() > 0) std::memset(output->data(), 0x5a, output->size_bytes());
    EXPECT_TRUE(
        c.kernel->Launch(TestLaunch(runner_.device()).context(), c.Inputs(), output.get()).ok());
    return runner_.Download(*output, c.plan.output());
  }

  // Runs the kernel twice out of place, and then in place over each input that allows it. Expects
  // the bits of Launch() each time.
  void Check(const char* op, const std::vector<HostTensor>& inputs, const Attributes& attrs = {}) {
    std::string what = op;
    for (const HostTensor& input : inputs) what += " " + input.spec.ToString();
    const HostTensor expected = *runner_.Run(op, inputs, attrs);
    Case c = Prepare(op, inputs, attrs);
    EXPECT_EQ(Run(c).bytes, expected.bytes) << what;
    EXPECT_EQ(Run(c).bytes, expected.bytes) << what << " again";
    for (size_t i = 0; i < c.buffers.size(); ++i) {
      if (c.kernel->in_place(static_cast<int>(i)) != 0) continue;
      if (c.buffers[i]->size_bytes() != expected.spec.size_bytes()) continue;
      ++in_place_runs_;
      ASSERT_TRUE(
          c.kernel->Launch(TestLaunch(runner_.device()).context(), c.Inputs(), c.buffers[i].get())
              .ok());
      EXPECT_EQ(runner_.Download(*c.buffers[i], expected.spec).bytes, expected.bytes)
          << what << " over input " << i;
      c.buffers[i] = *runner_.Upload(c.inputs[i]);
    }
  }

  OpRunner runner_{2};
  int in_place_runs_ = 0;
};

const Shape kShapes[] = {{}, {1}, {64}, {1003}, {2, 3, 5}, {70000}, {0, 4}};

TEST_F(PreparedTest, UnaryOps) {
  for (const char* op : {"neg", "abs", "relu", "exp", "sqrt", "tanh", "sigmoid", "silu", "gelu"}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      for (const Shape& shape : kShapes) Check(op, {Spread(dtype, shape, 0.25, 3)});
    }
  }
  Check("gelu", {Spread(DType::kFloat32, {100}, -3, 3)}, {{"approximate", std::string("tanh")}});
  for (const DType dtype : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt8}) {
    Check("abs", {Spread(dtype, {1003}, 0, 100)});
  }
  EXPECT_GT(in_place_runs_, 100);
}

TEST_F(PreparedTest, BinaryOpsOverShapesThatMatchOrBroadcast) {
  const std::pair<Shape, Shape> kPairs[] = {{{64}, {64}},
                                            {{1003}, {}},
                                            {{}, {1003}},
                                            {{1, 1}, {1, 1}},
                                            {{70000}, {70000}},
                                            {{300, 300}, {300}},
                                            {{300, 300}, {300, 1}},
                                            {{7, 1, 5}, {1, 6, 5}},
                                            {{4, 1}, {1, 9}},
                                            {{0, 4}, {4}},
                                            {{0}, {1}},
                                            {{1}, {1, 1, 1}}};
  for (const char* op : {"add", "div", "pow", "maximum", "lt", "eq"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kInt8}) {
      for (const auto& [a, b] : kPairs) {
        Check(op, {Spread(dtype, a, 1, 4, 1), Spread(dtype, b, 1, 4, 2)});
      }
    }
  }
  Check("mul", {Spread(DType::kBool, {99}, 0, 1, 1), Spread(DType::kBool, {99}, 0, 1, 2)});
  EXPECT_GT(in_place_runs_, 50);
}

TEST_F(PreparedTest, Where) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kBool}) {
    for (const Shape& shape : kShapes) {
      const HostTensor cond = Spread(DType::kBool, shape, 0, 1, 3);
      const HostTensor a = Spread(dtype, shape, 0, 9, 1), b = Spread(dtype, shape, 0, 9, 2);
      Check("where", {cond, a, b});
      Check("where", {cond, a, Spread(dtype, {}, 0, 9, 2)});
      Check("where", {Spread(DType::kBool, {1}, 1, 1), a, b});
      Check("where", {Spread(DType::kBool, {1}, 0, 0), a, b});
    }
  }
}

TEST_F(PreparedTest, Casts) {
  for (const DType from : kRealDTypes) {
    for (const DType to : kRealDTypes) {
      if (from != to) Check("cast", {Spread(from, {1003}, 0, 100)}, {{"dtype", to}});
    }
  }
}

TEST_F(PreparedTest, Products) {
  struct Sizes {
    int64_t m, k, n;
  };
  for (const Sizes s : {Sizes{1, 8, 1},
                        {2, 3, 4},
                        {32, 32, 32},
                        {64, 64, 64},
                        {1, 300, 200},
                        {100, 120, 140},
                        {3, 0, 4},
                        {300, 1, 1}}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32}) {
      const HostTensor a = Spread(dtype, {s.m, s.k}, -2, 2, 1);
      Check("matmul", {a, Spread(dtype, {s.k, s.n}, -2, 2, 2)});
      Check("matmul", {a, Spread(dtype, {s.n, s.k}, -2, 2, 2)}, {{"transpose_b", true}});
      if (!IsFloating(dtype)) continue;
      const HostTensor weight = Spread(dtype, {s.n, s.k}, -1, 1, 3);
      const HostTensor bias = Spread(dtype, {s.n}, -1, 1, 4);
      Check("linear", {a, weight});
      Check("linear", {a, weight, bias}, {{"activation", std::string("gelu")}});
    }
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {  // a thread for each item
    const HostTensor items = Spread(dtype, {20, 50, 60}, -1, 1);
    Check("matmul", {items, Spread(dtype, {20, 60, 70}, -1, 1)});
    Check("matmul", {items, Spread(dtype, {20, 70, 60}, -1, 1)}, {{"transpose_b", true}});
  }
  const HostTensor stack = Spread(DType::kFloat32, {5, 6, 7}, -1, 1);
  Check("matmul", {stack, Spread(DType::kFloat32, {5, 7, 8}, -1, 1)});
  Check("matmul", {stack, Spread(DType::kFloat32, {7, 8}, -1, 1)});
  Check("matmul", {stack, Spread(DType::kFloat32, {7}, -1, 1)});
}

TEST_F(PreparedTest, OtherOps) {
  for (const Shape& shape : {Shape{6, 10}, Shape{300, 400}}) {
    const HostTensor x = Spread(DType::kFloat32, shape, -1, 1);
    for (const char* op : {"sum", "mean", "max", "min", "norm", "argmax", "argmin"}) {
      Check(op, {x}, {{"axes", std::vector<int64_t>{1}}});
    }
    Check("softmax", {x}, {{"axis", int64_t{0}}});
    Check("permute", {x}, {{"axes", std::vector<int64_t>{1, 0}}});
    Check("concat", {x, x}, {{"axis", int64_t{1}}});
    Check("broadcast_to", {x}, {{"shape", std::vector<int64_t>{2, shape.dim(0), shape.dim(1)}}});
  }
  Check("full", {}, {{"shape", std::vector<int64_t>{5}}, {"value", 2.5}});
  Check("uniform", {}, {{"shape", std::vector<int64_t>{50}}, {"seed", int64_t{7}}});
}

TEST_F(PreparedTest, LongKernelsDoNotRunInline) {
  const auto runs_inline = [this](const char* op, const std::vector<HostTensor>& inputs,
                                  const Attributes& attrs = {}) {
    return Prepare(op, inputs, attrs).kernel->runs_inline();
  };
  const HostTensor small = Spread(DType::kFloat32, {32, 32}, 0, 1);
  const HostTensor large = Spread(DType::kFloat32, {512, 512}, 0, 1);
  EXPECT_TRUE(runs_inline("add", {small, small}));
  EXPECT_TRUE(runs_inline("matmul", {small, small}));
  EXPECT_TRUE(runs_inline("sum", {small}));
  EXPECT_FALSE(runs_inline("add", {large, large}));
  EXPECT_FALSE(runs_inline("matmul", {large, large}));
  EXPECT_FALSE(runs_inline("sum", {large}));
  // A sort takes much longer than a sum.
  EXPECT_FALSE(runs_inline("sort", {small}));
  EXPECT_TRUE(runs_inline("sort", {Spread(DType::kFloat32, {8, 16}, 0, 1)}));
  EXPECT_TRUE(runs_inline("topk", {small}, {{"k", int64_t{3}}}));
  EXPECT_FALSE(runs_inline("topk", {small}, {{"k", int64_t{30}}}));
  // The size of the table doesn't matter if few elements are read.
  const HostTensor few = Spread(DType::kInt64, {4}, 0, 100);
  const HostTensor many = Spread(DType::kInt64, {100, 512}, 0, 100);
  EXPECT_TRUE(runs_inline("index", {large, few}));
  EXPECT_TRUE(runs_inline("gather", {large, Spread(DType::kInt64, {2, 512}, 0, 100)}));
  EXPECT_TRUE(runs_inline("slice", {large},
                          {{"starts", std::vector<int64_t>{0, 0}},
                           {"stops", std::vector<int64_t>{100, 4}},
                           {"steps", std::vector<int64_t>{2, 2}}}));
  EXPECT_FALSE(runs_inline("index", {large, Spread(DType::kInt64, {100}, 0, 100)}));
  EXPECT_FALSE(runs_inline("gather", {large, many}));
  EXPECT_FALSE(runs_inline("index_put", {large, few, Spread(DType::kFloat32, {4, 512}, 0, 1)}));
  // The window of each element, and a division that takes long for some operands, count, too.
  const HostTensor image = Spread(DType::kFloat32, {1, 1, 2000, 1}, 0, 1);
  const auto pool = [](int64_t size) {
    return Attributes{{"kernel", std::vector<int64_t>{size, 1}},
                      {"stride", std::vector<int64_t>{1, 1}},
                      {"padding", std::vector<int64_t>{size / 2, 0}}};
  };
  for (const char* op : {"max_pool", "avg_pool"}) {
    EXPECT_TRUE(runs_inline(op, {image}, pool(2))) << op;
    EXPECT_FALSE(runs_inline(op, {image}, pool(1000))) << op;
  }
  Attributes backward = pool(1000);
  backward.Set("size", std::vector<int64_t>{2000, 1});
  EXPECT_FALSE(
      runs_inline("avg_pool_backward", {Spread(DType::kFloat32, {1, 1, 2001, 1}, 0, 1)}, backward));
  const HostTensor numbers = Spread(DType::kFloat64, {2000}, 1, 2);
  EXPECT_TRUE(runs_inline("mul", {numbers, numbers}));
  EXPECT_FALSE(runs_inline("remainder", {numbers, numbers}));
  EXPECT_FALSE(runs_inline("floor_divide", {numbers, numbers}));
}

TEST_F(PreparedTest, InlineKernelsRunOnAnyThread) {
  const HostTensor x = Spread(DType::kFloat32, {64, 64}, -1, 1);
  const Attributes axis = {{"axis", int64_t{1}}};
  Case product = Prepare("matmul", {x, x}, {}), softmax = Prepare("softmax", {x}, axis);
  const HostTensor expected_product = Run(product), expected_softmax = Run(softmax);
  ASSERT_TRUE(product.kernel->runs_inline() && softmax.kernel->runs_inline());
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      EXPECT_EQ(Run(product).bytes, expected_product.bytes);
      EXPECT_EQ(Run(softmax).bytes, expected_softmax.bytes);
    }).join();
  }
}

TEST_F(PreparedTest, MissingKernelIsAnError) {
  const TensorSpec spec = {DType::kBool, {4}};
  const std::vector<TensorSpec> specs = {spec, spec};
  const Attributes attrs;
  const auto kernel =
      runner_.device().Prepare({FindOp("sub"), &attrs, specs, absl::MakeConstSpan(&spec, 1)});
  if (!kernel.ok()) return;
  const BufferRef in = *runner_.device().Allocate(4), out = *runner_.device().Allocate(4);
  const Buffer* const inputs[] = {in.get(), in.get()};
  EXPECT_EQ((*kernel)->Launch(TestLaunch(runner_.device()).context(), inputs, out.get()).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tensord::server
