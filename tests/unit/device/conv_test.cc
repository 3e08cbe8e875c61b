// Convolutions that the CPU backend computes in several parts, with packed weights, or without
// oneDNN.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

// Small integers, so that sums are exact in any order.
HostTensor Integers(DType dtype, const Shape& shape, int period) {
  std::vector<double> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i * 7 % period % 5) - 2;
  }
  return MakeTensor(dtype, shape, values);
}

// Returns the images [first, first + count) of a tensor (N,…).
HostTensor Images(const HostTensor& tensor, int64_t first, int64_t count) {
  HostTensor images = tensor;
  images.spec.shape.set_dim(0, count);
  const int64_t bytes = tensor.spec.size_bytes() / tensor.spec.shape.dim(0);
  images.bytes = tensor.bytes.substr(first * bytes, count * bytes);
  return images;
}

HostTensor RunOne(OpRunner& runner, const char* op, const std::vector<HostTensor>& inputs,
                  const Attributes& attrs = {}) {
  auto result = runner.Run(op, inputs, attrs);
  EXPECT_TRUE(result.ok()) << op << ": " << result.status();
  return result.ok() ? *std::move(result) : HostTensor();
}

// Each image is so large that a part has few of them.
TEST(ConvTest, LargeBatchesHaveTheValuesOfTheirImages) {
  OpRunner runner;
  const Shape x_shape({3, 1, 1500, 1000}), weight_shape({2, 1, 2, 3}), y_shape({3, 2, 1499, 998});
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const HostTensor x = Integers(dtype, x_shape, 101), weight = Integers(dtype, weight_shape, 11);
    const HostTensor g = Integers(dtype, y_shape, 103);
    const HostTensor y = RunOne(runner, "conv", {x, weight});
    const HostTensor gx =
        RunOne(runner, "conv_backward_input", {g, weight}, {{"shape", Ints{3, 1, 1500, 1000}}});
    const HostTensor gw =
        RunOne(runner, "conv_backward_weight", {g, x}, {{"shape", Ints{2, 1, 2, 3}}});
    std::vector<double> sums(12);
    for (int64_t n = 0; n < 3; ++n) {
      const HostTensor image = Images(x, n, 1), of_image = Images(g, n, 1);
      EXPECT_TRUE(RunOne(runner, "conv", {image, weight}).bytes == Images(y, n, 1).bytes) << n;
      EXPECT_TRUE(RunOne(runner, "conv_backward_input", {of_image, weight},
                         {{"shape", Ints{1, 1, 1500, 1000}}})
                      .bytes == Images(gx, n, 1).bytes)
          << n;
      const std::vector<double> part =
          RunOne(runner, "conv_backward_weight",
                 {Images(Integers(DType::kFloat32, y_shape, 103), n, 1),
                  Images(Integers(DType::kFloat32, x_shape, 101), n, 1)},
                 {{"shape", Ints{2, 1, 2, 3}}})
              .ToDoubles();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
    }
    EXPECT_EQ(gw.bytes, MakeTensor(dtype, weight_shape, sums).bytes) << DTypeName(dtype);
  }
}

// oneDNN isn't asked for such sizes.
TEST(ConvTest, SupportsAVeryLargeDilation) {
  OpRunner runner;
  constexpr int64_t kDilation = (1 << 21) + 3;
  const HostTensor x = Integers(DType::kFloat32, {1, 1, 5}, 5);
  const HostTensor weight = MakeTensor(DType::kFloat32, {1, 1, 2}, {1, 10});
  const HostTensor y = RunOne(runner, "conv", {x, weight},
                              {{"dilation", Ints{kDilation}}, {"padding", Ints{kDilation}}});
  ASSERT_EQ(y.spec.shape, Shape({1, 1, kDilation + 5}));
  for (int64_t i = 0; i < y.spec.num_elements(); ++i) {
    const double expected = (i < 5 ? 10 * x.At(i) : 0) + (i >= kDilation ? x.At(i - kDilation) : 0);
    ASSERT_EQ(y.At(i), expected) << i;
  }
}

// oneDNN packs the weight at its third use, if it has a faster layout.
TEST(ConvTest, APreparedKernelGivesTheSameBitsEachTime) {
  const std::unique_ptr<Device> device = *MakeCpuDevice({DeviceKind::kCpu, 0}, 1 << 28, 2);
  device->BindThread();
  const std::vector<HostTensor> inputs = {Spread(DType::kFloat32, {2, 128, 7, 7}, -1, 1, 1),
                                          Spread(DType::kFloat32, {128, 128, 3, 3}, -1, 1, 2)};
  const std::vector<TensorSpec> specs = {inputs[0].spec, inputs[1].spec};
  const OpPlan plan = *PlanOp("conv", specs, {{"padding", Ints{1}}});
  const auto kernel = *device->Prepare({plan.schema, &plan.attrs, specs, plan.outputs});
  std::vector<BufferRef> buffers;
  for (const HostTensor& input : inputs) {
    buffers.push_back(*device->Allocate(input.spec.size_bytes()));
    ASSERT_TRUE(
        device->Write(*buffers.back(), 0, input.bytes.data(), input.spec.size_bytes()).ok());
  }
  const BufferRef y = *device->Allocate(plan.output().size_bytes());
  const Buffer* const operands[] = {buffers[0].get(), buffers[1].get()};
  std::string first;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(kernel->Launch(TestLaunch(*device).context(), operands, y.get()).ok());
    std::string bytes(y->size_bytes(), '\0');
    ASSERT_TRUE(device->Read(*y, 0, bytes.data(), y->size_bytes()).ok());
    if (i == 0) first = bytes;
    EXPECT_TRUE(bytes == first) << i;
  }
  // A new weight is read anew.
  const std::string zeros(inputs[1].spec.size_bytes(), '\0');
  ASSERT_TRUE(device->Write(*buffers[1], 0, zeros.data(), inputs[1].spec.size_bytes()).ok());
  ASSERT_TRUE(kernel->Launch(TestLaunch(*device).context(), operands, y.get()).ok());
  std::string bytes(y->size_bytes(), '\0');
  ASSERT_TRUE(device->Read(*y, 0, bytes.data(), y->size_bytes()).ok());
  EXPECT_EQ(bytes, std::string(y->size_bytes(), '\0'));
}

}  // namespace
}  // namespace tensord::server
