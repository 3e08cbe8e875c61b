#include "tensord/tests/unit/device/op_runner.h"

#include <cmath>
#include <cstring>

#include "tensord/common/float16.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

template <typename T>
double Get(const std::string& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<double>(value);
}

template <typename T>
void Put(std::string& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

void PutDouble(HostTensor& tensor, int64_t i, double value) {
  const auto integer = static_cast<int64_t>(std::isnan(value) ? 0 : value);
  switch (tensor.spec.dtype) {
    case DType::kBool:
      return Put<uint8_t>(tensor.bytes, i, value != 0 ? 1 : 0);
    case DType::kUInt8:
      return Put(tensor.bytes, i, static_cast<uint8_t>(integer));
    case DType::kInt8:
      return Put(tensor.bytes, i, static_cast<int8_t>(integer));
    case DType::kInt32:
      return Put(tensor.bytes, i, static_cast<int32_t>(integer));
    case DType::kInt64:
      return Put(tensor.bytes, i, integer);
    case DType::kInt16:
      return Put(tensor.bytes, i, static_cast<int16_t>(integer));
    case DType::kUInt16:
      return Put(tensor.bytes, i, static_cast<uint16_t>(integer));
    case DType::kUInt32:
      return Put(tensor.bytes, i, static_cast<uint32_t>(integer));
    case DType::kUInt64:
      return Put(tensor.bytes, i, static_cast<uint64_t>(integer));
    case DType::kComplex64:
      return Put(tensor.bytes, 2 * i, static_cast<float>(value));
    case DType::kComplex128:
      return Put(tensor.bytes, 2 * i, value);
    case DType::kFloat16:
      return Put(tensor.bytes, i, Half(static_cast<float>(value)));
    case DType::kBFloat16:
      return Put(tensor.bytes, i, BFloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return Put(tensor.bytes, i, static_cast<float>(value));
    default:
      return Put(tensor.bytes, i, value);
  }
}

}  // namespace

double HostTensor::At(int64_t i) const {
  switch (spec.dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return Get<uint8_t>(bytes, i);
    case DType::kInt8:
      return Get<int8_t>(bytes, i);
    case DType::kInt32:
      return Get<int32_t>(bytes, i);
    case DType::kInt64:
      return Get<int64_t>(bytes, i);
    case DType::kInt16:
      return Get<int16_t>(bytes, i);
    case DType::kUInt16:
      return Get<uint16_t>(bytes, i);
    case DType::kUInt32:
      return Get<uint32_t>(bytes, i);
    case DType::kUInt64:
      return Get<uint64_t>(bytes, i);
    case DType::kComplex64:
      return Get<float>(bytes, 2 * i);
    case DType::kComplex128:
      return Get<double>(bytes, 2 * i);
    case DType::kFloat16:
      return Get<Half>(bytes, i);
    case DType::kBFloat16:
      return Get<BFloat16>(bytes, i);
    case DType::kFloat32:
      return Get<float>(bytes, i);
    default:
      return Get<double>(bytes, i);
  }
}

std::vector<double> HostTensor::ToDoubles() const {
  std::vector<double> values;
  for (int64_t i = 0; i < spec.num_elements(); ++i) values.push_back(At(i));
  return values;
}

HostTensor MakeTensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  HostTensor tensor{{dtype, shape}, std::string(shape.num_elements() * SizeOf(dtype), '\0')};
  for (size_t i = 0; i < values.size(); ++i) PutDouble(tensor, static_cast<int64_t>(i), values[i]);
  return tensor;
}

HostTensor Spread(DType dtype, const Shape& shape, double low, double high, int seed) {
  std::vector<double> values;
  uint64_t state = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double value = low + (high - low) * (static_cast<double>(state >> 40) / 0x1p24);
    values.push_back(IsFloating(dtype) ? value : std::round(value));
  }
  return MakeTensor(dtype, shape, values);
}

double RoundingTolerance(DType dtype, double float64) {
  switch (dtype) {
    case DType::kFloat16:
      return 1e-3;
    case DType::kBFloat16:
      return 8e-3;
    case DType::kFloat32:
      return 2e-6;
    case DType::kFloat64:
      return float64;
    default:
      return 0;
  }
}

OpRunner::OpRunner(int threads) {
  device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{4} << 30, threads);
  device_->BindThread();
}

absl::StatusOr<BufferRef> OpRunner::Upload(const HostTensor& tensor) {
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, device_->Allocate(tensor.spec.size_bytes()));
  TENSORD_RETURN_IF_ERROR(
      device_->Write(*buffer, 0, tensor.bytes.data(), tensor.spec.size_bytes()));
  return buffer;
}

HostTensor OpRunner::Download(const Buffer& buffer, const TensorSpec& spec) {
  HostTensor result{spec, std::string(spec.size_bytes(), '\0')};
  const absl::Status status = device_->Read(buffer, 0, result.bytes.data(), spec.size_bytes());
  if (!status.ok()) result.bytes = std::string(status.message());
  return result;
}

absl::StatusOr<HostTensor> OpRunner::Run(absl::string_view op,
                                         const std::vector<HostTensor>& inputs,
                                         const Attributes& attrs) {
  TENSORD_ASSIGN_OR_RETURN(std::vector<HostTensor> outputs, RunAll(op, inputs, attrs));
  return std::move(outputs[0]);
}

absl::StatusOr<std::vector<HostTensor>> OpRunner::RunAll(absl::string_view op,
                                                         const std::vector<HostTensor>& inputs,
                                                         const Attributes& attrs) {
  std::vector<TensorSpec> specs;
  for (const HostTensor& input : inputs) specs.push_back(input.spec);
  TENSORD_ASSIGN_OR_RETURN(const OpPlan plan, PlanOp(op, specs, attrs));
  std::vector<HostTensor> read = inputs;
  std::vector<BufferRef> buffers;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].spec.dtype != plan.input_dtypes[i]) {
      TENSORD_ASSIGN_OR_RETURN(read[i], Run("cast", {read[i]}, {{"dtype", plan.input_dtypes[i]}}));
    }
    TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, Upload(read[i]));
    buffers.push_back(std::move(buffer));
  }
  if (plan.alias) {
    return std::vector<HostTensor>{
        {plan.output(), read[0].bytes.substr(plan.alias_offset_bytes, plan.output().size_bytes())}};
  }
  std::vector<Operand> operands;
  for (size_t i = 0; i < read.size(); ++i) operands.push_back({&read[i].spec, buffers[i]->data()});
  std::vector<BufferRef> outputs;
  std::vector<Operand> results;
  for (const TensorSpec& spec : plan.outputs) {
    TENSORD_ASSIGN_OR_RETURN(BufferRef output, device_->Allocate(spec.size_bytes()));
    // Makes elements visible that the kernel doesn't write.
    if (output->size_bytes() > 0) std::memset(output->data(), 0x5a, output->size_bytes());
    results.push_back({&spec, output->data()});
    outputs.push_back(std::move(output));
  }
  TENSORD_RETURN_IF_ERROR(device_->Launch(
      {TestLaunch(*device_).context(), plan.schema, &plan.attrs, operands, results}));
  std::vector<HostTensor> tensors;
  for (size_t i = 0; i < outputs.size(); ++i) {
    tensors.push_back(Download(*outputs[i], plan.outputs[i]));
  }
  return tensors;
}

}  // namespace tensord::server
