// Ops that few programs call. Each function sends one or several ops of the server.
#include <cmath>
#include <limits>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

// ---- sums

at::Tensor Trace(const at::Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  const int64_t sizes[] = {std::min(self.size(0), self.size(1))},
                strides[] = {self.stride(0) + self.stride(1)};
  const Value diagonal = Read(Alias(self, sizes, strides, self.storage_offset()));
  return MakeTensor(Reduce("sum", diagonal, {0}, false), DeviceOf(self));
}
Value NanSum(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdims,
             std::optional<at::ScalarType> dtype) {
  Value x = Read(self);
  if (at::isFloatingType(x->dtype())) x = Where(Push(server_op<"ne">, {x, x}), Number(0, x), x);
  if (dtype.has_value()) x = Cast(x, *dtype);
  x = Reduce("sum", x, Axes(dims, self.dim()), keepdims);
  return dtype.has_value() ? Cast(x, *dtype) : x;
}
at::Tensor NanSumOf(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdims,
                    std::optional<at::ScalarType> dtype) {
  return MakeTensor(NanSum(self, dims, keepdims, dtype), DeviceOf(self));
}
at::Tensor& NanSumOut(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdims,
                      std::optional<at::ScalarType>, at::Tensor& out) {
  return WriteOut(out, NanSum(self, dims, keepdims, out.scalar_type()));
}

Value LogSumExp(const at::Tensor& self, at::IntArrayRef dims, bool keepdims) {
  const Value x = Cast(Read(self), FloatDType(self.scalar_type()));
  return Reduce("logsumexp", x, Axes(dims, self.dim()), keepdims);
}
at::Tensor LogSumExpOf(const at::Tensor& self, at::IntArrayRef dims, bool keepdims) {
  return MakeTensor(LogSumExp(self, dims, keepdims), DeviceOf(self));
}
at::Tensor& LogSumExpOut(const at::Tensor& self, at::IntArrayRef dims, bool keepdims,
                         at::Tensor& out) {
  TORCH_CHECK(
      at::isFloatingType(out.scalar_type()),
      "logsumexp(): Expected floating point type for result tensor, but got: ", out.scalar_type());
  return WriteOut(out, LogSumExp(self, dims, keepdims));
}

// ---- two operands

at::Tensor& Logaddexp2Out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const at::ScalarType dtype = ComputeDType(ResultType({&a, &b}));
  ResizeBroadcast(out, a, b);
  constexpr double kLn2 = 0.69314718055994530942;
  const c10::DeviceIndex device = CommonDevice("logaddexp2", {&a, &b});
  const Value x = Mul(ReadAs(a, dtype, device), at::Scalar(kLn2)),
              y = Mul(ReadAs(b, dtype, device), at::Scalar(kLn2));
  Write(out, Div(Push(server_op<"logaddexp">, {x, y}), at::Scalar(kLn2)));
  return out;
}
at::Tensor& HeavisideOut(const at::Tensor& self, const at::Tensor& values, at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "heaviside is not yet implemented for tensors with different dtypes.");
  ResizeBroadcast(out, self, values);
  const c10::DeviceIndex device = CommonDevice("heaviside", {&self, &values});
  const at::ScalarType dtype = ResultType({&self, &values});
  const Value x = ReadAs(self, dtype, device), at_zero = ReadAs(values, dtype, device);
  const Value step = Cast(Push(server_op<"gt">, {x, Number(0, x)}), dtype);
  Write(out, Where(Push(server_op<"eq">, {x, Number(0, x)}), at_zero, step));
  return out;
}
at::Tensor& RoundDecimalsOut(const at::Tensor& self, int64_t decimals, at::Tensor& out) {
  Resize(out, self.sizes());
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  Elementwise("round", out, {&self}, ComputeDType(self.scalar_type()), [&](const Inputs& in) {
    const Value x = Own(in[0]);
    if (decimals >= 0)
      return Div(Push(server_op<"round">, {Mul(x, at::Scalar(scale))}), at::Scalar(scale));
    return Mul(Push(server_op<"round">, {Div(x, at::Scalar(scale))}), at::Scalar(scale));
  });
  return out;
}
at::Tensor RsubTensor(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return other.sub(self, alpha);
}

// ---- scatter with a reduction

