// Ops on lists of tensors, which optimizers call: one command for each tensor, without PyTorch's
// dispatcher. PyTorch's composition computes all tensors if one of them is a view or isn't
// floating, if the tensors at one place of the lists differ in dtype, shape or device, or if a
// 16-bit dtype can't represent an added number, a factor or a divisor.
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

#include <algorithm>

#include "kernels.h"

namespace torch_tensord {
namespace {

namespace composed = at::compositeexplicitautograd;
using at::TensorList;
using Scalars = at::ArrayRef<at::Scalar>;

// Returns whether an op can replace the value of `x`, or read it, as it is.
bool IsPlainWhole(const at::Tensor& x, const at::Tensor& like) {
  return IsOurs(x) && IsWhole(x) && x.device() == like.device() &&
         x.scalar_type() == like.scalar_type() && x.sizes().equals(like.sizes()) &&
         at::isFloatingType(x.scalar_type());
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

// Returns whether the dtypes of all tensors can represent the number. Otherwise the kernel of a
// single tensor, which computes 16 bits in float32, must run.
bool AreExact(TensorList self, const at::Scalar& number) {
  return std::all_of(self.begin(), self.end(), [&number](const at::Tensor& x) {
    const at::ScalarType dtype = x.scalar_type();
    return ComputeDType(dtype) == dtype || IsExact(In(number, at::kFloat), dtype);
  });
}
bool AreExact(TensorList self, Scalars numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    if (!AreExact(self.slice(i, 1), numbers[i])) return false;
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

// Return the number for tensor i: one for all tensors, or one for each.
const at::Scalar& NumberAt(const at::Scalar& number, size_t) { return number; }
const at::Scalar& NumberAt(Scalars numbers, size_t i) { return numbers[i]; }
// Returns a number by which an op multiplies. It isn't rounded to 16 bits.
In Factor(const at::Scalar& number, const Value& like) {
  return In(number, ComputeDType(like->dtype()));
}

template <ServerOp& kOp, typename Numbers>
void NumberInPlace(TensorList self, const Numbers& numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(kOp, {x, Number(NumberAt(numbers, i), x)}, donated);
    });
  }
}
template <ServerOp& kOp>
void ListInPlace(TensorList self, TensorList other) {
  for (size_t i = 0; i < self.size(); ++i) {
    const Value y = Read(other[i]);
    Update(self[i], [&](const Value& x, uint32_t donated) { return Push(kOp, {x, y}, donated); });
  }
}
void AddScaledInPlace(TensorList self, TensorList other, const at::Scalar& alpha) {
  for (size_t i = 0; i < self.size(); ++i) {
    const Value y = Read(other[i]);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(server_op<"add_scaled">, {x, y, Factor(alpha, x)}, donated);
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

#define TENSORD_FOREACH_NUMBERS(Name, name)                                           \
  void Name##Number(TensorList self, const at::Scalar& number) {                      \
    if (!ArePlain(self) || !AreExact(self, number))                                   \
      return composed::_foreach_##name##_(self, number);                              \
    NumberInPlace<server_op<#name>>(self, number);                                    \
  }                                                                                   \
  void Name##Numbers(TensorList self, Scalars numbers) {                              \
    if (!ArePlain(self) || numbers.size() != self.size() || !AreExact(self, numbers)) \
      return composed::_foreach_##name##_(self, numbers);                             \
    NumberInPlace<server_op<#name>>(self, numbers);                                   \
  }
TENSORD_FOREACH_NUMBERS(Add, add)
TENSORD_FOREACH_NUMBERS(Sub, sub)
TENSORD_FOREACH_NUMBERS(Mul, mul)
TENSORD_FOREACH_NUMBERS(Div, div)
#undef TENSORD_FOREACH_NUMBERS

void AddList(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_add_(self, other, alpha);
  if (alpha.equal(1)) return ListInPlace<server_op<"add">>(self, other);
  AddScaledInPlace(self, other, alpha);
}
void SubList(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_sub_(self, other, alpha);
  if (alpha.equal(1)) return ListInPlace<server_op<"sub">>(self, other);
  AddScaledInPlace(self, other, -alpha);
}
#define TENSORD_FOREACH_LIST(Name, name)                                            \
  void Name##List(TensorList self, TensorList other) {                              \
    if (!ArePlain(self, {other})) return composed::_foreach_##name##_(self, other); \
    ListInPlace<server_op<#name>>(self, other);                                     \
  }
