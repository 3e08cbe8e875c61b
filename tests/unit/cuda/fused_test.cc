// Compares the bits of a fused kernel with those of its ops, run one by one on the same GPU.
#include "cuda_fixture.h"

#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

class FusedCudaTest : public CudaTest {
 protected:
  // Checks where(m < y, m, y), in which m = max(gelu(x * s + y), x).
  void Check(DType dtype, const Shape& shape) {
    const HostTensor x = MakeValues(dtype, shape, 1), y = MakeValues(dtype, shape, 2);
    const HostTensor s = MakeValues(dtype, {}, 3);
    const HostTensor product = Run(*cuda_, "mul", {x, s}, {});
    const HostTensor sum = Run(*cuda_, "add", {product, y}, {});
    const HostTensor gelu = Run(*cuda_, "gelu", {sum}, {});
    const HostTensor largest = Run(*cuda_, "maximum", {gelu, x}, {});
    const HostTensor less = Run(*cuda_, "lt", {largest, y}, {});
    const HostTensor expected = Run(*cuda_, "where", {less, largest, y}, {});
    const OpPlan plans[] = {
        *PlanOp("mul", {x.spec, s.spec}, {}), *PlanOp("add", {x.spec, y.spec}, {}),
        *PlanOp("gelu", {x.spec}, {}),        *PlanOp("maximum", {x.spec, x.spec}, {}),
        *PlanOp("lt", {x.spec, y.spec}, {}),  *PlanOp("where", {less.spec, x.spec, y.spec}, {})};
    const std::vector<std::vector<int>> operands = {{0, 1},  {-1, 2}, {-2},
                                                    {-3, 0}, {-4, 2}, {-5, -4, 2}};
    std::vector<FusedSpec::Step> steps;
    for (size_t i = 0; i < operands.size(); ++i) {
      steps.push_back({plans[i].schema,
                       &plans[i].attrs,
                       {operands[i].begin(), operands[i].end()},
                       plans[i].output().dtype});
    }
    const std::vector<TensorSpec> specs = {x.spec, s.spec, y.spec};
    const auto kernel = cuda_->PrepareFused({specs, steps, &expected.spec});
    if (absl::IsUnimplemented(kernel.status())) GTEST_SKIP() << kernel.status();
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const BufferRef buffers[] = {Upload(*cuda_, x), Upload(*cuda_, s), Upload(*cuda_, y)};
    const Buffer* const inputs[] = {buffers[0].get(), buffers[1].get(), buffers[2].get()};
    const BufferRef out = *cuda_->Allocate(expected.spec.size_bytes());
    const absl::Status launched =
        (*kernel)->Launch(TestLaunch(*cuda_).context(), inputs, out.get());
    ASSERT_TRUE(launched.ok()) << launched;
    Wait(*cuda_);
    EXPECT_EQ(Download(expected.spec, out).bytes, expected.bytes) << expected.spec.ToString();
    // The output may overwrite x or y.
    for (const int overwritten : {0, 2}) {
      ASSERT_EQ((*kernel)->in_place(overwritten), 0);
      const BufferRef copy = Upload(*cuda_, overwritten == 0 ? x : y);
      const Buffer* operands[] = {inputs[0], inputs[1], inputs[2]};
      operands[overwritten] = copy.get();
      ASSERT_TRUE((*kernel)->Launch(TestLaunch(*cuda_).context(), operands, copy.get()).ok());
      Wait(*cuda_);
      EXPECT_EQ(Download(expected.spec, copy).bytes, expected.bytes) << overwritten;
    }
  }
};

TEST_F(FusedCudaTest, GivesTheBitsOfItsSteps) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Shape& shape : {Shape{1}, Shape{1003}, Shape{300, 400}}) Check(dtype, shape);
  }
}

}  // namespace
}  // namespace tensord::server
