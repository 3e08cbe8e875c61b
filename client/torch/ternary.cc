// where, clamp, masked_fill, lerp, addcmul and addcdiv, and fills.
#include "kernels.h"

namespace torch_tensord {
namespace {

c10::DimVector BroadcastSizes(std::initializer_list<const at::Tensor*> operands) {
  c10::DimVector sizes;
  for (const at::Tensor* each : operands) sizes = at::infer_size_dimvector(sizes, each->sizes());
  return sizes;
}

at::Tensor& WhereOut(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b,
                     at::Tensor& out) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const c10::DeviceIndex device = CommonDevice("where", {&condition, &a, &b});
  const at::ScalarType dtype = ResultType({&a, &b});
  Resize(out, BroadcastSizes({&condition, &a, &b}));
  if (C10_UNLIKELY(!out.is_contiguous()) && SharesMemoryOrder(out, {&condition, &a, &b})) {
    const c10::DimVector order = MemoryOrder(out);
    const auto move = [&](const at::Tensor& x) {
      return x.dim() == 0 ? x : InMemoryOrder(x, order);
    };
    at::Tensor moved = InMemoryOrder(out, order);
    WhereOut(move(condition), move(a), move(b), moved);
    return out;
  }
  ReadInputs read;
  ReadAll(read, Operands({&a, &b}), dtype);
  const Value mask = ReadAs(condition, at::kBool, device);
  Write(out, Push(server_op<"where">, {mask, read.inputs[0], read.inputs[1]}));
  return out;
}
at::Tensor WhereSelf(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
  const c10::DeviceIndex device = CommonDevice("where", {&condition, &a, &b});
  at::Tensor out = MakeElementwise({&condition, &a, &b}, ResultType({&a, &b}), device);
  return WhereOut(condition, a, b, out);
}

Value Clamp(const In& x, const std::optional<In>& low, const std::optional<In>& high) {
  if (low.has_value() && high.has_value()) return Push(server_op<"clamp">, {x, *low, *high});
  if (low.has_value()) return Push(server_op<"maximum">, {x, *low});
  return high.has_value() ? Push(server_op<"minimum">, {x, *high}) : Own(x);
}

at::ScalarType ClampType(const at::Tensor& self, const at::OptionalScalarRef& low,
                         const at::OptionalScalarRef& high) {
  at::native::ResultTypeState state = {};
  state = at::native::update_result_type_state(self, state);
  if (low.has_value()) state = at::native::update_result_type_state(low.get(), state);
  if (high.has_value()) state = at::native::update_result_type_state(high.get(), state);
  return at::native::result_type(state);
}

// Returns a limit of clamp. If the limit is beyond the dtype's range, and so changes no element,
// returns nothing. If it is beyond the range on the other side, throws PyTorch's error.
std::optional<In> Limit(const at::Scalar& number, at::ScalarType dtype, bool is_least) {
  if (!at::isIntegralType(dtype, false)) return Checked(number, dtype);
  const In cast(number, dtype);
  const bool is_large = number.type() == at::kUInt64;  // exceeds int64
  const bool fits = dtype == at::kUInt64
                        ? is_large || number.toLong() >= 0
                        : !is_large && number.toLong() == cast.input.number.value.i;
  if (fits) return cast;
  const bool exceeds = is_large || number.toLong() > 0;
  TORCH_CHECK(exceeds != is_least, "Clamp ", is_least ? "min" : "max", " value ", number,
              " is outside the representable range of ", dtype);
  return std::nullopt;
}

at::Tensor& ClampOut(const at::Tensor& self, const std::optional<at::Scalar>& low,
                     const std::optional<at::Scalar>& high, at::Tensor& out) {
  at::OptionalScalarRef low_ref, high_ref;
  if (low.has_value()) low_ref = at::OptionalScalarRef(*low);
  if (high.has_value()) high_ref = at::OptionalScalarRef(*high);
  const at::ScalarType dtype = ClampType(self, low_ref, high_ref);
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool, "\"clamp\" not implemented for 'Bool'");
  std::optional<In> least, greatest;
  if (low.has_value()) least = Limit(*low, dtype, true);
  if (high.has_value()) greatest = Limit(*high, dtype, false);
  Resize(out, self.sizes());
  Elementwise("clamp", out, {&self}, dtype,
              [&](const Inputs& in) { return Clamp(in[0], least, greatest); });
  return out;
}
at::Tensor& ClampMinOut(const at::Tensor& self, const at::Scalar& low, at::Tensor& out) {
  return ClampOut(self, low, std::nullopt, out);
}
at::Tensor& ClampMaxOut(const at::Tensor& self, const at::Scalar& high, at::Tensor& out) {
  return ClampOut(self, std::nullopt, high, out);
}
at::Tensor& ClampTensorOut(const at::Tensor& self, const std::optional<at::Tensor>& low,
                           const std::optional<at::Tensor>& high, at::Tensor& out) {
  c10::SmallVector<const at::Tensor*, 3> operands = {&self};
  if (low.has_value()) operands.push_back(&*low);
  if (high.has_value()) operands.push_back(&*high);
  const c10::DeviceIndex device = CommonDevice("clamp", operands);
  at::native::ResultTypeState state = {};
  c10::DimVector sizes;
  for (const at::Tensor* each : operands) {
    state = at::native::update_result_type_state(*each, state);
    sizes = at::infer_size_dimvector(sizes, each->sizes());
  }
  const at::ScalarType dtype = at::native::result_type(state);
  // With one limit, clamp is maximum or minimum, which accept bool.
  TORCH_CHECK_NOT_IMPLEMENTED(!low.has_value() || !high.has_value() || dtype != at::kBool,
                              "\"clamp\" not implemented for 'Bool'");
  Resize(out, sizes);
  ReadInputs read;
  ReadAll(read, operands, dtype);
  std::optional<In> least, greatest;
  if (low.has_value()) least = read.inputs[1];
  if (high.has_value()) greatest = read.inputs.back();
  Write(out, Clamp(read.inputs[0], least, greatest));
  return out;
}
at::Tensor& ClampMinTensorOut(const at::Tensor& self, const at::Tensor& low, at::Tensor& out) {
  return ClampTensorOut(self, low, std::nullopt, out);
}
at::Tensor& ClampMaxTensorOut(const at::Tensor& self, const at::Tensor& high, at::Tensor& out) {
  return ClampTensorOut(self, std::nullopt, high, out);
}

