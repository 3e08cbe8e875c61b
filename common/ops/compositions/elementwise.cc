// Elementwise ops of few steps. They are computed in float32 if the promoted dtype of the inputs
// has 16 bits and they round more than once, and are then rounded once.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

template <Value (*kFunction)(const Value&)>
void OfOne(Formula& f) {
  f.Return(kFunction(f.input(0)));
}
template <Value (*kFunction)(const Value&, const Value&)>
void OfTwo(Formula& f) {
  f.Return(kFunction(f.input(0), f.input(1)));
}

Value False(const Value& x) { return Ne(x, x); }  // if x isn't floating

Value SquareOf(const Value& x) { return x * x; }
Value ReciprocalOf(const Value& x) { return 1 / x; }
Value FractionOf(const Value& x) { return x - Trunc(x); }
Value PowerOfTwo(const Value& x) {
  const DType dtype = FloatingDType(x.dtype());
  return Pow(2, x.To(WideDType(dtype))).To(dtype);
}
Value SignOrZero(const Value& x) {
  if (IsBool(x.dtype())) return x;
  if (!IsFloating(x.dtype())) return Sign(x);
  return Where(Ne(x, x), 0, Sign(x));
}
Value SignBit(const Value& x) { return IsFloating(x.dtype()) ? Lt(Copysign(1, x), 0) : Lt(x, 0); }
Value IsNan(const Value& x) { return Ne(x, x); }
Value IsInfinite(const Value& x) {
  return IsFloating(x.dtype()) ? Eq(Abs(x), kInfinity) : False(x);
}
Value IsFinite(const Value& x) { return IsFloating(x.dtype()) ? Lt(Abs(x), kInfinity) : Eq(x, x); }
Value IsPositiveInfinity(const Value& x) {
  return IsFloating(x.dtype()) ? Eq(x, kInfinity) : False(x);
}
Value IsNegativeInfinity(const Value& x) {
  return IsFloating(x.dtype()) ? Eq(x, -kInfinity) : False(x);
}

Value Truth(const Value& x) { return IsBool(x.dtype()) ? x : Ne(x, 0); }
Value Not(const Value& x) { return Eq(x, 0); }
Value And(const Value& a, const Value& b) { return BitwiseAnd(Truth(a), Truth(b)); }
Value Or(const Value& a, const Value& b) { return BitwiseOr(Truth(a), Truth(b)); }
Value Xor(const Value& a, const Value& b) { return BitwiseXor(Truth(a), Truth(b)); }

// Integers wrap around, signed or not.
void BitwiseNot(Formula& f) {
  const Value x = f.input(0);
  if (IsFloating(x.dtype()))
    return f.Fail("needs integers or bool; cast first, for example to int64");
  f.Return(IsBool(x.dtype()) ? Not(x) : -x - 1);
}

void NanToNum(Formula& f) {
  const Value x = f.input(0);
  if (!IsFloating(x.dtype())) return f.Return(x);
  const double largest = MaxFinite(x.dtype());
  const auto replacement = [&](const char* attr, double otherwise) {
    const double given = f.attrs().Float(attr);
    return given == given ? given : otherwise;
  };
  const Value without_nan = Where(Ne(x, x), f.attrs().Float("nan"), x);
  const Value below = Where(Eq(x, kInfinity), replacement("posinf", largest), without_nan);
  f.Return(Where(Eq(x, -kInfinity), replacement("neginf", -largest), below));
}

// Of numbers that aren't negative, the remainders of both kinds are the same, and exact.
Value Fmod(const Value& a, const Value& b) {
  if (IsFloating(PromotedDType({a, b}))) return Copysign(Remainder(Abs(a), Abs(b)), a);
  const Value rest = Remainder(a, b);
  const Value has_other_sign = BitwiseXor(Lt(rest, 0), Lt(a, 0));
  return Where(BitwiseAnd(Ne(rest, 0), has_other_sign), rest - b, rest);
}

// Of integers, rounds down, and then up where the quotient is negative and not exact.
Value TruncDivide(const Value& a, const Value& b) {
  const DType dtype = PromotedDType({a, b});
  if (IsFloating(dtype)) return Trunc(a / b);
  const Value floor = FloorDivide(a, b);
  return floor + BitwiseAnd(Ne(Remainder(a, b), 0), Lt(floor, 0)).To(dtype);
}

