// Ops on lists of tensors, which optimizers call: one command for each step of a tensor, without
// PyTorch's dispatcher. If a tensor is a view, or has another dtype than float32 and float64,
// PyTorch's composition computes all. So it does if the tensors at one place of the lists differ in
// dtype, shape or device.
#include <ATen/ops/_foreach_add_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcdiv_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcmul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_div_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lerp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_maximum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_mul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_neg_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_reciprocal_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sub_compositeexplicitautograd_dispatch.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

namespace composed = at::compositeexplicitautograd;
using at::TensorList;
using Scalars = at::ArrayRef<at::Scalar>;

// Returns whether an op can replace the value of `x`, or read it, as it is. 16-bit dtypes aren't
// taken: the kernels of single tensors compute them in float32.
bool IsPlainWhole(const at::Tensor& x, const at::Tensor& like) {
  return IsOurs(x) && IsWhole(x) && x.device() == like.device() &&
         x.scalar_type() == like.scalar_type() && x.sizes().equals(like.sizes()) &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}
bool ArePlain(TensorList self, std::initializer_list<TensorList> others = {}) {
  for (const TensorList& other : others) {
    if (other.size() != self.size()) return false;
  }
  for (size_t i = 0; i < self.size(); ++i) {
    if (!IsPlainWhole(self[i], self[i])) return false;
    for (const TensorList& other : others) {
      if (!IsPlainWhole(other[i], self[i])) return false;
    }
  }
  return true;
}

// Replaces the value of a tensor by function(old, donated), which returns a value of the tensor's
// dtype and shape. `donated` is 1 if the server may overwrite the old value.
template <typename Function>
void Update(const at::Tensor& tensor, Function function) {
  if (tensor.numel() == 0) return;
  {
    TakenValue taken(CellOf(tensor));
    const Value& old = taken.get();
    if (C10_LIKELY(old && old->dtype() == tensor.scalar_type() &&
                   old->sizes().equals(tensor.sizes()))) {
      return taken.Set(function(old, taken.donated()));
    }
  }
  Write(tensor, function(Read(tensor), 0));
}

// Return the second operand of tensor i: one number for all tensors, or one for each.
In Second(const at::Scalar& number, size_t, const Value& like) { return Number(number, like); }
In Second(Scalars numbers, size_t i, const Value& like) { return Number(numbers[i], like); }

template <ServerOp& kOp, typename Numbers>
void NumberInPlace(TensorList self, const Numbers& numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(kOp, {x, Second(numbers, i, x)}, donated);
    });
  }
}
template <ServerOp& kOp>
void ListInPlace(TensorList self, TensorList other, const at::Scalar& alpha) {
  const bool scales = !alpha.equal(1);
  for (size_t i = 0; i < self.size(); ++i) {
    Value y = Read(other[i]);
    if (scales) y = Mul(y, alpha);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(kOp, {x, y}, donated | (scales ? 2u : 0u));
    });
  }
}
template <ServerOp& kOp>
void UnaryInPlace(TensorList self) {
  for (const at::Tensor& each : self) {
    Update(each, [](const Value& x, uint32_t donated) { return Push(kOp, {x}, donated); });
  }
}
template <typename Function>
std::vector<at::Tensor> Results(TensorList self, Function function) {
  std::vector<at::Tensor> results;
  results.reserve(self.size());
  for (size_t i = 0; i < self.size(); ++i)
    results.push_back(MakeTensor(function(Read(self[i]), i), DeviceOf(self[i])));
  return results;
}

// ---- in place

#define TENSORD_FOREACH_NUMBERS(Name, name)                                 \
  void Name##Number(TensorList self, const at::Scalar& number) {            \
    if (!ArePlain(self)) return composed::_foreach_##name##_(self, number); \
    NumberInPlace<op::name>(self, number);                                  \
  }                                                                         \
  void Name##Numbers(TensorList self, Scalars numbers) {                    \
    if (!ArePlain(self) || numbers.size() != self.size())                   \
      return composed::_foreach_##name##_(self, numbers);                   \
    NumberInPlace<op::name>(self, numbers);                                 \
  }
TENSORD_FOREACH_NUMBERS(Add, add)
TENSORD_FOREACH_NUMBERS(Sub, sub)
TENSORD_FOREACH_NUMBERS(Mul, mul)
TENSORD_FOREACH_NUMBERS(Div, div)
#undef TENSORD_FOREACH_NUMBERS

void AddList(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_add_(self, other, alpha);
  ListInPlace<op::add>(self, other, alpha);
}
void SubList(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_sub_(self, other, alpha);
  ListInPlace<op::sub>(self, other, alpha);
}
#define TENSORD_FOREACH_LIST(Name, name)                                            \
  void Name##List(TensorList self, TensorList other) {                              \
    if (!ArePlain(self, {other})) return composed::_foreach_##name##_(self, other); \
    ListInPlace<op::name>(self, other, 1);                                          \
  }
TENSORD_FOREACH_LIST(Mul, mul)
TENSORD_FOREACH_LIST(Div, div)
TENSORD_FOREACH_LIST(Maximum, maximum)
#undef TENSORD_FOREACH_LIST

#define TENSORD_FOREACH_UNARY(Name, name)                                             \
  void Name##InPlace(TensorList self) {                                               \
    if (!ArePlain(self)) return composed::_foreach_##name##_(self);                   \
    UnaryInPlace<op::name>(self);                                                     \
  }                                                                                   \
  std::vector<at::Tensor> Name##Of(TensorList self) {                                 \
    if (!ArePlain(self)) return composed::_foreach_##name(self);                      \
    return Results(self, [](const Value& x, size_t) { return Push(op::name, {x}); }); \
  }
