// Fuzzes the preparation of kernels with arbitrary ops, attributes and sizes. A caller declares the
// sizes before any memory is charged to it. So Device::Prepare() may allocate only a bounded number
// of bytes, in a bounded number of allocations, for any sizes.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/match.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/device.h"
#include "tensord/tests/fuzz/any_op.h"

namespace {

// Of operator new. Freed memory counts, too, so that both numbers also bound the work.
std::atomic<int64_t> allocated_bytes{0};
std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes) {
  allocated_bytes += static_cast<int64_t>(bytes);
  ++allocations;
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace tensord::server {
namespace {

using fuzz::FuzzInput;
using Specs = std::vector<TensorSpec>;

// The limits for one kernel. oneDNN's convolutions take most, and free almost all of it.
constexpr int64_t kMaxAllocatedBytes = 1 << 20, kMaxAllocatedBytesOfConv = 128 << 20;
constexpr int64_t kMaxAllocations = 20000, kMaxAllocationsOfConv = 2000000;

Device& CpuDevice() {
  static auto* const device =
      new std::unique_ptr<Device>(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 50, 4));
  return **device;
}

// If the op and its inputs are valid, prepares them.
void Prepare(const OpSchema& schema, const Specs& inputs, const Attributes& attrs) {
  const auto plan = PlanOp(schema.name, inputs, attrs);
  if (!plan.ok() || plan->alias) return;
  Specs read_as = inputs;
  int64_t elements = 0;
  for (size_t i = 0; i < read_as.size(); ++i) read_as[i].dtype = plan->input_dtypes[i];
  for (const TensorSpec& output : plan->outputs) elements += output.num_elements();
  if (elements == 0) return;  // an op without results needs no kernel
  Device& device = CpuDevice();
  const int64_t bytes_before = allocated_bytes, allocations_before = allocations;
  const auto kernel = device.Prepare({plan->schema, &plan->attrs, read_as, plan->outputs});
  const int64_t bytes = allocated_bytes - bytes_before;
  const int64_t count = allocations - allocations_before;
  const bool conv = absl::StartsWith(schema.name, "conv");
  if (bytes > (conv ? kMaxAllocatedBytesOfConv : kMaxAllocatedBytes)) std::abort();
  if (count > (conv ? kMaxAllocationsOfConv : kMaxAllocations)) std::abort();
}

// Products whose outputs have up to kMaxElements elements.
void PrepareLargeProducts() {
  const OpSchema& matmul = *FindOp("matmul");
  const Attributes none;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt32}) {
    const auto prepare = [&](const Shape& a, const Shape& b) {
      Prepare(matmul, {{dtype, a}, {dtype, b}}, none);
    };
    constexpr int64_t kMany = int64_t{1} << 40;
    prepare({1 << 24, 100}, {100, 1 << 24});
    prepare({65535, 1000}, {1000, (int64_t{1} << 31) - 1});
    prepare({1000, 4096}, {4096, (int64_t{1} << 31) + 1});
    prepare({64, 255}, {255, kMany});
    prepare({3, 65535}, {65535, int64_t{1} << 32});
    prepare({1 << 20, 1, 3, 3}, {1 << 20, 3, 3});
    prepare({kMany, 1, 2, 2}, {3, 2, 2});
  }
}

// Returns a shape whose dimensions are some of `sizes`, so that the shapes of several inputs match.
Shape AnyShape(FuzzInput& in, int rank, const std::vector<int64_t>& sizes) {
  Shape shape;
  for (; rank > 0; --rank) {
    shape.AppendDim(in.Bool() ? sizes[in.Range(0, static_cast<int>(sizes.size()) - 1)]
                              : in.Range(0, 4));
  }
  return shape;
}

// Prepares conv, or a gradient of it. Most inputs of other functions aren't a valid convolution.
void PrepareAnyConv(FuzzInput& in) {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
  const DType dtype = in.Pick(kDTypes);
  const auto size = [&in](int max_power) {
    return std::max<int64_t>(1, (int64_t{1} << in.Range(0, max_power)) + in.Range(-1, 1));
  };
  const int axes = in.Range(1, 3);
  const int64_t groups = in.OneIn(2) ? size(12) : 1;
  TensorSpec x = {dtype, {size(40), groups * size(10)}};
  TensorSpec weight = {dtype, {groups * size(10), x.shape.dim(1) / groups}};
  std::vector<int64_t> stride, padding, dilation;
  for (int axis = 0; axis < axes; ++axis) {
    x.shape.AppendDim(size(in.Bool() ? 30 : 10));
    weight.shape.AppendDim(size(in.Bool() ? 16 : 3));
    stride.push_back(size(in.Bool() ? 20 : 1));
    padding.push_back(in.Bool() ? size(20) : 0);
    dilation.push_back(size(in.Bool() ? 20 : 1));
  }
  Attributes attrs{
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  if (!x.shape.Validate().ok() || !weight.shape.Validate().ok()) return;
  const auto plan = PlanOp("conv", {x, weight}, attrs);
  if (!plan.ok()) return;
  const auto set_shape = [&attrs](const Shape& shape) {
    attrs.Set("shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  };
  switch (in.Range(0, 2)) {
    case 0:
      return Prepare(*FindOp("conv"), {x, weight}, attrs);
    case 1:
      set_shape(x.shape);
      return Prepare(*FindOp("conv_backward_input"), {plan->output(), weight}, attrs);
    default:
      set_shape(weight.shape);
      return Prepare(*FindOp("conv_backward_weight"), {plan->output(), x}, attrs);
  }
}

// Prepares any op with any inputs, if they are valid.
void PrepareAnyOp(FuzzInput& in) {
  std::vector<int64_t> sizes(3);
  for (int64_t& value : sizes) value = (int64_t{1} << in.Range(0, 62)) + in.Range(-1, 1);
  const OpSchema& schema = fuzz::AnySchema(in);
  const DType dtype = fuzz::AnyDType(in);
  const int rank = in.Range(0, 5);
  Specs inputs(
      in.Range(schema.min_inputs, std::max(schema.min_inputs, std::min(schema.max_inputs, 8))));
  for (TensorSpec& spec : inputs) {
    spec.dtype = in.OneIn(8) ? fuzz::AnyDType(in) : dtype;
    spec.shape = AnyShape(in, in.OneIn(4) ? in.Range(0, 5) : rank, sizes);
    if (!IsValid(spec.dtype) || !spec.shape.Validate().ok()) return;
  }
  Prepare(schema, inputs, in.Bool() ? Attributes() : fuzz::AnyAttributes(in, schema));
}

}  // namespace
}  // namespace tensord::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool prepared = [] {
    tensord::server::PrepareLargeProducts();
    return true;
  }();
  tensord::fuzz::FuzzInput in(data, size);
  if (in.OneIn(4)) {
    tensord::server::PrepareAnyConv(in);
  } else {
    tensord::server::PrepareAnyOp(in);
  }
  return 0;
}
