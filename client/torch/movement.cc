// Concatenation, order of elements, sequences, and triangles.
#include <ATen/core/IListRef.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

at::Tensor& CatOut(const at::ITensorListRef& tensors, int64_t dim, at::Tensor& out) {
  std::vector<Value> parts;
  c10::SmallVector<const at::Tensor*, 8> operands;
  for (const at::Tensor& each : tensors) operands.push_back(&each);
  const c10::DeviceIndex device = CommonDevice("cat", operands);
  int64_t rank = 1;
  bool all_empty = true;
  for (const at::Tensor* each : operands) {
    if (each->dim() == 1 && each->numel() == 0) continue;
    rank = each->dim();
    all_empty = false;
  }
  for (const at::Tensor* each : operands) {
    if (each->dim() == 1 && each->numel() == 0 && rank != 1) continue;  // PyTorch ignores these
    parts.push_back(ReadAs(*each, out.scalar_type(), device));
    if (!IsOurs(*each) || !parts.back()->sizes().equals(each->sizes())) {
      parts.back() = BroadcastTo(parts.back(), each->sizes());
    }
  }
  if (all_empty) {
    const int64_t none[] = {0};
    Resize(out, none);
    return out;
  }
  const Value made = Concat(parts, at::maybe_wrap_dim(dim, rank));
  if (out.sizes().equals(made->sizes())) return WriteOut(out, made);
  // If all operands have one memory format, a resized output has it, too.
  const at::MemoryFormat format = operands[0]->suggest_memory_format();
  Resize(out, made->sizes());
  if (std::all_of(operands.begin(), operands.end(),
                  [&](const at::Tensor* each) { return each->suggest_memory_format() == format; }))
    out.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return WriteOut(out, made);
}

c10::DimVector RowMajorStrides(at::IntArrayRef sizes) {
  c10::DimVector strides(sizes.size(), 1);
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * sizes[d + 1];
  return strides;
}

// Makes a tensor with this value and with the strides of an elementwise result of `like`.
at::Tensor MakeAs(const at::Tensor& like, const Value& value) {
  if (C10_LIKELY(IsRowMajor(like))) return MakeTensor(value, DeviceOf(like));
  const at::Tensor made = MakeLike(like);
  Write(made, value);
  return made;
}

at::Tensor Flip(const at::Tensor& self, at::IntArrayRef dims) {
  c10::DimVector strides = RowMajorStrides(self.sizes());
  int64_t offset = 0;
  for (const int64_t d : Axes(dims, self.dim())) {
    offset += (self.size(d) - 1) * strides[d];
    strides[d] = -strides[d];
  }
  if (self.numel() == 0) return MakeLike(self);
  return MakeAs(self, AsStrided(Read(self), self.sizes(), strides, offset));
}

