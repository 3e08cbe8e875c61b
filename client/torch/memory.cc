// Tensors without arithmetic: empty, views, resize_ and set_. They send nothing to the server.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "cell.h"
#include "registration.h"

namespace torch_tensord {
namespace {

c10::DeviceIndex IndexOf(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : CurrentDevice();
}

void CheckOptions(std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                  std::optional<c10::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::Layout::Strided,
                              "tensord has strided tensors only, and no ", *layout,
                              ": keep the tensor on the CPU, or convert it with x.to_dense()");
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "only dense CPU tensors can be pinned");
  ToServerDType(c10::dtype_or_default(dtype));
  DeviceAt(IndexOf(device));
}

// Returns whether the program has asked for NaN or the greatest number in new memory.
bool FillsNewMemory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  CheckOptions(dtype, layout, device, pinned);
  at::detail::check_size_nonnegative(size);
  at::Tensor tensor = MakeContiguous(size, c10::dtype_or_default(dtype), IndexOf(device));
  if (format && *format != c10::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  if (C10_UNLIKELY(FillsNewMemory())) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                        std::optional<c10::Device> device, std::optional<bool> pinned) {
  CheckOptions(dtype, layout, device, pinned);
  at::detail::check_size_nonnegative(size);
  at::Tensor tensor = MakeStrided(size, stride, c10::dtype_or_default(dtype), IndexOf(device));
  if (C10_UNLIKELY(FillsNewMemory())) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

// Makes a tensor of which PyTorch knows that all elements are zero. Forward-mode derivatives use
// it.
at::Tensor EfficientZeroTensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pinned) {
  const at::Tensor zeros = Empty(size, dtype, layout, device, pinned, std::nullopt);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(zeros.storage()), zeros.key_set().add(c10::DispatchKey::ZeroTensor),
      zeros.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

at::Tensor AsStridedView(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(self, size, stride, offset);
}

const at::Tensor& ResizeInPlace(const at::Tensor& self, c10::SymIntArrayRef size,
                                std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  // A tensor of these sizes keeps its strides: it may be a view.
  if (!self.sizes().equals(sizes)) impl->set_sizes_contiguous(sizes);
  if (format) impl->empty_tensor_restride(*format);
  const size_t needed =
      static_cast<size_t>(self.numel() + self.storage_offset()) * self.element_size();
  Cell* const cell = CellOf(self);
  const size_t before = cell->nbytes();
  if (self.numel() == 0 || needed <= before) return self;
  ResizeStorage(cell, needed);
  if (C10_UNLIKELY(FillsNewMemory()))
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  return self;
}

at::Tensor ReshapeAlias(const at::Tensor& self, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor View(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor Unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}
at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}
at::Tensor& SetStorageOffset(at::Tensor& self, at::Storage source, int64_t offset,
                             at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}
at::Tensor& SetEmpty(at::Tensor& self) {
  return at::cpu::set_(
      self, MakeContiguous({0}, self.scalar_type(), self.device().index()).storage(), 0, {0}, {});
}

at::Tensor LazyClone(const at::Tensor&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "tensord has no _lazy_clone: use clone(), which copies no elements "
                              "until one of the tensors is written");
}

// If this returns true, Module.to() changes parameters in place, so tied weights stay tied.
bool HasCompatibleShallowCopyType(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kStrided && b.layout() == at::kStrided;
}

}  // namespace

TENSORD_KERNELS(m) {
  // A device has one stream, so no other stream can use the memory after it is freed.
  m.impl("record_stream", [](at::Tensor&, c10::Stream) {});
  m.impl("empty.memory_format", Empty);
  m.impl("empty_strided", EmptyStrided);
  m.impl("_efficientzerotensor", EfficientZeroTensor);
  m.impl("as_strided", AsStridedView);
  m.impl("resize_", ResizeInPlace);
  m.impl("_lazy_clone", LazyClone);
  m.impl("_reshape_alias", ReshapeAlias);
  m.impl("view", View);
  m.impl("unfold", Unfold);
  m.impl("set_.source_Tensor", SetTensor);
  m.impl("set_.source_Storage", SetStorage);
  m.impl("set_.source_Storage_storage_offset", SetStorageOffset);
  m.impl("set_", SetEmpty);
  m.impl("_has_compatible_shallow_copy_type", HasCompatibleShallowCopyType);
}

}  // namespace torch_tensord
