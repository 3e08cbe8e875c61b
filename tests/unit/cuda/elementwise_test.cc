#include "cuda_fixture.h"

#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

// Odd sizes, so that elements are left over after the packs. Also a scalar and an empty tensor.
const Shape kShapes[] = {{1027}, {}, {0}, {3, 5, 7}};

TEST_F(CudaTest, UnaryOpsOverNumbers) {
  for (const char* op : {"neg", "abs", "relu"}) {
    for (DType dtype : kRealDTypes) {
      if (IsBool(dtype)) continue;
      for (const Shape& shape : kShapes) ExpectSame(op, {MakeValues(dtype, shape, 1, true)});
    }
  }
}

TEST_F(CudaTest, UnaryOpsOverFloats) {
  for (const char* op :
       {"exp", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "gelu"}) {
    for (DType dtype : kRealDTypes) {
      if (!IsFloating(dtype)) continue;
      // gelu and silu subtract numbers near 1, so their error is proportional to x.
      for (const Shape& shape : kShapes) {
        ExpectSame(op, {MakeValues(dtype, shape, 2, true)}, {}, 8, /*scale=*/4);
      }
    }
  }
}

TEST_F(CudaTest, GeluByTanh) {
  ExpectSame("gelu", {MakeValues(DType::kFloat32, {1000}, 3)},
             {{"approximate", std::string("tanh")}}, 8, /*scale=*/4);
}

TEST_F(CudaTest, CastsBetweenAllDTypes) {
  for (DType from : kRealDTypes) {
    for (DType to : kRealDTypes) {
      ExpectSame("cast", {MakeValues(from, {515}, 4, true)}, {{"dtype", to}});
    }
  }
}

TEST_F(CudaTest, CastsSaturate) {
  const auto big =
      HostTensor::Of<double>(DType::kFloat64, {6}, {1e30, -1e30, 300, -300, 0.9, -0.9});
  for (DType to : kRealDTypes) ExpectSame("cast", {big}, {{"dtype", to}});
}

TEST_F(CudaTest, ArithmeticOverAllDTypes) {
  for (const char* op : {"add", "sub", "mul", "div", "pow", "maximum", "minimum"}) {
    const bool numbers_only = std::string(op) == "sub" || std::string(op) == "pow";
    for (DType dtype : kRealDTypes) {
      if (IsBool(dtype) && numbers_only) continue;
      for (const Shape& shape : kShapes) {
        ExpectSame(op, {MakeValues(dtype, shape, 5, true), MakeValues(dtype, shape, 6, true)});
      }
    }
  }
}

TEST_F(CudaTest, ComparisonsOverAllDTypes) {
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (DType dtype : kRealDTypes) {
      ExpectSame(op, {MakeValues(dtype, {1027}, 7, true), MakeValues(dtype, {1027}, 8, true)});
    }
  }
}

TEST_F(CudaTest, BroadcastsEveryWay) {
  const std::pair<Shape, Shape> cases[] = {
      {{4, 5, 6}, {6}}, {{4, 5, 6}, {5, 1}}, {{4, 5, 6}, {}},     {{4, 1, 6}, {1, 5, 1}},
      {{1, 3}, {3}},    {{7, 1}, {1, 9}},    {{2, 0, 3}, {1, 3}}, {{2, 1, 3, 1, 2}, {4, 1, 5, 1}}};
  for (const auto& [a, b] : cases) {
    ExpectSame("sub", {MakeValues(DType::kFloat32, a, 9), MakeValues(DType::kFloat32, b, 10)});
    ExpectSame("sub", {MakeValues(DType::kInt64, b, 9), MakeValues(DType::kInt64, a, 10)});
    ExpectSame("lt", {MakeValues(DType::kFloat16, a, 9), MakeValues(DType::kFloat16, b, 10)});
  }
}

// Runs the op's kernel over each input that the output may overwrite. Expects the bits that the
// kernel writes elsewhere.
class InPlaceCudaTest : public CudaTest {
 protected:
  void Check(const char* op, const std::vector<HostTensor>& inputs, const Attributes& attrs = {}) {
    const HostTensor expected = Run(*cuda_, op, inputs, attrs);
    std::vector<TensorSpec> specs;
    for (const HostTensor& input : inputs) specs.push_back(input.spec);
    const OpPlan plan = *PlanOp(op, specs, attrs);
    const auto kernel = *cuda_->Prepare({plan.schema, &plan.attrs, specs, plan.outputs});
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool same_size = specs[i].num_elements() == expected.spec.num_elements() &&
                             SizeOf(specs[i].dtype) == SizeOf(expected.spec.dtype);
      ASSERT_EQ(kernel->in_place(static_cast<int>(i)), same_size ? 0 : -1) << op << i;
      if (!same_size) continue;
      std::vector<BufferRef> buffers;
      std::vector<const Buffer*> operands;
      for (const HostTensor& input : inputs) buffers.push_back(Upload(*cuda_, input));
      for (const BufferRef& buffer : buffers) operands.push_back(buffer.get());
      const absl::Status launched =
          kernel->Launch(TestLaunch(*cuda_).context(), operands, buffers[i].get());
      ASSERT_TRUE(launched.ok()) << launched;
      Wait(*cuda_);
      EXPECT_EQ(Download(expected.spec, buffers[i]).bytes, expected.bytes) << op << " over " << i;
    }
  }
};

