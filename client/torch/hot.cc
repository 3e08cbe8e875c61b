// The ops that programs call most, without PyTorch's shape functions. If all operands are
// contiguous and have the dtype of the result, the result is contiguous, and the client library has
// its shape at once. Otherwise PyTorch computes the geometry of the result, and calls the kernel
// with ".out".
#include <ATen/CompositeExplicitAutogradNonFunctionalFunctions.h>
#include <ATen/ScalarOps.h>

#include "hot.h"

namespace torch_tensord {

namespace {

// Returns whether `number` is a Python number that doesn't change the dtype of `x`, and that the op
// takes in this dtype. PyTorch refuses to subtract a bool, and doesn't round a factor to 16 bits.
bool KeepsDType(const ServerOp& op, const at::Tensor& number, const at::Tensor& x) {
  if (!IsNumber(number) || !number.unsafeGetTensorImpl()->is_wrapped_number()) return false;
  if (number.scalar_type() == at::kBool) return false;
  const at::ScalarType dtype = x.scalar_type();
  if (!at::isFloatingType(dtype))
    return dtype != at::kBool && at::isIntegralType(number.scalar_type(), false);
  const bool scales = &op == &server_op<"mul"> || &op == &server_op<"div">;
  return !scales || ComputeDType(dtype) == dtype || IsExact(NumberOf(number, at::kFloat), dtype);
}

}  // namespace

bool BinaryFast(ServerOp& op, const at::Tensor& a, const at::Tensor& b, at::Tensor* result) {
  if (!IsPlain(a) || a.scalar_type() == at::kBool) return false;
  if (IsPlain(b)) {
    if (a.scalar_type() != b.scalar_type() || a.device() != b.device()) return false;
    if (C10_UNLIKELY(!a.sizes().equals(b.sizes()))) at::infer_size_dimvector(a.sizes(), b.sizes());
    *result = MakeTensor(Push(op, {Read(a), Read(b)}), DeviceOf(a));
    return true;
  }
  if (!KeepsDType(op, b, a)) return false;
  *result = MakeTensor(Push(op, {Read(a), NumberOf(b, a.scalar_type())}), DeviceOf(a));
  return true;
}

namespace {

namespace slow = at::compositeexplicitautogradnonfunctional;

bool InPlace(ServerOp& op, const at::Tensor& self, const at::Tensor& b) {
  if (!IsPlain(self) || self.scalar_type() == at::kBool) return false;
  if (IsOurs(b) ? (b.scalar_type() != self.scalar_type() || b.device() != self.device())
                : !KeepsDType(op, b, self)) {
    return false;
  }
  if (TryInPlace(op, self, {&self, &b}, self.scalar_type())) return true;
  // `self` is a part of a storage. PyTorch's own path handles operands that overlap or broadcast.
  if (self.numel() == 0) return false;
  if (!IsOurs(b)) {
    Write(self, Push(op, {Read(self), NumberOf(b, self.scalar_type())}));
    return true;
  }
  if (!IsPlain(b) || CellOf(b) == CellOf(self) || !b.sizes().equals(self.sizes())) return false;
  Write(self, Push(op, {Read(self), Read(b)}));
  return true;
}

// If the fast path applies, sets `*result` to a + alpha b, or a - alpha b, and returns true.
bool Scaled(ServerOp& op, const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha,
            at::Tensor* result) {
  if (alpha.isIntegral(false) && alpha.toLong() == 1) return BinaryFast(op, a, b, result);
  // PyTorch refuses an alpha of bool or complex. 16-bit dtypes are computed in float32.
  if (alpha.isBoolean() || alpha.isComplex() || !IsPlain(a) || !IsPlain(b) ||
      ComputeDType(a.scalar_type()) != a.scalar_type() || !at::isFloatingType(a.scalar_type()) ||
      !AreAlike(a, b)) {
    return false;
  }
  const In factor = Checked(&op == &server_op<"sub"> ? -alpha : alpha, a.scalar_type());
  *result = MakeTensor(Push(server_op<"add_scaled">, {Read(a), Read(b), factor}), DeviceOf(a));
  return true;
}

at::Tensor AddTensors(const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  at::Tensor result;
  if (Scaled(server_op<"add">, a, b, alpha, &result)) return result;
  CommonDevice("add", {&a, &b});
  return slow::add(a, b, alpha);
}
at::Tensor& AddInPlace(at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  if (alpha.isIntegral(false) && alpha.toLong() == 1 && InPlace(server_op<"add">, a, b)) return a;
  CommonDevice("add_", {&a, &b});
  return slow::add_(a, b, alpha);
}
at::Tensor SubTensors(const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  at::Tensor result;
  if (Scaled(server_op<"sub">, a, b, alpha, &result)) return result;
  CommonDevice("sub", {&a, &b});
  return slow::sub(a, b, alpha);
}
at::Tensor& SubInPlace(at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  if (alpha.isIntegral(false) && alpha.toLong() == 1 && InPlace(server_op<"sub">, a, b)) return a;
  CommonDevice("sub_", {&a, &b});
  return slow::sub_(a, b, alpha);
}
at::Tensor MulTensors(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result;
  if (BinaryFast(server_op<"mul">, a, b, &result)) return result;
  CommonDevice("mul", {&a, &b});
  return slow::mul(a, b);
}
at::Tensor& MulInPlace(at::Tensor& a, const at::Tensor& b) {
  if (InPlace(server_op<"mul">, a, b)) return a;
  CommonDevice("mul_", {&a, &b});
  return slow::mul_(a, b);
}
at::Tensor DivTensors(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result;
  if (at::isFloatingType(a.scalar_type()) && BinaryFast(server_op<"div">, a, b, &result))
    return result;
  CommonDevice("div", {&a, &b});
  return slow::div(a, b);
}
at::Tensor& DivInPlace(at::Tensor& a, const at::Tensor& b) {
  if (at::isFloatingType(a.scalar_type()) && InPlace(server_op<"div">, a, b)) return a;
  CommonDevice("div_", {&a, &b});
  return slow::div_(a, b);
}

// The overloads for C++ numbers, which PyTorch would turn into tensors.
template <ServerOp& kOp, at::Tensor (*kTensors)(const at::Tensor&, const at::Tensor&)>
at::Tensor WithNumber(const at::Tensor& a, const at::Scalar& number) {
  if (IsPlainFloat(a) && !number.isBoolean() && !number.isComplex() &&
      (ComputeDType(a.scalar_type()) == a.scalar_type() ||
       IsExact(In(number, at::kFloat), a.scalar_type()))) {
    return MakeTensor(Push(kOp, {Read(a), In(number, a.scalar_type())}), DeviceOf(a));
  }
  at::Tensor wrapped = c10::scalar_to_tensor(number);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return kTensors(a, wrapped);
}

at::Tensor Gelu(const at::Tensor& x, c10::string_view approximate) {
  if (!IsPlainFloat(x)) return slow::gelu(x, approximate);
  return MakeTensor(Push("gelu", {Read(x)}, {{"approximate", GeluKind(approximate)}}), DeviceOf(x));
}

// ---- products

bool IsTurned(const at::Tensor& x) {
  return x.dim() == 2 && x.stride(0) == 1 && x.stride(1) == x.size(0);
}
Value ReadTurned(const at::Tensor& x) {
  const int64_t sizes[] = {x.size(1), x.size(0)}, strides[] = {x.size(0), 1};
  // The whole storage of another shape, such as a weight, needs no alias.
  Cell* const cell = CellOf(x);
  if (x.storage_offset() == 0 &&
      static_cast<size_t>(x.numel()) * x.element_size() == cell->nbytes()) {
    Value value = cell->value();
    if (value && value->dtype() == x.scalar_type() && value->sizes().equals(sizes)) return value;
  }
  return Read(Alias(x, sizes, strides, x.storage_offset()));
}
TensordOp* PrepareTransposing(const char* which) {
  const Attr attr(which, true);
  TensordOp* op = nullptr;
  TensordError* error = nullptr;
  Check(Api().prepare("matmul", &attr.attr, 1, &op, &error), error, "matmul");
  return op;
}
TensordOp* TransposeA() {
  static TensordOp* const made = PrepareTransposing("transpose_a");
  return made;
}
TensordOp* TransposeB() {
  static TensordOp* const made = PrepareTransposing("transpose_b");
  return made;
}

at::Tensor Mm(const at::Tensor& a, const at::Tensor& b) {
  const bool fits = IsOurs(a) && IsOurs(b) && at::isFloatingType(a.scalar_type()) &&
                    a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
                    a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && a.numel() > 0 &&
                    b.numel() > 0;
  const bool plain = fits && IsRowMajor(a);
  if (plain && b.is_contiguous())
    return MakeTensor(Push(server_op<"matmul">, {Read(a), Read(b)}), DeviceOf(a));
  // This is the gradient of a weight.
  if (fits && !plain && IsTurned(a) && b.is_contiguous()) {
    const Value left = ReadTurned(a), right = Read(b);
    return MakeTensor(Push(TransposeA(), "mm", {left, right}), DeviceOf(a));
  }
  if (plain && IsTurned(b)) {
    const Value left = Read(a), right = ReadTurned(b);
    return MakeTensor(Push(TransposeB(), "mm", {left, right}), DeviceOf(a));
  }
  CommonDevice("mm", {&a, &b});
  return slow::mm(a, b);
}
at::Tensor Bmm(const at::Tensor& a, const at::Tensor& b) {
  if (IsPlainFloat(a) && IsPlain(b) && a.scalar_type() == b.scalar_type() &&
      a.device() == b.device() && a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) &&
      a.size(2) == b.size(1) && a.numel() > 0 && b.numel() > 0) {
    return MakeTensor(Push(server_op<"matmul">, {Read(a), Read(b)}), DeviceOf(a));
  }
  CommonDevice("bmm", {&a, &b});
  return slow::bmm(a, b);
}
at::Tensor Addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const bool fits = IsPlainFloat(a) && IsPlain(self) && IsOurs(b) && self.dim() == 1 &&
                    a.dim() == 2 && b.dim() == 2 && a.scalar_type() == b.scalar_type() &&
                    a.scalar_type() == self.scalar_type() && a.device() == b.device() &&
                    a.device() == self.device() && a.size(1) == b.size(0) &&
                    self.size(0) == b.size(1) && a.numel() > 0 && b.numel() > 0 && alpha.equal(1) &&
                    beta.equal(1);
  if (fits && IsTurned(b)) {
    const Value x = Read(a), weight = ReadTurned(b), bias = Read(self);
    return MakeTensor(Push(server_op<"linear">, {x, weight, bias}), DeviceOf(a));
  }
  if (fits && b.is_contiguous()) {
    const Value product = Push(server_op<"matmul">, {Read(a), Read(b)});
    return MakeTensor(Push(server_op<"add">, {product, Read(self)}, 1), DeviceOf(a));
  }
  CommonDevice("addmm", {&self, &a, &b});
  return slow::addmm(self, a, b, beta, alpha);
}

