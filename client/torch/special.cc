// erfc, polygamma, and ops that few programs call, which run several of PyTorch's ops.
#include <ATen/ScalarOps.h>

#include <cmath>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using at::Tensor;

// Computes in float64, because the server's float32 result has an error of up to 4 ulp.
Tensor& ErfcOut(const Tensor& self, Tensor& out) {
  const Value result = Push(server_op<"erfc">, {Cast(Read(self), at::kDouble)});
  return WriteOut(out, Cast(result, FloatDType(self.scalar_type())));
}
Tensor& PolyGammaOut(int64_t n, const Tensor& self, Tensor& out) {
  TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
  const at::ScalarType dtype = FloatDType(self.scalar_type());
  CheckResultCast(dtype, out);
  return WriteOut(out, Push("polygamma", {Cast(Read(self), dtype)}, {{"n", n}}));
}

Tensor AngleOf(const Tensor& self) {
  const at::ScalarType dtype = FloatDType(self.scalar_type());
  const Tensor x = self.to(dtype);
  const Tensor angle = at::where(x.lt(0), at::full_like(x, M_PI), at::zeros_like(x));
  return at::where(x.ne(x), x, angle);
}
Tensor& AngleOut(const Tensor& self, Tensor& out) { return CopyToOut(out, AngleOf(self)); }

// ---- products

// PyTorch's functions write a product to `self` without a check of the dtype.
constexpr double kDegrees = 180 / M_PI, kRadians = M_PI / 180;
template <const double& kFactor>
Tensor& ScaleInPlace(Tensor& self) {
  return self.mul_(at::native::wrapped_scalar_tensor(kFactor));
}
Tensor& LinalgCrossOut(const Tensor& self, const Tensor& other, int64_t dim, Tensor& out) {
  CommonDevice("linalg_cross", {&self, &other});
  const auto both = at::broadcast_tensors({self, other});
  const auto rolled = [&](int i, int64_t shift) { return at::roll(both[i], {shift}, {dim}); };
  return CopyToOut(out, rolled(0, -1).mul(rolled(1, -2)).sub(rolled(0, -2).mul(rolled(1, -1))));
}
Tensor AddBmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha) {
  CommonDevice("addbmm", {&self, &a, &b});
  const at::ScalarType dtype = a.scalar_type();
  // The result keeps the dtype of the operands, also that of integers.
  const auto scaled = [dtype](const Tensor& x, const at::Scalar& factor) {
    Checked(factor, ComputeDType(dtype));
    return x.mul(at::isIntegralType(dtype, true) ? at::Scalar(factor.toLong()) : factor);
  };
  const Tensor sum = scaled(at::bmm(a, b).sum(at::IntArrayRef{0}, false, dtype), alpha);
  // If beta is 0, PyTorch ignores NaN in `self`.
  return beta.toDouble() == 0 ? sum : sum.add(scaled(self, beta));
}
Tensor& AddBmmOut(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  return CopyToOut(out, AddBmm(self, a, b, beta, alpha));
}
Tensor& AddBmmInPlace(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  return self.copy_(AddBmm(self, a, b, beta, alpha));
}
// PyTorch's function resizes `self` to the result.
Tensor& AddrInPlace(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  TORCH_CHECK(self.dim() == 2, "2D tensor expected, got ", self.dim(), "D tensor for input");
  const Tensor made = at::addr(self, a, b, beta, alpha);
  TORCH_CHECK(made.sizes().equals(self.sizes()), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", made.sizes());
  CheckResultCast(made.scalar_type(), self);
  return self.copy_(made);
}

// ---- sequences

template <Tensor (*kFunction)(int64_t, int64_t, int64_t, at::TensorOptions)>
Tensor TriangleIndices(int64_t rows, int64_t columns, int64_t offset,
                       std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                       std::optional<at::Device> device, std::optional<bool>) {
  const at::TensorOptions options =
      at::TensorOptions().dtype(dtype.value_or(at::kLong)).device(at::kCPU);
  const Tensor host = kFunction(rows, columns, offset, options);
  return host.to(device.value_or(at::Device(at::kPrivateUse1)), host.scalar_type(), true);
}
Tensor LowerIndices(int64_t rows, int64_t columns, int64_t offset, at::TensorOptions options) {
  return at::tril_indices(rows, columns, offset, options);
}
Tensor UpperIndices(int64_t rows, int64_t columns, int64_t offset, at::TensorOptions options) {
  return at::triu_indices(rows, columns, offset, options);
}
// PyTorch's function needs a kernel of the device. The window is computed here and copied.
Tensor KaiserWindow(int64_t length, bool periodic, double beta, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device,
                    std::optional<bool>) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).layout(layout);
  const Tensor host = at::kaiser_window(length, periodic, beta, options.device(at::kCPU));
  return host.to(device.value_or(at::Device(at::kPrivateUse1)), host.scalar_type(), true);
}
constexpr double kKaiserBeta = 12;  // PyTorch's default
Tensor KaiserWindowOf(int64_t length, bool periodic, std::optional<at::ScalarType> dtype,
                      std::optional<at::Layout> layout, std::optional<at::Device> device,
                      std::optional<bool> pin) {
  return KaiserWindow(length, periodic, kKaiserBeta, dtype, layout, device, pin);
}
Tensor PeriodicKaiserWindow(int64_t length, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<at::Device> device,
                            std::optional<bool> pin) {
  return KaiserWindow(length, true, kKaiserBeta, dtype, layout, device, pin);
}
Tensor& LogspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
                    Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  for (const at::Scalar& each : {start, end}) Checked(each, out.scalar_type());
  const Tensor powers = at::linspace(start, end, steps, out.options().dtype(at::kDouble));
  if (out.numel() != steps) Resize(out, {steps});
  return out.copy_(at::pow(base, powers).view_as(out));
}