TEST_F(InPlaceCudaTest, TheOutputMayOverwriteAnInput) {
  for (const Shape& shape : {Shape{1027}, Shape{}, Shape{1}, Shape{13, 5, 7}, Shape{4, 0}}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
      const HostTensor a = MakeValues(dtype, shape, 1), b = MakeValues(dtype, shape, 2);
      const HostTensor row = MakeValues(dtype, {shape.rank() == 0 ? 1 : shape.dims().back()}, 3);
      const HostTensor scalar = MakeValues(dtype, {}, 4);
      Check("abs", {a});
      Check("add", {a, b});
      Check("lt", {a, b});
      Check("mul", {a, scalar});
      Check("sub", {row, a});
      Check("where", {MakeValues(DType::kBool, shape, 5), a, b});
      Check("where", {MakeValues(DType::kBool, shape, 5), row, a});
    }
    Check("cast", {MakeValues(DType::kFloat32, shape, 1)}, {{"dtype", DType::kInt32}});
    Check("cast", {MakeValues(DType::kFloat32, shape, 1)}, {{"dtype", DType::kFloat64}});
  }
}

// A pack of 16 bytes has 2 to 16 elements. Some of these rows are one element shorter or longer
// than a pack, some are several packs long.
constexpr int64_t kRowLengths[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100};

// Values whose highest bit is set. Signed and unsigned integers share some kernels.
TEST_F(CudaTest, UnsignedIntegersKeepTheirOrderAndValue) {
  for (DType dtype : {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    const int64_t bytes = SizeOf(dtype);
    HostTensor low{{dtype, {64}}, std::string(64 * bytes, '\1')}, high = low;
    for (int64_t i = 0; i < 64; ++i)
      high.bytes[(i + 1) * bytes - 1] = static_cast<char>(120 + i / 2);
    for (const char* op :
         {"lt", "ge", "maximum", "minimum", "pow", "div", "eq", "sub", "floor_divide", "remainder",
          "shift_left", "shift_right", "bitwise_xor"}) {
      ExpectSame(op, {low, high});
      ExpectSame(op, {high, low});
    }
    for (const char* op : {"sum", "max", "min", "argmax", "argmin"}) ExpectSame(op, {high});
    for (const char* op : {"neg", "abs", "relu", "sign"}) ExpectSame(op, {high});
    for (DType to : kRealDTypes) ExpectSame("cast", {high}, {{"dtype", to}});
  }
}

// One dtype of each size.
constexpr DType kDTypeOfEachSize[] = {DType::kInt8, DType::kFloat16, DType::kInt32,
                                      DType::kFloat64};

TEST_F(CudaTest, BroadcastsScalarsRowsAndColumnsOfEveryLength) {
  for (DType dtype : kDTypeOfEachSize) {
    for (int64_t n : kRowLengths) {
      const HostTensor matrix = MakeValues(dtype, {7, n}, 20);
      for (const Shape& shape : {Shape{}, Shape{n}, Shape{7, 1}, Shape{1, n}}) {
        const HostTensor other = MakeValues(dtype, shape, 21);
        ExpectSame("sub", {matrix, other});
        ExpectSame("sub", {other, matrix});
        ExpectSame("lt", {other, matrix});
      }
      ExpectSame("sub", {MakeValues(dtype, {7, 1}, 22), MakeValues(dtype, {1, n}, 23)});
      ExpectSame("sub", {MakeValues(dtype, {3, 4, n}, 24), MakeValues(dtype, {3, 1, n}, 25)});
      ExpectSame("sub", {MakeValues(dtype, {3, 1, n}, 26), MakeValues(dtype, {1, 4, n}, 27)});
    }
  }
}

TEST_F(CudaTest, AcceptsUnalignedOperands) {
  for (int64_t shift : {1, 3, 4, 8}) {
    ShiftOperands(shift);
    for (DType dtype : kDTypeOfEachSize) {
      ExpectSame("neg", {MakeValues(dtype, {100}, 28)});
      for (const Shape& shape : {Shape{}, Shape{48}, Shape{5, 1}, Shape{5, 48}}) {
        ExpectSame("sub", {MakeValues(dtype, {5, 48}, 29), MakeValues(dtype, shape, 30)});
        ExpectSame("where", {MakeValues(DType::kBool, shape, 31), MakeValues(dtype, {5, 48}, 32),
                             MakeValues(dtype, {48}, 33)});
      }
    }
  }
}

TEST_F(CudaTest, PromotesOperands) {
  ExpectSame("add", {MakeValues(DType::kInt8, {33}, 11), MakeValues(DType::kUInt8, {33}, 12)});
  ExpectSame("mul",
             {MakeValues(DType::kFloat16, {33}, 11), MakeValues(DType::kBFloat16, {33}, 12)});
  ExpectSame("div", {MakeValues(DType::kInt32, {33}, 11), MakeValues(DType::kInt32, {33}, 12)});
}

TEST_F(CudaTest, WhereOverAllDTypes) {
  for (DType dtype : kAllDTypes) {
    ExpectSame("where", {MakeValues(DType::kBool, {5, 1, 7}, 13), MakeValues(dtype, {6, 7}, 14),
                         MakeValues(dtype, {5, 6, 1}, 15)});
  }
}

TEST_F(CudaTest, WhereOfDenseTensorsScalarsRowsAndColumns) {
  for (DType dtype : kDTypeOfEachSize) {
    for (int64_t n : {1, 7, 8, 9, 16, 17, 40}) {
      const Shape shapes[] = {{}, {n}, {3, 1}, {3, n}};
      for (const Shape& condition : shapes) {
        for (const Shape& x : shapes) {
          for (const Shape& y : shapes) {
            ExpectSame("where", {MakeValues(DType::kBool, condition, 34), MakeValues(dtype, x, 35),
                                 MakeValues(dtype, y, 36)});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tensord::server