at::Tensor Roll(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  const Value x = Read(self);
  if (self.numel() == 0) return MakeTensor(x, DeviceOf(self));
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  TORCH_CHECK(dims.size() == shifts.size() || (dims.empty() && shifts.size() == 1),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  c10::DimVector axes;
  for (const int64_t dim : dims) axes.push_back(at::maybe_wrap_dim(dim, self.dim(), false));
  return MakeInFormat(Push("roll", {x}, {{"shift", shifts}, {"axes", axes}}), DeviceOf(self),
                      dims.empty() ? at::MemoryFormat::Contiguous : self.suggest_memory_format());
}

at::Tensor PixelShuffle(const at::Tensor& self, int64_t factor) {
  return at::native::math_pixel_shuffle(self, factor).contiguous(self.suggest_memory_format());
}
at::Tensor PixelUnshuffle(const at::Tensor& self, int64_t factor) {
  return at::native::math_pixel_unshuffle(self, factor).contiguous(self.suggest_memory_format());
}

template <const char* const& kOp>
at::Tensor& TriangleOut(const at::Tensor& self, int64_t diagonal, at::Tensor& out) {
  return WriteOut(out, Push(kOp, {Read(self)}, {{"k", diagonal}}));
}
constexpr const char* kTril = "tril";
constexpr const char* kTriu = "triu";

// ---- sequences. `out` has the number of elements as its size, or is resized.

at::Tensor& ArangeOut(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                      at::Tensor& out) {
  const at::ScalarType dtype = out.scalar_type();
  const bool integers = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const int64_t size = dtype == at::kLong
                           ? at::native::compute_arange_size<int64_t>(start, end, step)
                           : at::native::compute_arange_size<double>(start, end, step);
  if (out.numel() != size) {
    if (out.numel() > 0) {
      TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ",
                 out.numel(), ", which does not match the computed number of elements ", size,
                 ". This may be a result of rounding. The out tensor will be resized to a tensor "
                 "of shape (",
                 size, ",).");
    }
    out.resize_({size});
  }
  if (size == 0) return out;
  Value made = Arange(DeviceOf(out), size);
  if (integers) {
    if (!step.equal(1)) made = Mul(made, step);
    if (!start.equal(0)) made = Add(made, start);
  } else {
    made = Cast(made, at::kDouble);
    if (at::isIntegralType(dtype, true)) {
      made = Add(Mul(made, at::Scalar(step.toLong())), at::Scalar(start.toLong()));
    } else {
      made = Add(Mul(made, step), start);
    }
  }
  Write(out, Reshape(made, out.sizes()));
  return out;
}
at::Tensor& LinspaceOut(const at::Scalar& start, const at::Scalar& end, int64_t steps,
                        at::Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) Resize(out, {steps});
  if (steps == 0) return out;
  for (const at::Scalar& end_of_range : {start, end}) Checked(end_of_range, out.scalar_type());
  const Attr attrs[] = {
      {"start", start}, {"stop", end}, {"count", steps}, {"dtype", out.scalar_type()}};
  Write(out, Reshape(Create("linspace", DeviceOf(out), attrs), out.sizes()));
  return out;
}
at::Tensor& EyeOut(int64_t rows, int64_t columns, at::Tensor& out) {
  TORCH_CHECK(rows >= 0 && columns >= 0, "n and m must be greater or equal to 0");
  return WriteOut(out, Create("eye", DeviceOf(out),
                              {{"rows", rows}, {"cols", columns}, {"dtype", out.scalar_type()}}));
}
at::Tensor& EyeSquareOut(int64_t rows, at::Tensor& out) { return EyeOut(rows, rows, out); }

bool Equal(const at::Tensor& a, const at::Tensor& b) {
  CommonDevice("equal", {&a, &b});
  if (!a.sizes().equals(b.sizes())) return false;
  if (a.numel() == 0) return true;
  const at::ScalarType dtype = ResultType({&a, &b});
  const c10::DeviceIndex device = DeviceOf(a);
  const Value differ = Push(server_op<"ne">, {ReadAs(a, dtype, device), ReadAs(b, dtype, device)});
  return Fetch(Reduce("count_nonzero", differ, {}, false)).toLong() == 0;
}

// Returns each index, repeated by its count. Waits for the sum of the counts.
at::Tensor RepeatInterleave(const at::Tensor& given, std::optional<int64_t> output_size) {
  const at::Tensor repeats = given.resolve_neg();  // PyTorch doesn't resolve it for this op
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK_NOT_IMPLEMENTED(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
      "repeat_interleave: repeats must have the dtype int32 or int64, but got ",
      repeats.scalar_type());
  const c10::DeviceIndex device = DeviceOf(repeats);
  if (repeats.numel() == 0) return MakeContiguous({0}, repeats.scalar_type(), device);
  const Value ends = Push("cumsum", {Cast(Read(repeats), at::kLong)}, {{"axis", 0}});
  const Value valid = AllAtLeast(Read(repeats), 0);
  int64_t size = output_size.value_or(0);
  if (!output_size.has_value()) {
    const Value last = Reshape(Narrow(ends, 0, repeats.numel() - 1, repeats.numel()), {});
    size = Fetch(Where(valid, last, In(-1, at::kLong))).toLong();
    TORCH_CHECK(size >= 0, "repeat_interleave: repeats can not be negative");
  }
  Value places = Push("searchsorted", {ends, Arange(device, size)}, {{"right", true}});
  if (output_size.has_value()) places = Require(places, {{valid, Rule::kNegativeRepeats}});
  return MakeTensor(Cast(places, repeats.scalar_type()), device);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("cat.out", CatOut);
  m.impl("flip", Flip);
  m.impl("roll", Roll);
  m.impl("pixel_shuffle", PixelShuffle);
  m.impl("pixel_unshuffle", PixelUnshuffle);
  m.impl("tril.out", TriangleOut<kTril>);
  m.impl("triu.out", TriangleOut<kTriu>);
  m.impl("arange.start_out", ArangeOut);
  m.impl("linspace.out", LinspaceOut);
  m.impl("eye.m_out", EyeOut);
  m.impl("eye.out", EyeSquareOut);
  m.impl("equal", Equal);
  m.impl("repeat_interleave.Tensor", RepeatInterleave);
}

}  // namespace torch_tensord
