// A fixture that compares the results of a GPU with those of the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// A tensor on the host.
struct HostTensor {
  TensorSpec spec;
  std::string bytes;

  template <typename T>
  static HostTensor Of(DType dtype, Shape shape, const std::vector<T>& values) {
    HostTensor tensor{{dtype, std::move(shape)}, {}};
    tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return tensor;
  }

  // Returns element i as a double. Values of int64 above 2^53 are rounded.
  double At(int64_t i) const;
};

// Returns values from -9 to 9 in steps of 1/4, truncated for integers, and without their sign for
// uint8. The same salt gives the same values. If `special`, floating dtypes also get NaN,
// infinities and zeros of both signs.
HostTensor MakeValues(DType dtype, const Shape& shape, uint64_t salt, bool special = false);

// If there is no GPU, the tests are skipped with the reason.
class CudaTest : public testing::Test {
 protected:
  static constexpr int64_t kLimitBytes = int64_t{1} << 30;

  // `small_blocks` is for cuda_. With kFree, the emulation detects accesses before an allocation or
  // after a free.
  explicit CudaTest(SmallBlocks small_blocks = SmallBlocks::kFree) : small_blocks_(small_blocks) {}

  void SetUp() override;

  // Returns whether the GPU is emulated.
  static bool IsEmulated();

  // Call this if the test misuses CUDA on purpose. Otherwise the emulation, if it is linked in,
  // makes the test fail.
  static void ExpectMisuse();

  BufferRef Upload(Device& device, const HostTensor& tensor);
  HostTensor Download(const TensorSpec& spec, const BufferRef& buffer);
  void Wait(Device& device);

  // Makes operands on the GPU start `elements` elements after the start of their allocation, which
  // is aligned to 256 bytes.
  void ShiftOperands(int64_t elements) { shift_ = elements; }

  // Runs the op as the engine does, casts included, and reads its result.
  HostTensor Run(Device& device, absl::string_view op, const std::vector<HostTensor>& inputs,
                 const Attributes& attrs);

  // Runs the op on both devices and expects the same result. Integers and bool must be equal.
  // Floating dtypes may differ by `ulps` units in the last place of the value, or of `scale` if
  // that is larger. NaN equals NaN.
  void ExpectSame(absl::string_view op, const std::vector<HostTensor>& inputs,
                  const Attributes& attrs = {}, double ulps = 8, double scale = 1e-3);

  std::unique_ptr<Device> cuda_;
  std::unique_ptr<Device> cpu_;

 private:
  int64_t ShiftBytes(const Device& device, const TensorSpec& spec) const {
    return &device == cuda_.get() ? shift_ * SizeOf(spec.dtype) : 0;
  }
  BufferRef RunOne(Device& device, const OpPlan& plan, const std::vector<TensorSpec>& specs,
                   const std::vector<BufferRef>& inputs);

  const SmallBlocks small_blocks_;
  int64_t shift_ = 0;
};

}  // namespace tensord::server
