#include "cuda_fixture.h"

#include <cmath>
#include <future>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensord/common/float16.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/rounding.h"

// tests/cuda_emulation/control.h declares it. It is null if the program uses a real GPU.
namespace tensord::cuda_emulation {
__attribute__((weak)) void ExpectReports();
}

namespace tensord::server {
namespace {

template <typename T>
T Element(const std::string& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void AppendAs(DType dtype, double value, std::string& bytes) {
  switch (dtype) {
    case DType::kBool:
      return Append<uint8_t>(bytes, value > 0);
    case DType::kUInt8:
      return Append(bytes, static_cast<uint8_t>(std::abs(value)));
    case DType::kInt8:
      return Append(bytes, static_cast<int8_t>(value));
    case DType::kInt32:
      return Append(bytes, static_cast<int32_t>(value));
    case DType::kInt64:
      return Append(bytes, static_cast<int64_t>(value));
    case DType::kInt16:
      return Append(bytes, static_cast<int16_t>(value));
    case DType::kUInt16:
      return Append(bytes, static_cast<uint16_t>(std::abs(value)));
    case DType::kUInt32:
      return Append(bytes, static_cast<uint32_t>(std::abs(value)));
    case DType::kUInt64:
      return Append(bytes, static_cast<uint64_t>(std::abs(value)));
    case DType::kComplex64:
      Append(bytes, static_cast<float>(value));
      return Append(bytes, static_cast<float>(-value));
    case DType::kComplex128:
      Append(bytes, value);
      return Append(bytes, -value);
    case DType::kFloat16:
      return Append(bytes, Half(static_cast<float>(value)));
    case DType::kBFloat16:
      return Append(bytes, BFloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return Append(bytes, static_cast<float>(value));
    default:
      return Append(bytes, value);
  }
}

bool Near(double a, double b, double rounding, double scale) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::abs(a - b) <= rounding * std::max({std::abs(a), std::abs(b), scale});
}

}  // namespace

double HostTensor::At(int64_t i) const {
  switch (spec.dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return Element<uint8_t>(bytes, i);
    case DType::kInt8:
      return Element<int8_t>(bytes, i);
    case DType::kInt32:
      return Element<int32_t>(bytes, i);
    case DType::kInt64:
      return static_cast<double>(Element<int64_t>(bytes, i));
    case DType::kInt16:
      return Element<int16_t>(bytes, i);
    case DType::kUInt16:
      return Element<uint16_t>(bytes, i);
    case DType::kUInt32:
      return Element<uint32_t>(bytes, i);
    case DType::kUInt64:
      return static_cast<double>(Element<uint64_t>(bytes, i));
    case DType::kComplex64:
      return Element<float>(bytes, 2 * i);
    case DType::kComplex128:
      return Element<double>(bytes, 2 * i);
    case DType::kFloat16:
      return Element<Half>(bytes, i);
    case DType::kBFloat16:
      return Element<BFloat16>(bytes, i);
    case DType::kFloat32:
      return Element<float>(bytes, i);
    default:
      return Element<double>(bytes, i);
  }
}

HostTensor MakeValues(DType dtype, const Shape& shape, uint64_t salt, bool special) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double specials[] = {std::nan(""), kInf, -kInf, 0.0, -0.0};
  HostTensor tensor{{dtype, shape}, {}};
  uint64_t state = salt * 0x9E3779B97F4A7C15 + 1;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto draw = static_cast<uint32_t>(state >> 33);
    double value = static_cast<double>(static_cast<int>(draw % 73) - 36) / 4;
    if (special && IsFloating(dtype) && draw % 7 == 0) value = specials[(draw / 7) % 5];
    AppendAs(dtype, value, tensor.bytes);
  }
  return tensor;
}

void CudaTest::SetUp() {
  std::string reason;
  if (CudaDeviceCount(&reason) == 0) GTEST_SKIP() << reason;
  auto cuda = MakeCudaDevice({DeviceKind::kCuda, 0}, 0, kLimitBytes, small_blocks_);
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  cuda_ = *std::move(cuda);
  auto cpu = MakeCpuDevice({DeviceKind::kCpu, 0}, kLimitBytes, 2);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  cpu_ = *std::move(cpu);
  cuda_->BindThread();
  cpu_->BindThread();
}