// self + value * a (*or /) b
template <ServerOp& kOp>
at::Tensor& AddProductOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                          const at::Scalar& value, at::Tensor& out) {
  const at::ScalarType dtype = ResultType({&self, &a, &b});
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool, kOp.name(), " isn't implemented for bool");
  TORCH_CHECK(&kOp != &server_op<"addcdiv"> || !at::isIntegralType(a.scalar_type(), true) ||
                  !at::isIntegralType(b.scalar_type(), true),
              "Integer division with addcdiv is no longer supported: divide with torch.div and its "
              "rounding_mode, or cast an operand to a floating dtype");
  const In factor = Checked(value, ComputeDType(dtype));
  Resize(out, BroadcastSizes({&self, &a, &b}));
  return OpInto(kOp, out, {&self, &a, &b}, dtype, factor);
}

void CheckLerp(const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "lerp isn't implemented for ",
                              self.scalar_type());
}
at::Tensor& LerpOut(const at::Tensor& self, const at::Tensor& end, const at::Scalar& weight,
                    at::Tensor& out) {
  CheckLerp(self);
  const In number = Checked(weight, ComputeDType(self.scalar_type()));
  Resize(out, BroadcastSizes({&self, &end}));
  return OpInto(server_op<"lerp">, out, {&self, &end}, self.scalar_type(), number);
}
at::Tensor& LerpTensorOut(const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight,
                          at::Tensor& out) {
  CheckLerp(self);
  if (IsNumber(weight)) return LerpOut(self, end, weight.item(), out);
  Resize(out, BroadcastSizes({&self, &end, &weight}));
  return OpInto(server_op<"lerp">, out, {&self, &end, &weight}, self.scalar_type());
}