// Returns the extremum, or the other operand if one is NaN.
template <Value (*kExtremum)(const Value&, const Value&)>
Value IgnoringNan(const Value& a, const Value& b) {
  const Value extremum = kExtremum(a, b);
  if (!IsFloating(PromotedDType({a, b}))) return extremum;
  return Where(Ne(a, a), b, Where(Ne(b, b), a, extremum));
}

void Clamp(Formula& f) { f.Return(Minimum(Maximum(f.input(0), f.input(1)), f.input(2))); }

// Computes from the nearer end, so that the weights 0 and 1 give the ends.
void Lerp(Formula& f) {
  f.RequireFloating();
  absl::InlinedVector<Value, 3> elements = {f.input(0), f.input(1)};
  Value weight = f.input(2);
  if (weight.shape().rank() > 0) elements.push_back(weight);
  const DType dtype = PromotedDType(elements), wide = WideDType(dtype);
  const Value a = f.input(0).To(wide), b = f.input(1).To(wide), difference = b - a;
  weight = weight.To(wide);
  const Value from_a = a + weight * difference, from_b = b - (1 - weight) * difference;
  f.Return(Where(Lt(Abs(weight), 0.5), from_a, from_b).To(dtype));
}

// Sums of a tensor and a scaled term. The last input is the factor, which is 1 if it is missing.
class ScaledSum {
 public:
  ScaledSum(Formula& f, int num_tensors) : f_(f), num_tensors_(num_tensors) {
    dtype_ = PromotedDType(f.inputs().first(num_tensors));
    wide_ = WideDType(dtype_);
    if (!HasFactor() || !IsFloating(Factor().dtype()) || IsFloating(dtype_)) return;
    f.Fail("the factor must be an integer, because the tensors have no floating dtype");
  }

  Value tensor(int i) const { return f_.input(i).To(wide_); }
  Value Scaled(const Value& x) const { return HasFactor() ? Factor().To(wide_) * x : x; }
  void Return(const Value& sum) const { f_.Return(sum.To(dtype_)); }

 private:
  bool HasFactor() const { return f_.num_inputs() > num_tensors_; }
  Value Factor() const { return f_.input(num_tensors_); }

  Formula& f_;
  const int num_tensors_;
  DType dtype_;
  DType wide_;
};

void AddScaled(Formula& f) {
  const ScaledSum sum(f, 2);
  sum.Return(sum.tensor(0) + sum.Scaled(sum.tensor(1)));
}

void Addcmul(Formula& f) {
  const ScaledSum sum(f, 3);
  sum.Return(sum.tensor(0) + sum.Scaled(sum.tensor(1)) * sum.tensor(2));
}

void Addcdiv(Formula& f) {
  f.RequireFloating();
  const ScaledSum sum(f, 3);
  sum.Return(sum.tensor(0) + sum.Scaled(sum.tensor(1)) / sum.tensor(2));
}

void DropoutBackward(Formula& f) {
  if (!IsFloating(f.input(0).dtype())) {
    return f.Fail("the gradient must be floating; cast to float32 first");
  }
  const double p = f.attrs().Float("p");
  if (!(p >= 0 && p <= 1)) {
    return f.Fail(absl::StrCat("the probability p is ", p, " and must be from 0 to 1"));
  }
  const Value gradient = f.input(0), wide = gradient.To(WideDType(gradient.dtype()));
  const Value scaled = (wide * (p == 1 ? 0 : 1 / (1 - p))).To(gradient.dtype());
  f.Return(Where(f.input(1), scaled, 0));
}

OpSchema WithNumbers(const char* name, const char* doc, void (*formula)(Formula&),
                     std::vector<std::string> input_names, NumberInputs numbers) {
  OpSchema schema = ElementwiseComposition(name, doc, formula, std::move(input_names));
  schema.numbers = numbers;
  return schema;
}

// The last input is a factor. If it is optional, it is 1 by default.
OpSchema WithFactor(const char* name, const char* doc, void (*formula)(Formula&),
                    std::vector<std::string> input_names, bool is_optional) {
  const int last = static_cast<int>(input_names.size()) - 1;
  OpSchema schema =
      WithNumbers(name, doc, formula, std::move(input_names), {.first = last, .is_factor = true});
  if (is_optional) --schema.min_inputs;
  return schema;
}