// ---- reductions and softmax

at::Tensor Sum(const at::Tensor& x, at::OptionalIntArrayRef dims, bool keepdims,
               std::optional<at::ScalarType> dtype) {
  if (!IsPlainFloat(x) || dtype.has_value() || x.numel() == 0)
    return slow::sum(x, dims, keepdims, dtype);
  return MakeTensor(Reduce("sum", Read(x), Axes(dims, x.dim()), keepdims), DeviceOf(x));
}
at::Tensor SumAll(const at::Tensor& x, std::optional<at::ScalarType> dtype) {
  return Sum(x, at::IntArrayRef{}, false, dtype);
}
at::Tensor Mean(const at::Tensor& x, at::OptionalIntArrayRef dims, bool keepdims,
                std::optional<at::ScalarType> dtype) {
  if (!IsPlainFloat(x) || dtype.has_value() || x.numel() == 0)
    return slow::mean(x, dims, keepdims, dtype);
  return MakeTensor(Reduce("mean", Read(x), Axes(dims, x.dim()), keepdims), DeviceOf(x));
}

template <const char* const& kName, at::Tensor (*kSlow)(const at::Tensor&, int64_t, bool)>
at::Tensor Softmax(const at::Tensor& x, int64_t dim, bool half_to_float) {
  if (!IsPlainFloat(x) || half_to_float || x.dim() == 0 || x.numel() == 0 || dim < -x.dim() ||
      dim >= x.dim()) {
    return kSlow(x, dim, half_to_float);
  }
  return MakeTensor(Push(kName, {Read(x)}, {{"axis", dim}}), DeviceOf(x));
}
constexpr const char* kSoftmax = "softmax";
constexpr const char* kLogSoftmax = "log_softmax";

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("add.Tensor", AddTensors);
  m.impl("add_.Tensor", AddInPlace);
  m.impl("sub.Tensor", SubTensors);
  m.impl("sub_.Tensor", SubInPlace);
  m.impl("mul.Tensor", MulTensors);
  m.impl("mul_.Tensor", MulInPlace);
  m.impl("div.Tensor", DivTensors);
  m.impl("div_.Tensor", DivInPlace);
  m.impl("mul.Scalar", WithNumber<server_op<"mul">, MulTensors>);
  m.impl("div.Scalar", WithNumber<server_op<"div">, DivTensors>);
  m.impl("gelu", Gelu);
  m.impl("mm", Mm);
  m.impl("bmm", Bmm);
  m.impl("addmm", Addmm);
  m.impl("sum", SumAll);
  m.impl("sum.dim_IntList", Sum);
  m.impl("mean.dim", Mean);
  m.impl("_softmax", Softmax<kSoftmax, slow::_softmax>);
  m.impl("_log_softmax", Softmax<kLogSoftmax, slow::_log_softmax>);
}

}  // namespace torch_tensord
