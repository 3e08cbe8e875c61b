// Ops without inputs.
#include <algorithm>
#include <cstring>

#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/creation.h"
#include "tensord/server/device/diagonal.h"

namespace tensord::server::cuda {
namespace {

template <typename Storage, typename Value>
uint64_t BitsOf(Value value) {
  const Storage element = Narrow<Storage>(CastTo<MathOf<Storage>>()(value));
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

// Returns a scalar as an element of a dtype. If the dtype is complex, the scalar is the real part,
// and the imaginary part is 0.
template <typename Value>
ElementBits ElementFor(DType dtype, Value value) {
  ElementBits element;
  element.bytes = static_cast<int>(SizeOf(dtype));
  switch (RealDTypeOf(dtype)) {
    case DType::kBool:
      element.bits = BitsOf<Bool>(value);
      break;
    case DType::kUInt8:
      element.bits = BitsOf<uint8_t>(value);
      break;
    case DType::kInt8:
      element.bits = BitsOf<int8_t>(value);
      break;
    case DType::kInt32:
      element.bits = BitsOf<int32_t>(value);
      break;
    case DType::kInt64:
      element.bits = BitsOf<int64_t>(value);
      break;
    case DType::kFloat16:
      element.bits = BitsOf<Half>(value);
      break;
    case DType::kBFloat16:
      element.bits = BitsOf<BFloat16>(value);
      break;
    case DType::kFloat32:
      element.bits = BitsOf<float>(value);
      break;
    case DType::kFloat64:
      element.bits = BitsOf<double>(value);
      break;
    case DType::kInt16:
      element.bits = BitsOf<int16_t>(value);
      break;
    case DType::kUInt16:
      element.bits = BitsOf<uint16_t>(value);
      break;
    case DType::kUInt32:
      element.bits = BitsOf<uint32_t>(value);
      break;
    case DType::kUInt64:
      element.bits = BitsOf<uint64_t>(value);
      break;
    default:
      break;
  }
  return element;
}

ElementBits ElementFor(DType dtype, const AttrValue& scalar) {
  if (const bool* b = std::get_if<bool>(&scalar)) return ElementFor(dtype, *b);
  if (const int64_t* i = std::get_if<int64_t>(&scalar)) return ElementFor(dtype, *i);
  return ElementFor(dtype, std::get<double>(scalar));
}

absl::Status RunFill(const KernelCall& call, KernelContext& context, const AttrValue& value) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const ElementBits element = ElementFor(call.output().spec->dtype, value);
  return LaunchStatus(call, LaunchFill(call.output().data, element, size, 1, context.stream));
}

absl::Status RunEye(const KernelCall& call, KernelContext& context) {
  const TensorSpec& spec = *call.output().spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const ElementBits zero = ElementFor(spec.dtype, int64_t{0});
  const ElementBits one = ElementFor(spec.dtype, int64_t{1});
  const cudaError_t error =
      LaunchFill(call.output().data, zero, spec.num_elements(), 1, context.stream);
  if (error != cudaSuccess) return LaunchStatus(call, error);
  const int64_t columns = spec.shape.dim(1);
  const Diagonal diagonal = FindDiagonal(spec.shape.dim(0), columns, call.attrs->Int("k"));
  if (diagonal.size == 0) return absl::OkStatus();
  char* const first = call.output().AsMutable<char>() + diagonal.first * SizeOf(spec.dtype);
  return LaunchStatus(call, LaunchFill(first, one, diagonal.size, columns + 1, context.stream));
}

absl::Status RunArange(const KernelCall& call, KernelContext& context) {
  const int64_t size = call.output().spec->num_elements();
  if (size == 0) return absl::OkStatus();
  const ArangeLauncher launch = ArangeLaunchers()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  const AttrValue& start = *call.attrs->Find("start");
  const AttrValue& step = *call.attrs->Find("step");
  ArangeJob job;
  job.integral = std::holds_alternative<int64_t>(start);  // in normal form, step has the same type
  if (job.integral) {
    job.int_start = std::get<int64_t>(start);
    job.int_step = std::get<int64_t>(step);
  } else {
    job.float_start = std::get<double>(start);
    job.float_step = std::get<double>(step);
  }
  return LaunchStatus(call, launch(call.output().data, job, size, context.stream));
}

}  // namespace

void AppendCreationKernels(KernelTable& table) {
  table["zeros"] = [](const KernelCall& call, KernelContext& context) {
    return RunFill(call, context, int64_t{0});
  };
  table["ones"] = [](const KernelCall& call, KernelContext& context) {
    return RunFill(call, context, int64_t{1});
  };
  table["full"] = [](const KernelCall& call, KernelContext& context) {
    return RunFill(call, context, *call.attrs->Find("value"));
  };
  table["eye"] = RunEye;
  table["arange"] = RunArange;
}

}  // namespace tensord::server::cuda
