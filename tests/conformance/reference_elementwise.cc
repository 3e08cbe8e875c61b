#include <algorithm>
#include <cmath>

#include "tensord/tests/conformance/elementwise_cases.h"
#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

using RealFunction = double (*)(double);

// Calls the reference for integers. `operands` of dtype uint64 are the bits of the elements.
template <typename Case, typename... Operands>
auto Whole(const Case& op, DType dtype, Operands... operands) {
  if (dtype == DType::kUInt64 && op.of_uint64 != nullptr) {
    return static_cast<decltype(op.whole(operands...))>(
        op.of_uint64(static_cast<uint64_t>(operands)...));
  }
  return op.whole(operands...);
}

// Returns a reference whose result has the input's dtype.
ReferenceFunction Same(const UnaryCase& op) {
  return [&op](const Attributes&, Inputs inputs) {
    Values out = Values::Of(inputs[0].spec.dtype, inputs[0].spec.shape);
    for (int64_t i = 0; i < out.size(); ++i) {
      if (out.floating()) {
        out.real[i] = op.real(inputs[0].real[i]);
      } else {
        out.whole[i] = WrapTo(out.spec.dtype, Whole(op, out.spec.dtype, inputs[0].whole[i]));
      }
    }
    return out;
  };
}

// Returns a reference whose result is floating; it reads integers and bool as float32.
// `by_argument` says that error bounds refer to the argument, because the function has
// cancellation.
ReferenceFunction Floating(RealFunction function, bool by_argument) {
  return [=](const Attributes&, Inputs inputs) {
    const Values x = inputs[0].floating() ? inputs[0] : Cast(inputs[0], DType::kFloat32);
    Values out = Values::Of(x.spec.dtype, x.spec.shape);
    for (int64_t i = 0; i < out.size(); ++i) out.real[i] = function(x.real[i]);
    if (by_argument) out.scale = x.real;
    return out;
  };
}

// Calls element(i, ia, ib) for each element of the result. i, ia and ib are the flat positions in
// the result and in the operands.
template <typename Element>
void ForEachPair(const Shape& shape, const Shape& a, const Shape& b, Element element) {
  const int64_t n = shape.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const Index index = Unravel(i, shape);
    element(i, RavelBroadcast(index, a), RavelBroadcast(index, b));
  }
}

ReferenceFunction Arithmetic(const ArithmeticCase& op) {
  return [&op](const Attributes&, Inputs inputs) {
    DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
    if (op.whole == nullptr && !IsFloating(dtype)) dtype = DType::kFloat32;
    const Values a = Cast(inputs[0], dtype);
    const Values b = Cast(inputs[1], dtype);
    Values out = Values::Of(dtype, Broadcast(a.spec.shape, b.spec.shape));
    if (op.epsilons != 0) out.scale.resize(out.size());
    ForEachPair(out.spec.shape, a.spec.shape, b.spec.shape, [&](int64_t i, int64_t ia, int64_t ib) {
      if (op.epsilons != 0) {
        out.scale[i] = std::max(std::fabs(a.real[ia]), std::fabs(b.real[ib]));
      }
      if (op.of_dtype != nullptr) {
        out.real[i] = op.of_dtype(dtype, a.real[ia], b.real[ib]);
      } else if (IsFloating(dtype)) {
        out.real[i] = op.real(a.real[ia], b.real[ib]);
      } else if (IsBool(dtype)) {
        out.whole[i] = op.of_bools(a.whole[ia], b.whole[ib]);
      } else {
        out.whole[i] = WrapTo(dtype, Whole(op, dtype, a.whole[ia], b.whole[ib]));
      }
    });
    return out;
  };
}

ReferenceFunction Compare(const ComparisonCase& op) {
  return [&op](const Attributes&, Inputs inputs) {
    const DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
    const Values a = Cast(inputs[0], dtype);
    const Values b = Cast(inputs[1], dtype);
    Values out = Values::Of(DType::kBool, Broadcast(a.spec.shape, b.spec.shape));
    ForEachPair(out.spec.shape, a.spec.shape, b.spec.shape, [&](int64_t i, int64_t ia, int64_t ib) {
      out.whole[i] = IsFloating(dtype) ? op.real(a.real[ia], b.real[ib])
                                       : Whole(op, dtype, a.whole[ia], b.whole[ib]);
    });
    return out;
  };
}

Values Where(const Attributes&, Inputs inputs) {
  const Values& condition = inputs[0];
  const DType dtype = Promote(inputs[1].spec.dtype, inputs[2].spec.dtype);
  const Values x = Cast(inputs[1], dtype);
  const Values y = Cast(inputs[2], dtype);
  Values out =
      Values::Of(dtype, Broadcast(condition.spec.shape, Broadcast(x.spec.shape, y.spec.shape)));
  for (int64_t i = 0; i < out.size(); ++i) {
    const Index index = Unravel(i, out.spec.shape);
    const bool first = condition.whole[RavelBroadcast(index, condition.spec.shape)] != 0;
    const Values& chosen = first ? x : y;
    CopyElement(chosen, RavelBroadcast(index, chosen.spec.shape), out, i);
  }
  return out;
}

}  // namespace

void AddElementwiseReferences(ReferenceTable& table) {
  for (const UnaryCase& op : UnaryCases()) {
    table[op.op] = op.whole != nullptr ? Same(op) : Floating(op.real, op.epsilons != 0);
  }
  table["gelu"] = [none = table["gelu"], tanh = Floating(GeluByTanh, false)](
                      const Attributes& attrs, Inputs inputs) {
    const bool by_tanh = Get<std::string>(attrs, "approximate", "none") == "tanh";
    return (by_tanh ? tanh : none)(attrs, inputs);
  };
  for (const ArithmeticCase& op : ArithmeticCases()) table[op.op] = Arithmetic(op);
  for (const ComparisonCase& op : ComparisonCases()) table[op.op] = Compare(op);
  table["cast"] = [](const Attributes& attrs, Inputs inputs) {
    return Cast(inputs[0], attrs.Type("dtype"));
  };
  table["where"] = Where;
}

}  // namespace tensord::conformance