Tensor ChannelShuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2 && groups > 0 && self.size(1) % groups == 0,
              "channel_shuffle expects an input of more than 2 dims, and a number of channels that "
              "is a multiple of the groups");
  c10::DimVector sizes(self.sizes());
  sizes[1] = groups;
  sizes.insert(sizes.begin() + 2, self.size(1) / groups);
  return self.reshape(sizes)
      .transpose(1, 2)
      .reshape(self.sizes())
      .contiguous(self.suggest_memory_format());
}

// ---- integers

// Returns the maximum number of steps of Euclid's algorithm. Consecutive Fibonacci numbers need the
// most steps.
int EuclidSteps(at::ScalarType dtype) {
  switch (c10::elementSize(dtype)) {
    case 1:
      return 13;
    case 2:
      return 24;
    case 4:
      return 47;
    default:
      return 93;
  }
}
// Returns the absolute values of both operands in the dtype of the result.
std::pair<Tensor, Tensor> Magnitudes(const char* name, const Tensor& a, const Tensor& b,
                                     at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(dtype, false), name, " isn't implemented for ",
                              dtype);
  const at::Device device(at::kPrivateUse1, CommonDevice(name, {&a, &b}));
  const auto read = [&](const Tensor& x) {
    const Tensor own = x.to(device, dtype);
    return dtype == at::kByte ? own : own.abs();
  };
  const std::vector<Tensor> both = at::broadcast_tensors({read(a), read(b)});
  return {both[0], both[1]};
}
Tensor Gcd(Tensor a, Tensor b) {
  const int steps = EuclidSteps(a.scalar_type());
  for (int i = 0; i < steps; ++i) {
    const Tensor rest = a.remainder(b);  // it is 0 where b is 0
    a = at::where(b.eq(0), a, b);
    b = rest;
  }
  return a;
}
Tensor& GcdOut(const Tensor& self, const Tensor& other, Tensor& out) {
  const auto [a, b] = Magnitudes("gcd", self, other, at::result_type(self, other));
  return CopyToOut(out, Gcd(a, b));
}
Tensor& LcmOut(const Tensor& self, const Tensor& other, Tensor& out) {
  const auto [a, b] = Magnitudes("lcm", self, other, at::result_type(self, other));
  // If both are 0, so is the result.
  const Tensor multiple = a.floor_divide(Gcd(a, b).clamp_min(1)).mul(b);
  // If the multiple exceeds the dtype, it wraps and may be negative. As on the CPU, only dtypes of
  // more than 16 bits take its absolute value.
  const bool is_wide = c10::elementSize(a.scalar_type()) > 2;
  return CopyToOut(out, is_wide ? multiple.abs() : multiple);
}