// Returns the number that changes nothing in a reduction.
at::Scalar NeutralOf(c10::string_view reduce, at::ScalarType dtype) {
  if (reduce == "sum" || reduce == "mean") return 0;
  if (reduce == "prod") return 1;
  const bool max = reduce == "amax";
  if (at::isFloatingType(dtype)) return max ? -INFINITY : INFINITY;
  switch (dtype) {
    case at::kByte:
      return max ? 0 : 255;
    case at::kChar:
      return max ? -128 : 127;
    case at::kShort:
      return max ? -32768 : 32767;
    case at::kInt:
      return max ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
    default:
      return max ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
}
constexpr Origin kScatterReduce{"scatter", "scatter_reduce", "the index"};
at::Tensor& ScatterReduceOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             const at::Tensor& source, c10::string_view reduce, bool include_self,
                             at::Tensor& out) {
  CommonDevice("scatter_reduce", {&self, &index, &source});
  if (self.scalar_type() == at::kBool && source.scalar_type() == at::kBool) {
    return CopyToOut(out, at::scatter_reduce(self.to(at::kInt), dim, index, source.to(at::kInt),
                                             reduce, include_self));
  }
  if (index.numel() == 0) return WriteOut(out, Read(self));
  if (self.dim() == 0) {
    const at::Tensor sums = at::scatter_reduce(self.unsqueeze(0), 0, index.reshape({-1}),
                                               source.reshape({-1}), reduce, include_self);
    return WriteOut(out, Read(sums.squeeze(0)));
  }
  const at::Tensor base =
      include_self ? self : self.scatter(dim, index, NeutralOf(reduce, self.scalar_type()));
  const char* const name = reduce == "sum" || reduce == "mean" ? "add"
                           : reduce == "prod"                  ? "mul"
                           : reduce == "amax"                  ? "max"
                                                               : "min";
  Value made =
      Push("scatter", {Read(base), Read(index), Read(source)},
           {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"reduce", name}, {"from_end", false}});
  made = Named(kScatterReduce, DeviceOf(self), std::move(made));
  if (reduce == "mean") {
    const at::Tensor one = at::ones(index.sizes(), index.options());
    const at::Tensor counts = (include_self ? at::ones(self.sizes(), index.options())
                                            : at::zeros(self.sizes(), index.options()))
                                  .scatter_add(dim, index, one)
                                  .clamp_min(1);
    const Value divisor = Cast(Read(counts), self.scalar_type());
    made = at::isFloatingType(self.scalar_type())
               ? Div(made, divisor)
               : Push(server_op<"floor_divide">, {made, divisor});
  }
  return WriteOut(out, made);
}

// ---- the gradient of unfold: adds each window to its elements

at::Tensor UnfoldBackward(const at::Tensor& gradient, at::IntArrayRef sizes, int64_t dim,
                          int64_t size, int64_t step) {
  const c10::DeviceIndex device = DeviceOf(gradient);
  const int64_t axis = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const int64_t windows = gradient.size(axis);
  const Value g = Read(gradient);
  if (sizes.empty()) return MakeTensor(Reduce("sum", g, {}, false), device);
  Value sum = Zeros(device, sizes, gradient.scalar_type());
  const Value starts = Mul(Arange(device, windows), at::Scalar(step));
  const int64_t last = gradient.dim() - 1;
  for (int64_t i = 0; i < size; ++i) {
    const Value part =
        Reshape(Narrow(g, last, i, i + 1), gradient.sizes().slice(0, static_cast<size_t>(last)));
    sum = Push("index_put", {sum, Add(starts, at::Scalar(i)), part},
               {{"axis", axis}, {"reduce", "add"}}, 1);
  }
  return MakeTensor(sum, device);
}

// ---- the gradient scaler of mixed precision. Nothing waits.

void CheckAndUnscale(at::TensorList gradients, at::Tensor& found_inf,
                     const at::Tensor& inverse_scale) {
  for (const at::Tensor& each : gradients) {
    CommonDevice("_amp_foreach_non_finite_check_and_unscale_", {&each, &found_inf, &inverse_scale});
    if (each.numel() == 0) continue;
    const Value g = Read(each), found = Reshape(Read(found_inf), {}),
                inverse = Reshape(Read(inverse_scale), {});
    const std::vector<Value> made = PushAll("amp_unscale", {In(g), In(found), In(inverse)}, {});
    Write(each, made[0]);
    Write(found_inf, Reshape(made[1], found_inf.sizes()));
  }
}
at::Tensor& UpdateScale(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf,
                        double growth, double backoff, int64_t interval) {
  const Value old = Reshape(Read(scale), {}), tracker = Reshape(Read(growth_tracker), {}),
              found = Reshape(Read(found_inf), {});
  const std::vector<Value> made =
      PushAll("amp_update_scale", {In(old), In(tracker), In(found)},
              {{"growth", growth}, {"backoff", backoff}, {"interval", interval}});
  Write(scale, Reshape(made[0], scale.sizes()));
  Write(growth_tracker, Reshape(made[1], growth_tracker.sizes()));
  return scale;
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("trace", Trace);
  m.impl("nansum", NanSumOf);
  m.impl("nansum.out", NanSumOut);
  m.impl("logsumexp", LogSumExpOf);
  m.impl("logsumexp.out", LogSumExpOut);
  m.impl("logaddexp2.out", Logaddexp2Out);
  m.impl("heaviside.out", HeavisideOut);
  m.impl("round.decimals_out", RoundDecimalsOut);
  m.impl("rsub.Tensor", RsubTensor);
  m.impl("scatter_reduce.two_out", ScatterReduceOut);
  m.impl("unfold_backward", UnfoldBackward);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", CheckAndUnscale);
  m.impl("_amp_update_scale_", UpdateScale);
}

}  // namespace torch_tensord