// Returns the mask for WithoutRepeats(self). If the mask of any element with the same place is
// true, the result is true.
at::Tensor MaskWithoutRepeats(const at::Tensor& self, const at::Tensor& mask) {
  at::Tensor any = mask.expand(self.sizes());
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.stride(d) == 0) any = any.any(d, true);
  }
  return any;
}

// Writes a number where the mask, which broadcasts to `self`, is true.
at::Tensor& WriteMasked(at::Tensor& self, const at::Tensor& mask, const In& number) {
  if (WarnIfExpanded("masked_fill_", self)) {
    const at::Tensor once = WithoutRepeats(self);
    Write(once, Where(Read(MaskWithoutRepeats(self, mask)), number, Read(once)));
    return self;
  }
  Write(self, Where(ReadForBroadcast(mask), number, Read(self)));
  return self;
}

at::Tensor& MaskedFillScalar(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got ",
              mask.scalar_type());
  CommonDevice("masked_fill_", {&self, &mask});
  const In number = Checked(value, self.scalar_type());
  at::infer_size_dimvector(self.sizes(), mask.sizes());
  at::assert_no_partial_overlap(self, mask);
  if (self.numel() == 0) return self;
  return WriteMasked(self, mask, number);
}
at::Tensor& MaskedFillTensor(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (IsNumber(value)) return MaskedFillScalar(self, mask, value.item());
  CommonDevice("masked_fill_", {&self, &mask, &value});
  at::assert_no_partial_overlap(self, mask);
  if (self.numel() == 0) return self;
  const Value number = Cast(Read(value), self.scalar_type());
  return WriteMasked(self, mask, number);
}

at::Tensor& FillNumber(at::Tensor& self, const In& value) {
  if (self.numel() == 0) return self;
  const c10::DeviceIndex device = self.device().index();
  if (CoversStorage(self)) {
    CellOf(self)->Set(
        Full(device, self.is_contiguous() ? self.sizes() : at::IntArrayRef({self.numel()}), value));
    return self;
  }
  // PyTorch also fills a tensor whose elements share memory.
  const at::Tensor once = WithoutRepeats(self);
  Write(once, Full(device, once.sizes(), value));
  return self;
}
at::Tensor& FillScalar(at::Tensor& self, const at::Scalar& value) {
  return FillNumber(self, Checked(value, self.scalar_type()));
}
at::Tensor& FillTensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (IsNumber(value)) return FillNumber(self, NumberOf(value, self.scalar_type()));
  CommonDevice("fill_", {&self, &value});
  Write(self, Read(value));
  return self;
}
at::Tensor& Zero(at::Tensor& self) { return FillNumber(self, In(0, self.scalar_type())); }

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("where.self", WhereSelf);
  m.impl("where.self_out", WhereOut);
  m.impl("clamp.out", ClampOut);
  m.impl("clamp_min.out", ClampMinOut);
  m.impl("clamp_max.out", ClampMaxOut);
  m.impl("clamp.Tensor_out", ClampTensorOut);
  m.impl("clamp_min.Tensor_out", ClampMinTensorOut);
  m.impl("clamp_max.Tensor_out", ClampMaxTensorOut);
  m.impl("addcmul.out", AddProductOut<server_op<"addcmul">>);
  m.impl("addcdiv.out", AddProductOut<server_op<"addcdiv">>);
  m.impl("lerp.Scalar_out", LerpOut);
  m.impl("lerp.Tensor_out", LerpTensorOut);
  m.impl("masked_fill_.Scalar", MaskedFillScalar);
  m.impl("masked_fill_.Tensor", MaskedFillTensor);
  m.impl("fill_.Scalar", FillScalar);
  m.impl("fill_.Tensor", FillTensor);
  m.impl("zero_", Zero);
}

}  // namespace torch_tensord