TENSORD_FOREACH_LIST(Mul, mul)
TENSORD_FOREACH_LIST(Div, div)
TENSORD_FOREACH_LIST(Maximum, maximum)
#undef TENSORD_FOREACH_LIST

#define TENSORD_FOREACH_UNARY(Name, name)                                                     \
  void Name##InPlace(TensorList self) {                                                       \
    if (!ArePlain(self)) return composed::_foreach_##name##_(self);                           \
    UnaryInPlace<server_op<#name>>(self);                                                     \
  }                                                                                           \
  std::vector<at::Tensor> Name##Of(TensorList self) {                                         \
    if (!ArePlain(self)) return composed::_foreach_##name(self);                              \
    return Results(self, [](const Value& x, size_t) { return Push(server_op<#name>, {x}); }); \
  }
TENSORD_FOREACH_UNARY(Sqrt, sqrt)
TENSORD_FOREACH_UNARY(Neg, neg)
#undef TENSORD_FOREACH_UNARY

// Multiplies all tensors by one factor, as clip_grad_norm_ does.
void MulTensor(TensorList self, const at::Tensor& factor) {
  bool plain = !self.empty() && factor.dim() == 0 && ArePlain(self) &&
               (!IsNumber(factor) || AreExact(self, factor.item()));
  for (const at::Tensor& each : self) {
    plain = plain && (IsNumber(factor) || (factor.device() == each.device() &&
                                           factor.scalar_type() == each.scalar_type()));
  }
  if (!plain) return composed::_foreach_mul_(self, factor);
  const Value shared = IsOurs(factor) ? Read(factor) : Value();
  for (const at::Tensor& each : self) {
    Update(each, [&](const Value& x, uint32_t donated) {
      return Push(server_op<"mul">, {x, shared ? In(shared) : NumberOf(factor, x->dtype())},
                  donated);
    });
  }
}

void LerpNumber(TensorList self, TensorList ends, const at::Scalar& weight) {
  if (!ArePlain(self, {ends})) return composed::_foreach_lerp_(self, ends, weight);
  for (size_t i = 0; i < self.size(); ++i) {
    const Value end = Read(ends[i]);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(server_op<"lerp">, {x, end, Factor(weight, x)}, donated);
    });
  }
}

// Computes x + (number·a)·b, or x + (number·a)/b.
template <ServerOp& kOp, typename Numbers>
void AddCombined(TensorList self, TensorList a, TensorList b, const Numbers& numbers) {
  for (size_t i = 0; i < self.size(); ++i) {
    const Value left = Read(a[i]), right = Read(b[i]);
    Update(self[i], [&](const Value& x, uint32_t donated) {
      return Push(kOp, {x, left, right, Factor(NumberAt(numbers, i), x)}, donated);
    });
  }
}
#define TENSORD_FOREACH_COMBINED(Name, name)                                                 \
  void Name##Number(TensorList self, TensorList a, TensorList b, const at::Scalar& number) { \
    if (!ArePlain(self, {a, b})) return composed::_foreach_##name##_(self, a, b, number);    \
    AddCombined<server_op<#name>>(self, a, b, number);                                       \
  }                                                                                          \
  void Name##Numbers(TensorList self, TensorList a, TensorList b, Scalars numbers) {         \
    if (!ArePlain(self, {a, b}) || numbers.size() != self.size())                            \
      return composed::_foreach_##name##_(self, a, b, numbers);                              \
    AddCombined<server_op<#name>>(self, a, b, numbers);                                      \
  }
TENSORD_FOREACH_COMBINED(Addcmul, addcmul)
TENSORD_FOREACH_COMBINED(Addcdiv, addcdiv)
#undef TENSORD_FOREACH_COMBINED

// ---- new tensors

std::vector<at::Tensor> AddListOf(TensorList self, TensorList other, const at::Scalar& alpha) {
  if (!ArePlain(self, {other})) return composed::_foreach_add(self, other, alpha);
  return Results(self, [&](const Value& x, size_t i) {
    const Value y = Read(other[i]);
    return alpha.equal(1) ? Add(x, y) : Push(server_op<"add_scaled">, {x, y, Factor(alpha, x)});
  });
}
std::vector<at::Tensor> MulNumberOf(TensorList self, const at::Scalar& number) {
  if (!ArePlain(self) || !AreExact(self, number)) return composed::_foreach_mul(self, number);
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
