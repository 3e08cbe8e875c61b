// Matrix products. A transposed operand is a flag of the product, not a copy.
#include "kernels.h"

namespace torch_tensord {
namespace {

// A matrix, or a batch of them, as the server takes it.
struct Matrix {
  Value value;
  bool transposed = false;
};

Matrix ReadMatrix(const at::Tensor& tensor) {
  if (tensor.dim() >= 2 && !tensor.is_contiguous()) {
    c10::DimVector sizes(tensor.sizes()), strides(tensor.strides());
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
    const at::Tensor turned = Alias(tensor, sizes, strides, tensor.storage_offset());
    if (turned.is_contiguous()) return {Read(turned), true};
  }
  return {Read(tensor), false};
}

Value Product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  Matrix left = ReadMatrix(a), right = ReadMatrix(b);
  left.value = Cast(left.value, dtype);
  right.value = Cast(right.value, dtype);
  return Matmul(left.value, right.value, left.transposed, right.transposed);
}

void CheckSame(const char* name, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name,
              ": expected m1 and m2 to have the same dtype, but got: ", a.scalar_type(),
              " != ", b.scalar_type());
}

// If the result has no elements, gives `out` its sizes, and returns true.
bool ResizeEmpty(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  c10::DimVector sizes(a.sizes().slice(0, a.dim() - 1));
  if (b.dim() > 1) sizes.push_back(b.size(-1));
  if (c10::multiply_integers(sizes) != 0) return false;
  Resize(out, sizes);
  return true;
}

template <const char* const& kName>
at::Tensor& ProductOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  CommonDevice(kName, {&a, &b});
  CheckSame(kName, a, b);
  if (ResizeEmpty(a, b, out)) return out;
  return WriteOut(out, Product(a, b, a.scalar_type()));
}
constexpr const char* kMm = "mm";
constexpr const char* kBmm = "bmm";

// beta * self + alpha * a b
Value AddProduct(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const at::ScalarType dtype = a.scalar_type();
  const bool plain = alpha.equal(1) && beta.equal(1);
  // x · weightᵀ + bias
  if (plain && at::isFloatingType(dtype) && self.dim() == 1 && self.scalar_type() == dtype &&
      a.dim() == 2) {
    const Matrix right = ReadMatrix(b);
    if (right.transposed && self.size(0) == b.size(1)) {
      return Push(server_op<"linear">, {Read(a), right.value, Read(self)});
    }
  }
  const at::ScalarType computed = plain ? dtype : ComputeDType(dtype);
  const In product_scale = Checked(alpha, computed), self_scale = Checked(beta, computed);
  Value product = Product(a, b, computed);
  if (!alpha.equal(1)) product = Push(server_op<"mul">, {product, product_scale});
  if (beta.equal(0)) return product;
  Value added = Cast(ReadForBroadcast(self), computed);
  if (!beta.equal(1)) added = Push(server_op<"mul">, {added, self_scale});
  return Add(product, added);
}

at::Tensor& AddmmOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                     const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  CommonDevice("addmm", {&self, &a, &b});
  CheckSame("addmm", a, b);
  if (ResizeEmpty(a, b, out)) return out;
  return WriteOut(out, AddProduct(self, a, b, beta, alpha));
}
at::Tensor& BaddbmmOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  CommonDevice("baddbmm", {&self, &a, &b});
  CheckSame("baddbmm", a, b);
  if (ResizeEmpty(a, b, out)) return out;
  return WriteOut(out, AddProduct(self, a, b, beta, alpha));
}
at::Tensor& AddmvOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                     const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  CommonDevice("addmv", {&self, &a, &b});
  if (ResizeEmpty(a, b, out)) return out;
  return WriteOut(out, AddProduct(self, a, b, beta, alpha));
}
at::Tensor Dot(const at::Tensor& a, const at::Tensor& b) {
  const c10::DeviceIndex device = CommonDevice("dot", {&a, &b});
  CheckSame("dot", a, b);
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ",
              b.dim(), "D tensors");
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(),
              "] and src [", b.numel(), "] to have the same number of elements");
  return MakeTensor(Push(server_op<"matmul">, {Read(a), Read(b)}), device);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("mm.out", ProductOut<kMm>);
  m.impl("bmm.out", ProductOut<kBmm>);
  m.impl("addmm.out", AddmmOut);
  m.impl("baddbmm.out", BaddbmmOut);
  m.impl("addmv.out", AddmvOut);
  m.impl("dot", Dot);
  m.impl("vdot", Dot);
}

}  // namespace torch_tensord