// ---- scatter

constexpr Origin kPut{nullptr, "put_", "the index"};
constexpr Origin kIndexReduce{nullptr, "index_reduce", "the index"};

Tensor& Put(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  CommonDevice("put_", {&self, &index, &source});
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "put_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype");
  TORCH_CHECK_INDEX(index.numel() == source.numel(),
                    "put_(): Expected source and index to have the same number of elements, but "
                    "got source.numel() = ",
                    source.numel(), ", index.numel() = ", index.numel());
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  if (index.numel() == 0) return self;
  TORCH_CHECK_INDEX(self.numel() > 0, "put_(): tried to put elements into an empty tensor");
  const OriginScope scope(kPut);
  const Tensor line = self.reshape({-1}).clone();
  c10::List<std::optional<Tensor>> places;
  places.push_back(index.reshape({-1}));
  line.index_put_(places, source.reshape({-1}), accumulate);
  return self.copy_(line.view(self.sizes()));
}
Tensor& IndexReduceOut(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       c10::string_view reduce, bool include_self, Tensor& out) {
  CommonDevice("index_reduce", {&self, &index, &source});
  const OriginScope scope(kIndexReduce);
  if (index.numel() == 0 || self.numel() == 0) {
    return CopyToOut(out, self);
  }
  if (self.dim() == 0) {
    const Tensor one = self.unsqueeze(0);
    return CopyToOut(out, at::scatter_reduce(one, 0, index.reshape({-1}), source.reshape({-1}),
                                             reduce, include_self)
                              .squeeze(0));
  }
  c10::DimVector shape(self.dim(), 1);
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  shape[axis] = index.numel();
  const Tensor places = index.to(at::kLong).reshape(shape).expand(source.sizes());
  return CopyToOut(out, at::scatter_reduce(self, axis, places, source, reduce, include_self));
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("erfc.out", ErfcOut);
  m.impl("polygamma.out", PolyGammaOut);
  m.impl("gcd.out", GcdOut);
  m.impl("lcm.out", LcmOut);
  m.impl("angle", AngleOf);
  m.impl("angle.out", AngleOut);
  m.impl("linalg_cross.out", LinalgCrossOut);
  m.impl("addr_", AddrInPlace);
  m.impl("addbmm", AddBmm);
  m.impl("addbmm.out", AddBmmOut);
  m.impl("addbmm_", AddBmmInPlace);
  m.impl("tril_indices", TriangleIndices<LowerIndices>);
  m.impl("triu_indices", TriangleIndices<UpperIndices>);
  m.impl("kaiser_window", PeriodicKaiserWindow);
  m.impl("kaiser_window.periodic", KaiserWindowOf);
  m.impl("kaiser_window.beta", KaiserWindow);
  m.impl("logspace.out", LogspaceOut);
  m.impl("deg2rad_", ScaleInPlace<kRadians>);
  m.impl("rad2deg_", ScaleInPlace<kDegrees>);
  m.impl("channel_shuffle", ChannelShuffle);
  m.impl("put_", Put);
  m.impl("index_reduce.out", IndexReduceOut);
}

}  // namespace torch_tensord
