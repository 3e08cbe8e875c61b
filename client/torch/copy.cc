// Copies between the CPU and devices, and the element of a tensor.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

bool ReportsWaits() { return sync_debug_mode() != 0; }

Value Upload(const at::Tensor& source, c10::DeviceIndex device, bool non_blocking) {
  const at::Tensor host = source.resolve_conj().resolve_neg().contiguous();
  const TensordSpec spec = {ToServerDType(host.scalar_type()), static_cast<int32_t>(host.dim()),
                            host.sizes().data()};
  const auto upload = non_blocking ? Api().upload_async : Api().upload;
  TensordTensor* made = nullptr;
  TensordError* error = nullptr;
  Check(upload(DeviceAt(device), &spec, host.const_data_ptr(), host.nbytes(), &made, &error), error,
        "copy_");
  return c10::make_intrusive<Handle>(made);
}

}  // namespace

at::Tensor Download(const at::Tensor& source) {
  if (ReportsWaits()) ReportWait("a copy to the CPU");
  at::Tensor host = at::empty(source.sizes(), source.options().device(at::kCPU));
  if (source.numel() == 0) return host;
  Value value = Read(source);
  if (source.is_neg()) value = Push(server_op<"neg">, {value});
  TensordError* error = nullptr;
  Check(Api().download(value->tensor, host.mutable_data_ptr(), host.nbytes(), &error), error, "");
  return host;
}

at::Scalar Fetch(const Value& value) {
  if (ReportsWaits()) ReportWait("a shape that depends on values");
  at::Tensor host = at::empty({}, at::TensorOptions().dtype(value->dtype()).device(at::kCPU));
  TensordError* error = nullptr;
  Check(Api().download(value->tensor, host.mutable_data_ptr(), host.nbytes(), &error), error, "");
  return host.item();
}

at::Tensor UploadTensor(const at::Tensor& source, c10::DeviceIndex device) {
  return MakeTensor(Upload(source, device, true), device);
}

namespace {

// Unlike other kernels, this one gets views whose elements PyTorch negates when they are read.
void CopyInto(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(!target._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you "
              "want a mutable zero tensor.");
  if (!IsOurs(target)) {
    target.copy_(Download(source));
    return;
  }
  if (target.numel() == 0) return;
  const c10::DeviceIndex device = target.device().index();
  // An upload has the negated elements already.
  const bool negates = (IsOurs(source) && source.is_neg()) != target.is_neg();
  if (IsOurs(source)) at::assert_no_partial_overlap(target, source);
  Value value;
  if (!IsOurs(source)) {
    if (!source.is_cpu()) return CopyInto(target, source.cpu(), non_blocking);
    // Sends the smaller dtype, and a number in place of a broadcast tensor.
    const bool smaller = source.element_size() < target.element_size();
    const at::Tensor host = smaller ? source : source.to(target.scalar_type());
    value = Upload(host, device, non_blocking);
  } else if (source.device() != target.device()) {
    TensordTensor* copy = nullptr;
    TensordError* error = nullptr;
    Check(Api().copy(Read(source)->tensor, DeviceAt(device), &copy, &error), error, "copy_");
    value = c10::make_intrusive<Handle>(copy);
  } else if (!negates && target.strides().equals(source.strides()) && CoversStorage(target) &&
             CoversStorage(source) && target.sizes().equals(source.sizes())) {
    // Both have the same order: the target gets the same value, and nothing is sent.
    return CellOf(target)->Set(
        Cast(ReadStorage(CellOf(source), source.scalar_type()), target.scalar_type()));
  } else {
    value = ReadForBroadcast(source);
  }
  if (negates) value = Push(server_op<"neg">, {Cast(value, target.scalar_type())});
  Write(target, std::move(value));
}

at::Tensor& CopyInPlace(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  CopyInto(self, source, non_blocking);
  return self;
}

at::Tensor CopyFrom(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  CopyInto(target, source, non_blocking);
  return target;
}

at::Tensor CopyFromAndResize(const at::Tensor& source, const at::Tensor& target) {
  Resize(target, source.sizes());
  CopyInto(target, source, false);
  return target;
}

at::Scalar LocalScalar(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  if (ReportsWaits()) ReportWait("item()");
  return Download(self).item();
}

// Blocks until the value is computed, so that the call itself raises the error.
void AssertMessage(const at::Tensor& self, c10::string_view message) {
  TORCH_CHECK(at::is_nonzero(self), message.empty() ? "Assertion is failed" : message);
}

void Assert(const at::Tensor& self) {
  AssertMessage(self, "Expected Tensor with single nonzero value, but got zero");
}

at::Tensor FunctionalAssert(const at::Tensor& self, c10::string_view message,
                            const at::Tensor& token) {
  AssertMessage(self, message);
  return token.clone();
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_assert_async", Assert);
  m.impl("_assert_async.msg", AssertMessage);
  m.impl("_functional_assert_async.msg", FunctionalAssert);
  m.impl("copy_", CopyInPlace);
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("_local_scalar_dense", LocalScalar);
}

}  // namespace torch_tensord
