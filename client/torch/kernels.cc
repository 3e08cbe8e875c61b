#include "kernels.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace torch_tensord {

c10::DeviceIndex CommonDevice(const char* name, Operands operands) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor* each : operands) {
    if (!each->defined() || IsNumber(*each)) continue;
    if (IsOurs(*each) && (first == nullptr || first->device() == each->device())) {
      if (first == nullptr) first = each;
      continue;
    }
    const at::Tensor* ours = first;
    for (const at::Tensor* other : operands) {
      if (ours == nullptr && other->defined() && IsOurs(*other)) ours = other;
    }
    ThrowOtherDevice(
        name, ours == nullptr ? at::Device(at::kPrivateUse1, CurrentDevice()) : ours->device(),
        each->device());
  }
  TORCH_CHECK(first != nullptr, name, ": no operand is on tensord");
  return first->device().index();
}

at::Tensor MakeElementwise(Operands operands, at::ScalarType dtype, c10::DeviceIndex device) {
  const at::IntArrayRef sizes = operands[0]->sizes();
  if (std::all_of(operands.begin(), operands.end(), [&](const at::Tensor* each) {
        return IsOurs(*each) && each->sizes().equals(sizes) && IsRowMajor(*each);
      })) {
    return MakeContiguous(sizes, dtype, device);
  }
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false);
  config.add_owned_output(at::Tensor());
  for (const at::Tensor* each : operands) config.add_owned_const_input(*each);
  config.declare_static_dtype_and_device(dtype, at::Device(at::kPrivateUse1, device));
  return config.build().output();
}

In NumberOf(const at::Tensor& tensor, at::ScalarType dtype) {
  // The dtypes of Python's numbers, without a call through the dispatcher.
  const void* const data = tensor.unsafeGetTensorImpl()->data();
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return In(*static_cast<const double*>(data), dtype);
    case at::kLong:
      return In(*static_cast<const int64_t*>(data), dtype);
    case at::kBool:
      return In(*static_cast<const bool*>(data), dtype);
    default:
      return In(tensor.item(), dtype);
  }
}

bool TryInPlace(ServerOp& op, const at::Tensor& out, Operands operands, at::ScalarType dtype,
                c10::ArrayRef<In> numbers) {
  if (!out.is_same(*operands[0]) || dtype != out.scalar_type() || !IsOurs(out) || !IsWhole(out))
    return false;
  Inputs inputs;
  c10::SmallVector<Value, 2> others;
  inputs.emplace_back(at::Scalar(false), at::kBool);  // the place of the first operand
  for (const at::Tensor* each : operands.slice(1)) {
    if (IsNumber(*each)) {
      inputs.push_back(NumberOf(*each, dtype));
      continue;
    }
    if (!each->sizes().equals(out.sizes()) && !at::is_expandable_to(each->sizes(), out.sizes()))
      return false;
    CommonDevice(op.name(), {&out, each});
    others.push_back(Cast(ReadForBroadcast(*each), dtype));
    inputs.emplace_back(others.back());
  }
  inputs.append(numbers.begin(), numbers.end());
  TakenValue first(CellOf(out));
  // A value of another shape was not written as this tensor.
  if (!first.get() || first.get()->dtype() != dtype || !first.get()->sizes().equals(out.sizes())) {
    return false;
  }
  inputs[0] = first.get();
  first.Set(Cast(Push(op.get(), op.name(), inputs, first.donated()), dtype));
  return true;
}

at::Tensor& OpInto(ServerOp& op, const at::Tensor& out,
                   std::initializer_list<const at::Tensor*> operands, at::ScalarType dtype,
                   c10::ArrayRef<In> numbers) {
  if (!TryInPlace(op, out, operands, dtype, numbers)) {
    Elementwise(op.name(), out, operands, dtype, [&](Inputs in) {
      in.append(numbers.begin(), numbers.end());
      return Push(op.get(), op.name(), in);
    });
  }
  return const_cast<at::Tensor&>(out);
}

bool WarnIfExpanded(const char* name, const at::Tensor& self) {
  if (C10_LIKELY(at::has_internal_overlap(self) != at::MemOverlap::Yes)) return false;
  TORCH_WARN("Use of ", name,
             " on expanded tensors is deprecated. Please clone() the tensor before performing this "
             "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
  return true;
}

at::Tensor ToDType(const at::Tensor& tensor, at::ScalarType dtype, c10::DeviceIndex device) {
  if (IsOurs(tensor)) return tensor.to(dtype);
  return MakeTensor(Full(device, {}, NumberOf(tensor, dtype)), device);
}

Value ReadAs(const at::Tensor& tensor, at::ScalarType dtype, c10::DeviceIndex device) {
  if (!IsOurs(tensor)) return Full(device, {}, NumberOf(tensor, dtype));
  return Cast(ReadForBroadcast(tensor), dtype);
}

void ReadAll(ReadInputs& read, Operands operands, at::ScalarType dtype) {
  for (const at::Tensor* each : operands) {
    if (IsOurs(*each)) {
      read.values.push_back(Cast(ReadForBroadcast(*each), dtype));
      read.inputs.emplace_back(read.values.back());
    } else {
      read.inputs.push_back(NumberOf(*each, dtype));
    }
  }
}

bool SharesMemoryOrder(const at::Tensor& out, Operands operands) {
  if (!CoversStorage(out)) return false;
  for (const at::Tensor* each : operands) {
    if (each->dim() == 0) continue;
    if (!each->sizes().equals(out.sizes()) || !each->strides().equals(out.strides())) return false;
    if (!CoversStorage(*each)) return false;
  }
  return true;
}

at::Tensor InMemoryOrder(const at::Tensor& tensor, const c10::DimVector& order) {
  c10::DimVector sizes, strides;
  for (const int64_t axis : order) {
    sizes.push_back(tensor.size(axis));
    strides.push_back(tensor.stride(axis));
  }
  return Alias(tensor, sizes, strides, tensor.storage_offset());
}

bool IsPlainTensor(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kModes(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::ZeroTensor,
       c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return IsOurs(tensor) && !tensor.key_set().has_any(kModes) && !tensor.is_sparse() &&
         !tensor.is_neg() && tensor.has_storage() && !tensor._fw_grad(/*level=*/0).defined();
}

bool InTransform() {
  return at::functorch::maybeCurrentDynamicLayer().has_value() ||
         c10::impl::TorchDispatchModeTLS::any_modes_set();
}

}  // namespace torch_tensord
