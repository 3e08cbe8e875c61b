#include "tensord/tests/conformance/reference.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {

double FiniteOrZero(long double value) {
  return std::isfinite(static_cast<double>(value)) ? static_cast<double>(value) : 0;
}

Values ScaledValues(DType dtype, const Shape& shape) {
  Values values = Values::Of(dtype, shape);
  values.scale.resize(values.size());
  return values;
}

DType PromotedOf(Inputs inputs) {
  DType dtype = inputs[0].spec.dtype;
  for (const Values& input : inputs) dtype = Promote(dtype, input.spec.dtype);
  return dtype;
}

long double DifferenceQuotient(const std::function<long double(long double)>& f, long double x) {
  const long double h = 2e-4L;
  return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h);
}

std::vector<Values> Reference(absl::string_view op, const Attributes& attrs,
                              absl::Span<const Values> inputs) {
  static const ReferenceTable* const table = [] {
    auto* made = new ReferenceTable;
    AddConvReferences(*made);
    AddElementwiseReferences(*made);
    AddIndexingReferences(*made);
    AddAttentionReferences(*made);
    AddLossReferences(*made);
    AddActivationReferences(*made);
    AddGroupNormReferences(*made);
    AddRecurrentReferences(*made);
    AddSpecialReferences(*made);
    AddMatmulReferences(*made);
    AddMovementReferences(*made);
    AddNetworkReferences(*made);
    AddBatchNormReferences(*made);
    AddOptimizerReferences(*made);
    AddPoolReferences(*made);
    AddReductionReferences(*made);
    AddVarMeanReferences(*made);
    AddScanReferences(*made);
    AddShapeReferences(*made);
    AddSmallReferences(*made);
    AddStridedReferences(*made);
    AddCreationReferences(*made);
    AddSortReferences(*made);
    AddRandomReferences(*made);
    return made;
  }();
  return table->at(std::string(op))(attrs, inputs);
}

Index Unravel(int64_t flat, const Shape& shape) {
  Index index(shape.rank());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % shape.dim(axis);
    flat /= shape.dim(axis);
  }
  return index;
}

int64_t Ravel(const Index& index, const Shape& shape) {
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape.dim(axis) + index[axis];
  return flat;
}

int64_t RavelBroadcast(const Index& index, const Shape& from) {
  const int lead = static_cast<int>(index.size()) - from.rank();
  int64_t flat = 0;
  for (int axis = 0; axis < from.rank(); ++axis) {
    flat = flat * from.dim(axis) + (from.dim(axis) == 1 ? 0 : index[lead + axis]);
  }
  return flat;
}

Shape Broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int axis = 0; axis < rank; ++axis) {
    const int in_a = axis - (rank - a.rank());
    const int in_b = axis - (rank - b.rank());
    const int64_t size_a = in_a < 0 ? 1 : a.dim(in_a);
    const int64_t size_b = in_b < 0 ? 1 : b.dim(in_b);
    out.AppendDim(size_a == 1 ? size_b : size_a);
  }
  return out;
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  const auto either = [&](DType dtype) { return a == dtype || b == dtype; };
  if (IsFloating(a)) return either(DType::kFloat64) ? DType::kFloat64 : DType::kFloat32;
  // The smallest dtype whose range has the ranges of both. No row has uint64 with a signed integer.
  for (DType dtype : {DType::kUInt8, DType::kInt8, DType::kUInt16, DType::kInt16, DType::kUInt32,
                      DType::kInt32, DType::kUInt64}) {
    const bool has_max = dtype == DType::kUInt64 ||
                         (!either(DType::kUInt64) && MaxOf(dtype) >= std::max(MaxOf(a), MaxOf(b)));
    if (has_max && MinOf(dtype) <= std::min(MinOf(a), MinOf(b))) return dtype;
  }
  return DType::kInt64;
}

namespace {

int64_t Truncate(double value, DType dtype) {
  if (std::isnan(value)) return 0;
  const double two63 = std::ldexp(1.0, 63);
  if (dtype == DType::kUInt64) {
    if (value >= 2 * two63) return MaxOf(dtype);
    return value < 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  // Every double below 2^63 fits into int64_t: the largest one is 2^63 - 1024.
  if (value >= two63) return MaxOf(dtype);
  if (value < -two63) return MinOf(dtype);
  return std::clamp(static_cast<int64_t>(std::trunc(value)), MinOf(dtype), MaxOf(dtype));
}

// Converts element `i`, an integer or bool, to a floating dtype.
double RoundWhole(const Values& values, int64_t i, DType dtype) {
  const int64_t whole = values.whole[i];
  if (values.spec.dtype != DType::kUInt64 || whole >= 0) return RoundTo(dtype, whole);
  const auto large = static_cast<uint64_t>(whole);
  if (dtype == DType::kFloat64) return static_cast<double>(large);
  return RoundTo(dtype, static_cast<double>(static_cast<float>(large)));
}

}  // namespace

Values Cast(const Values& values, DType dtype) {
  if (values.spec.dtype == dtype) return values;
  Values out = Values::Of(dtype, values.spec.shape);
  for (int64_t i = 0; i < values.size(); ++i) {
    if (out.floating()) {
      out.real[i] =
          values.floating() ? RoundTo(dtype, values.real[i]) : RoundWhole(values, i, dtype);
    } else if (IsBool(dtype)) {
      out.whole[i] = values.floating() ? values.real[i] != 0 : values.whole[i] != 0;
    } else {
      out.whole[i] =
          values.floating() ? Truncate(values.real[i], dtype) : WrapTo(dtype, values.whole[i]);
    }
  }
  return out;
}

void CopyElement(const Values& from, int64_t at, Values& to, int64_t i) {
  if (to.floating()) {
    to.real[i] = from.real[at];
    if (IsComplex(to.spec.dtype)) to.imaginary[i] = from.imaginary[at];
  } else {
    to.whole[i] = from.whole[at];
  }
}

}  // namespace tensord::conformance