void AppendElementwise(std::vector<OpSchema>& ops) {
  const auto add = [&ops](const char* name, const char* doc, void (*formula)(Formula&)) {
    ops.push_back(ElementwiseComposition(name, doc, formula));
  };
  add("square", "x squared.", OfOne<SquareOf>);
  add("reciprocal", "1 / x; integers and bool are converted to float32.", OfOne<ReciprocalOf>);
  add("exp2", "2 to the x; integers and bool are converted to float32.", OfOne<PowerOfTwo>);
  add("frac", "x without its integer part: x - trunc(x).", OfOne<FractionOf>);
  add("sgn", "1, -1 or 0; NaN gives 0.", OfOne<SignOrZero>);
  add("signbit", "Whether the sign bit is set: true for -0, too.", OfOne<SignBit>);
  add("isnan", "Whether x is NaN, as bool.", OfOne<IsNan>);
  add("isinf", "Whether x is an infinity, as bool.", OfOne<IsInfinite>);
  add("isposinf", "Whether x is +inf, as bool.", OfOne<IsPositiveInfinity>);
  add("isneginf", "Whether x is -inf, as bool.", OfOne<IsNegativeInfinity>);
  add("isfinite", "Whether x is neither NaN nor an infinity, as bool.", OfOne<IsFinite>);
  add("logical_not", "Whether x is zero, as bool.", OfOne<Not>);
  add("bitwise_not", "x with every bit inverted; for bool, the opposite value.", BitwiseNot);
  ops.push_back(ElementwiseComposition(
      "nan_to_num", "x with numbers in place of NaN and the infinities.", NanToNum, {"x"},
      {OptionalAttr("nan", AttrType::kFloat, 0.0, "in place of NaN"),
       OptionalAttr("posinf", AttrType::kFloat, std::numeric_limits<double>::quiet_NaN(),
                    "in place of +inf; NaN: the largest finite number of the dtype"),
       OptionalAttr("neginf", AttrType::kFloat, std::numeric_limits<double>::quiet_NaN(),
                    "in place of -inf; NaN: the smallest finite number of the dtype")}));

  const auto add_pair = [&ops](const char* name, const char* doc, void (*formula)(Formula&)) {
    ops.push_back(WithNumbers(name, doc, formula, {"a", "b"}, {.first = 0}));
  };
  add_pair("logical_and", "a AND b, as bool. An operand counts as true unless it is zero.",
           OfTwo<And>);
  add_pair("logical_or", "a OR b, as bool. An operand counts as true unless it is zero.",
           OfTwo<Or>);
  add_pair("logical_xor", "Whether exactly one of a and b is true, as bool.", OfTwo<Xor>);
  add_pair("fmod", "The remainder of a / b, with the sign of a.", OfTwo<Fmod>);
  add_pair("trunc_divide", "a / b rounded toward zero.", OfTwo<TruncDivide>);
  add_pair("fmax", "The larger operand; if one is NaN, the other one.",
           OfTwo<IgnoringNan<Maximum>>);
  add_pair("fmin", "The smaller operand; if one is NaN, the other one.",
           OfTwo<IgnoringNan<Minimum>>);

  ops.push_back(WithNumbers(
      "clamp", "x, but at least min and at most max. If min exceeds max, max. NaN stays NaN.",
      Clamp, {"x", "min", "max"}, {.first = 1}));
  ops.push_back(WithFactor("lerp", "a + weight (b - a); exact for the weights 0 and 1.", Lerp,
                           {"a", "b", "weight"}, false));
  ops.push_back(ElementwiseComposition(
      "dropout_backward", "The gradient of x for dropout(x) with this mask.", DropoutBackward,
      {"gradient", "mask"}, {RequiredAttr("p", AttrType::kFloat, "the probability of dropping")}));
  ops.push_back(WithFactor("add_scaled", "x + alpha y.", AddScaled, {"x", "y", "alpha"}, false));
  ops.push_back(WithFactor("addcmul", "x + value a b; value is 1 by default.", Addcmul,
                           {"x", "a", "b", "value"}, true));
  ops.push_back(WithFactor("addcdiv", "x + value a / b; value is 1 by default.", Addcdiv,
                           {"x", "a", "b", "value"}, true));
}

}  // namespace
}  // namespace formula

void AppendElementwiseCompositions(std::vector<OpSchema>& ops) { formula::AppendElementwise(ops); }

}  // namespace tensord