bool CudaTest::IsEmulated() { return cuda_emulation::ExpectReports != nullptr; }

void CudaTest::ExpectMisuse() {
  if (IsEmulated()) cuda_emulation::ExpectReports();
}

BufferRef CudaTest::Upload(Device& device, const HostTensor& tensor) {
  const int64_t shift = ShiftBytes(device, tensor.spec);
  auto buffer = device.Allocate(tensor.spec.size_bytes() + shift);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  const absl::Status written =
      device.Write(**buffer, shift, tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
  EXPECT_TRUE(written.ok()) << written;
  return *buffer;
}

HostTensor CudaTest::Download(const TensorSpec& spec, const BufferRef& buffer) {
  HostTensor tensor{spec, std::string(static_cast<size_t>(spec.size_bytes()), '\xee')};
  const absl::Status read = buffer->device().Read(*buffer, ShiftBytes(buffer->device(), spec),
                                                  tensor.bytes.data(), spec.size_bytes());
  EXPECT_TRUE(read.ok()) << read;
  return tensor;
}

void CudaTest::Wait(Device& device) {
  std::promise<absl::Status> done;
  device.Fence([&](absl::Status status) { done.set_value(std::move(status)); });
  const absl::Status status = done.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

BufferRef CudaTest::RunOne(Device& device, const OpPlan& plan, const std::vector<TensorSpec>& specs,
                           const std::vector<BufferRef>& inputs) {
  const auto operand = [&](const TensorSpec& spec, const BufferRef& buffer) {
    return Operand{&spec, static_cast<char*>(buffer->data()) + ShiftBytes(device, spec)};
  };
  std::vector<Operand> operands;
  for (size_t i = 0; i < inputs.size(); ++i) operands.push_back(operand(specs[i], inputs[i]));
  auto out = device.Allocate(plan.output().size_bytes() + ShiftBytes(device, plan.output()));
  EXPECT_TRUE(out.ok()) << out.status();
  const absl::Status launched = device.Launch({TestLaunch(device).context(),
                                               plan.schema,
                                               &plan.attrs,
                                               absl::MakeConstSpan(operands),
                                               {operand(plan.output(), *out)}});
  EXPECT_TRUE(launched.ok()) << launched;
  return *out;
}

HostTensor CudaTest::Run(Device& device, absl::string_view op,
                         const std::vector<HostTensor>& inputs, const Attributes& attrs) {
  std::vector<TensorSpec> specs;
  std::vector<BufferRef> buffers;
  for (const HostTensor& input : inputs) {
    specs.push_back(input.spec);
    buffers.push_back(Upload(device, input));
  }
  auto plan = PlanOp(op, specs, attrs);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (plan->alias) {
    return Download(plan->output(), BufferView::Make(buffers[0], plan->alias_offset_bytes,
                                                     plan->output().size_bytes()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = plan->input_dtypes[i];
    if (specs[i].dtype == dtype) continue;
    auto cast = PlanOp("cast", {specs[i]}, {{"dtype", dtype}});
    EXPECT_TRUE(cast.ok()) << cast.status();
    buffers[i] = RunOne(device, *cast, {specs[i]}, {buffers[i]});
    specs[i] = cast->output();
  }
  const BufferRef out = RunOne(device, *plan, specs, buffers);
  Wait(device);
  return Download(plan->output(), out);
}

void CudaTest::ExpectSame(absl::string_view op, const std::vector<HostTensor>& inputs,
                          const Attributes& attrs, double ulps, double scale) {
  std::string what = absl::StrCat(op, " of");
  for (const HostTensor& input : inputs) absl::StrAppend(&what, " ", input.spec.ToString());
  SCOPED_TRACE(what);
  const HostTensor expected = Run(*cpu_, op, inputs, attrs);
  const HostTensor actual = Run(*cuda_, op, inputs, attrs);
  ASSERT_EQ(actual.spec, expected.spec);
  const double rounding = 2 * ulps * RoundingOf(actual.spec.dtype);
  for (int64_t i = 0; i < actual.spec.num_elements(); ++i) {
    ASSERT_TRUE(Near(actual.At(i), expected.At(i), rounding, scale))
        << "element " << i << " is " << actual.At(i) << ", on the CPU " << expected.At(i);
  }
}

}  // namespace tensord::server
