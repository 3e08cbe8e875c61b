// Helpers of the kernels: operands, dtypes, devices, and outputs.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>

#include "cell.h"
#include "registration.h"

namespace torch_tensord {

// ---- waits (copy.cc, runtime.cc)

at::Tensor Download(const at::Tensor& source);
at::Tensor UploadTensor(const at::Tensor& source, c10::DeviceIndex device);
int sync_debug_mode();  // 0, 1: warn, 2: error
void ReportWait(const char* what);

// ---- operands

using Operands = c10::ArrayRef<const at::Tensor*>;

// Returns the device of the operands. Throws if they have several, or if one with dimensions is on
// the CPU.
c10::DeviceIndex CommonDevice(const char* name, Operands operands);
inline c10::DeviceIndex CommonDevice(const char* name,
                                     std::initializer_list<const at::Tensor*> operands) {
  return CommonDevice(name, Operands(operands.begin(), operands.size()));
}

inline bool IsNumber(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

// Returns an operand in a dtype. A tensor without dimensions on the CPU becomes a number.
In NumberOf(const at::Tensor& tensor, at::ScalarType dtype);
Value ReadAs(const at::Tensor& tensor, at::ScalarType dtype, c10::DeviceIndex device);

// Returns a tensor in a dtype. A tensor on the CPU, which must have no dimensions, becomes a tensor
// on `device` without a wait.
at::Tensor ToDType(const at::Tensor& tensor, at::ScalarType dtype, c10::DeviceIndex device);

// Returns whether several elements of `self` have one place because of a stride of 0. If so, warns
// that the op `name` writes them, as PyTorch does.
bool WarnIfExpanded(const char* name, const at::Tensor& self);

// Returns the dtype in which ops on 16-bit floating dtypes are computed: float32 for these.
inline at::ScalarType ComputeDType(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}
// Returns the default dtype for integers and bool, or else `dtype`.
inline at::ScalarType FloatDType(at::ScalarType dtype) {
  return at::isIntegralType(dtype, true) ? c10::get_default_dtype_as_scalartype() : dtype;
}

// Computes an elementwise function of operands into `out`, in the order of the memory if all have
// the same. `function(inputs)` gets the operands in `dtype`, and returns the result.
template <typename Function>
void Elementwise(const char* name, const at::Tensor& out, Operands operands, at::ScalarType dtype,
                 Function function);
template <typename Function>
void Elementwise(const char* name, const at::Tensor& out,
                 std::initializer_list<const at::Tensor*> operands, at::ScalarType dtype,
                 Function function) {
  Elementwise(name, out, Operands(operands.begin(), operands.size()), dtype, std::move(function));
}

// Makes the result of an elementwise op, with the sizes and strides that PyTorch gives it.
at::Tensor MakeElementwise(Operands operands, at::ScalarType dtype, c10::DeviceIndex device);

// Returns the value of an operand that is a tensor.
inline Value Own(const In& in) {
  Api().retain(in.input.tensor);
  return c10::make_intrusive<Handle>(in.input.tensor);
}

// Computes out = op(operands…, numbers…) with the old value donated, if the first operand is `out`,
// is whole, and has this dtype. Otherwise returns false, and does nothing.
bool TryInPlace(ServerOp& op, const at::Tensor& out, Operands operands, at::ScalarType dtype,
                c10::ArrayRef<In> numbers = {});
inline bool TryInPlace(ServerOp& op, const at::Tensor& out,
                       std::initializer_list<const at::Tensor*> operands, at::ScalarType dtype,
                       c10::ArrayRef<In> numbers = {}) {
  return TryInPlace(op, out, Operands(operands.begin(), operands.size()), dtype, numbers);
}
// Computes out = op(operands…, numbers…) by an elementwise op of the server. The operands are cast
// to `dtype`. `out` must have the sizes of the result.
at::Tensor& OpInto(ServerOp& op, const at::Tensor& out,
                   std::initializer_list<const at::Tensor*> operands, at::ScalarType dtype,
                   c10::ArrayRef<In> numbers = {});

// Returns the name of gelu's approximation, "tanh" or "none". Others throw PyTorch's error.
// (activations.cc)
const char* GeluKind(c10::string_view approximate);

// ---- two operands (binary.cc)

at::ScalarType ResultType(std::initializer_list<const at::Tensor*> operands);
void ResizeBroadcast(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
// Returns x to the power of a number, in the dtype of `x`.
Value PowerOf(const Value& x, const at::Scalar& exponent);
at::Tensor& BinaryInto(ServerOp& op, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& out, at::ScalarType dtype);

// ---- ops that autograd sees as one

// Returns whether a tensor has its values in memory on our device. Returns false for sparse
// tensors, for tensors with a pending negation, for zero tensors, and for tensors of fake mode,
// functionalization, vmap or forward-mode AD.
bool IsPlainTensor(const at::Tensor& tensor);
// Returns whether a transform of torch.func or a TorchDispatchMode runs.
bool InTransform();

// ---- outputs

// If the sizes differ, resizes `out`, with PyTorch's warning. If the caller gives the output, the
// registration has checked it (registration.h).
inline void Resize(const at::Tensor& out, at::IntArrayRef sizes) {
  if (!out.sizes().equals(sizes)) at::native::resize_output(out, sizes);
}
// Writes a value to `out`, which gets its sizes and keeps its own dtype.
inline at::Tensor& WriteOut(const at::Tensor& out, Value value) {
  Resize(out, value->sizes());
  Write(out, std::move(value));
  return const_cast<at::Tensor&>(out);
}

// Copies `value` to `out`, which gets its sizes and keeps its own dtype.
inline at::Tensor& CopyToOut(at::Tensor& out, const at::Tensor& value) {
  Resize(out, value.sizes());
  return out.copy_(value);
}

inline c10::DeviceIndex DeviceOf(const at::Tensor& tensor) { return tensor.device().index(); }
inline bool IsGiven(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}
// Returns the axis of the classes in (N, C, …) or (C).
inline int64_t ClassAxis(const at::Tensor& x) { return x.dim() == 1 ? 0 : 1; }
// Returns the value of an attribute "reduction".
inline const char* ReductionName(int64_t reduction) {
  if (reduction == at::Reduction::None) return "none";
  return reduction == at::Reduction::Sum ? "sum" : "mean";
}
// Returns the number that a value with one element has. Waits.
at::Scalar Fetch(const Value& value);

inline c10::DimVector Axes(at::OptionalIntArrayRef dims, int64_t rank) {
  c10::DimVector axes;
  if (dims.has_value()) {
    at::dim_list_to_bitset(*dims, rank);  // refuses an axis that is named twice
    for (const int64_t dim : *dims) axes.push_back(at::maybe_wrap_dim(dim, rank));
  }
  if (rank == 0) axes.clear();
  return axes;
}

// ---- the implementation of Elementwise

// Returns whether the tensors cover their storages in one order that isn't that of contiguous
// tensors.
bool SharesMemoryOrder(const at::Tensor& out, Operands operands);
// Returns an alias that has the order of the memory.
at::Tensor InMemoryOrder(const at::Tensor& tensor, const c10::DimVector& order);

using Inputs = c10::SmallVector<In, 4>;
struct ReadInputs {
  c10::SmallVector<Value, 4> values;  // keeps what `inputs` points to
  Inputs inputs;
};
void ReadAll(ReadInputs& read, Operands operands, at::ScalarType dtype);

template <typename Function>
void Elementwise(const char* name, const at::Tensor& out, Operands operands, at::ScalarType dtype,
                 Function function) {
  const c10::DeviceIndex device = CommonDevice(name, operands);
  if (C10_UNLIKELY(!out.is_contiguous()) && SharesMemoryOrder(out, operands)) {
    const c10::DimVector order = MemoryOrder(out);
    c10::SmallVector<at::Tensor, 4> moved;
    for (const at::Tensor* each : operands) {
      moved.push_back(each->dim() == 0 ? *each : InMemoryOrder(*each, order));
    }
    c10::SmallVector<const at::Tensor*, 4> pointers;
    for (const at::Tensor& each : moved) pointers.push_back(&each);
    ReadInputs read;
    ReadAll(read, pointers, dtype);
    return Write(InMemoryOrder(out, order), function(read.inputs));
  }
  ReadInputs read;
  ReadAll(read, operands, dtype);
  Write(out, function(read.inputs));
}

}  // namespace torch_tensord