TENSORD_FOREACH_UNARY(Sqrt, sqrt)
TENSORD_FOREACH_UNARY(Neg, neg)
#undef TENSORD_FOREACH_UNARY

// Multiplies all tensors by one factor, as clip_grad_norm_ does.
void MulTensor(TensorList self, const at::Tensor& factor) {
  bool plain = !self.empty() && factor.dim() == 0 && ArePlain(self);
  for (const at::Tensor& each : self) {
    plain = plain && (IsNumber(factor) || (factor.device() == each.device() &&
                                           factor.scalar_type() == each.scalar_type()));
  }
  if (!plain) return composed::_foreach_mul_(self, factor);
  const Value shared = IsOurs(factor) ? Read(factor) : Value();
  for (const at::Tensor& each : self) {
    Update(each, [&](const Value& x, uint32_t donated) {
      return Push(op::mul, {x, shared ? In(shared) : NumberOf(factor, x->dtype())}, donated);
    });
  }
}

void LerpNumber(TensorList self, TensorList ends, const at::Scalar& weight) {
  const double w = weight.toDouble();
  // From a weight of 1/2 on, PyTorch computes from the end.
  if (!ArePlain(self, {ends}) || !(std::abs(w) < 0.5))
    return composed::_foreach_lerp_(self, ends, weight);
  for (size_t i = 0; i < self.size(); ++i) {
    const Value end = Read(ends[i]);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      const Value step = Mul(Sub(end, x), weight);
      return Push(op::add, {x, step}, donated | 2u);
    });
  }
}

// Computes x + (number·a)·b, or x + (number·a)/b.
template <ServerOp& kOp, typename Numbers>
void AddCombined(TensorList self, TensorList a, TensorList b, const Numbers& numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    Value left = Read(a[i]);
    const Value right = Read(b[i]);
    left = Push(op::mul, {left, Second(numbers, i, left)});
    const Value term = Push(kOp, {left, right}, 1u);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(op::add, {x, term}, donated | 2u);
    });
  }
}
#define TENSORD_FOREACH_COMBINED(Name, name, op)                                             \
  void Name##Number(TensorList self, TensorList a, TensorList b, const at::Scalar& number) { \
    if (!ArePlain(self, {a, b})) return composed::_foreach_##name##_(self, a, b, number);    \
    AddCombined<op>(self, a, b, number);                                                     \
  }                                                                                          \
  void Name##Numbers(TensorList self, TensorList a, TensorList b, Scalars numbers) {         \
    if (!ArePlain(self, {a, b}) || numbers.size() != self.size())                            \
      return composed::_foreach_##name##_(self, a, b, numbers);                              \
    AddCombined<op>(self, a, b, numbers);                                                    \
  }
TENSORD_FOREACH_COMBINED(Addcmul, addcmul, op::mul)
TENSORD_FOREACH_COMBINED(Addcdiv, addcdiv, op::div)
#undef TENSORD_FOREACH_COMBINED

// ---- new tensors

std::vector<at::Tensor> AddListOf(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_add(self, other, alpha);
  const bool scales = !alpha.equal(1);
  return Results(self, [&](const Value& x, size_t i) {
    const Value y = Read(other[i]);
    return scales ? Push(op::add, {x, Mul(y, alpha)}, 2u) : Add(x, y);
  });
}
std::vector<at::Tensor> MulNumberOf(TensorList self, const at::Scalar& number) {
  if (!ArePlain(self)) return composed::_foreach_mul(self, number);
  return Results(self, [&](const Value& x, size_t) { return Mul(x, number); });
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_foreach_add_.Scalar", AddNumber);
  m.impl("_foreach_add_.ScalarList", AddNumbers);
  m.impl("_foreach_add_.List", AddList);
  m.impl("_foreach_sub_.Scalar", SubNumber);
  m.impl("_foreach_sub_.ScalarList", SubNumbers);
  m.impl("_foreach_sub_.List", SubList);
  m.impl("_foreach_mul_.Scalar", MulNumber);
  m.impl("_foreach_mul_.ScalarList", MulNumbers);
  m.impl("_foreach_mul_.List", MulList);
  m.impl("_foreach_mul_.Tensor", MulTensor);
  m.impl("_foreach_div_.Scalar", DivNumber);
  m.impl("_foreach_div_.ScalarList", DivNumbers);
  m.impl("_foreach_div_.List", DivList);
  m.impl("_foreach_maximum_.List", MaximumList);
  m.impl("_foreach_sqrt_", SqrtInPlace);
  m.impl("_foreach_sqrt", SqrtOf);
  m.impl("_foreach_neg_", NegInPlace);
  m.impl("_foreach_neg", NegOf);
  m.impl("_foreach_lerp_.Scalar", LerpNumber);
  m.impl("_foreach_addcmul_.Scalar", AddcmulNumber);
  m.impl("_foreach_addcmul_.ScalarList", AddcmulNumbers);
  m.impl("_foreach_addcdiv_.Scalar", AddcdivNumber);
  m.impl("_foreach_addcdiv_.ScalarList", AddcdivNumbers);
  m.impl("_foreach_add.List", AddListOf);
  m.impl("_foreach_mul.Scalar", MulNumberOf);
}

}  // namespace torch_tensord
