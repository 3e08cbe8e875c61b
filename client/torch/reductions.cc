// Reductions and scans. A reduced dtype of 16 bits is rounded once, by the server.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ReduceOpsUtils.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

// Reduces over `dims`, or over all axes if there are none.
Value ReduceOver(const char* name, const Value& x, at::OptionalIntArrayRef dims, bool keepdims) {
  c10::DimVector axes = Axes(dims, x->dim());
  if (x->numel() == 0 && axes.empty()) {
    for (int64_t i = 0; i < x->dim(); ++i) axes.push_back(i);
  }
  return Reduce(name, x, axes, keepdims);
}

// The kernels with an output compute in its dtype, as PyTorch does.

template <const char* const& kName>
at::Tensor& SumOut(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdims,
                   std::optional<at::ScalarType>, at::Tensor& out) {
  return WriteOut(out, ReduceOver(kName, Cast(Read(self), out.scalar_type()), dims, keepdims));
}
constexpr const char* kSum = "sum";
constexpr const char* kMean = "mean";

at::Tensor& ProdIntOut(const at::Tensor& self, int64_t dim, bool keepdims,
                       std::optional<at::ScalarType>, at::Tensor& out) {
  return WriteOut(
      out, ReduceOver("prod", Cast(Read(self), out.scalar_type()), at::IntArrayRef(dim), keepdims));
}
at::Tensor Prod(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  const at::ScalarType own = self.scalar_type();
  const at::ScalarType type = dtype.value_or(at::isIntegralType(own, true) ? at::kLong : own);
  const Value product = ReduceOver("prod", Cast(Read(self), type), {}, false);
  return MakeTensor(Cast(product, type), DeviceOf(self));
}

// ---- extrema

const char* const kNoElements =
    ": Expected reduction dim to be specified for input.numel() == 0. "
    "Specify the reduction dim with the 'dim' argument.";

template <const char* const& kName>
at::Tensor& ExtremumOut(const at::Tensor& self, at::IntArrayRef dims, bool keepdims,
                        at::Tensor& out) {
  Value x = Read(self);
  if (self.numel() == 0) {
    const auto sizes = at::meta::get_reduction_shape(self, dims, keepdims);
    if (c10::multiply_integers(sizes) == 0) {
      Resize(out, sizes);
      return out;
    }
  }
  if (self.scalar_type() == at::kBool) x = Cast(x, at::kByte);
  return WriteOut(out, ReduceOver(kName, x, dims, keepdims));
}
constexpr const char* kMax = "max";
constexpr const char* kMin = "min";
constexpr const char* kArgMax = "argmax";
constexpr const char* kArgMin = "argmin";

template <const char* const& kName>
at::Tensor Extremum(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, kName, "()", kNoElements);
  Value x = Read(self);
  if (self.scalar_type() == at::kBool) x = Cast(x, at::kByte);
  return MakeTensor(Cast(ReduceOver(kName, x, {}, false), self.scalar_type()),
                    self.device().index());
}

Value ArgExtremum(const char* name, const Value& x, std::optional<int64_t> dim, bool keepdims) {
  const Value numbers = x->dtype() == at::kBool ? Cast(x, at::kByte) : x;
  if (!dim.has_value() || x->dim() == 0) {
    const Value index = Reduce(name, Reshape(numbers, {x->numel()}), {0}, false);
    if (!keepdims) return index;
    const c10::DimVector ones(x->dim(), 1);
    return Reshape(index, ones);
  }
  return Reduce(name, numbers, {at::maybe_wrap_dim(*dim, x->dim())}, keepdims);
}
template <const char* const& kName>
at::Tensor& ArgExtremumOut(const at::Tensor& self, std::optional<int64_t> dim, bool keepdims,
                           at::Tensor& out) {
  if (self.numel() == 0 && out.numel() == 0) return out;
  return WriteOut(out, ArgExtremum(kName, Read(self), dim, keepdims));
}

template <const char* const& kName, const char* const& kArgName>
std::tuple<at::Tensor&, at::Tensor&> ExtremumDimOut(const at::Tensor& self, int64_t dim,
                                                    bool keepdims, at::Tensor& values,
                                                    at::Tensor& indices) {
  if (self.numel() == 0 && values.numel() == 0) return {values, indices};
  const Value x = Read(self);
  const int64_t dims[] = {dim};
  const Value numbers = self.scalar_type() == at::kBool ? Cast(x, at::kByte) : x;
  WriteOut(values, ReduceOver(kName, numbers, at::IntArrayRef(dims), keepdims));
  WriteOut(indices, ArgExtremum(kArgName, x, dim, keepdims));
  return {values, indices};
}

std::tuple<at::Tensor&, at::Tensor&> AminmaxOut(const at::Tensor& self, std::optional<int64_t> dim,
                                                bool keepdims, at::Tensor& min, at::Tensor& max) {
  TORCH_CHECK_VALUE(at::get_overlap_status(min, max) == at::MemOverlapStatus::No,
                    "aminmax(): the `min` and `max` out= tensors must not overlap.");
  c10::DimVector dims;
  if (dim.has_value()) dims.push_back(*dim);
  ExtremumOut<kMin>(self, dims, keepdims, min);
  ExtremumOut<kMax>(self, dims, keepdims, max);
  return {min, max};
}

// ---- truth

constexpr const char* kAll = "all";
constexpr const char* kAny = "any";

template <const char* const& kName>
at::Tensor& TruthOut(const at::Tensor& self, int64_t dim, bool keepdims, at::Tensor& out) {
  const int64_t dims[] = {dim};
  return WriteOut(out, ReduceOver(kName, Read(self), at::IntArrayRef(dims), keepdims));
}
template <const char* const& kName>
at::Tensor& TruthDimsOut(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdims,
                         at::Tensor& out) {
  // An empty list of dims: the elements themselves.
  if (dims.has_value() && dims->empty() && self.dim() > 0) {
    const Value x = Read(self);
    return WriteOut(out, Push(server_op<"ne">, {x, Number(0, x)}));
  }
  return WriteOut(out, ReduceOver(kName, Read(self), dims, keepdims));
}
template <const char* const& kName>
at::Tensor& TruthAllOut(const at::Tensor& self, at::Tensor& out) {
  return WriteOut(out, ReduceOver(kName, Read(self), {}, false));
}

at::Tensor CountNonzero(const at::Tensor& self, at::IntArrayRef dims) {
  return MakeTensor(ReduceOver("count_nonzero", Read(self), dims, false), self.device().index());
}

// ---- moments and norms

std::pair<Value, Value> VarMean(const char* name, const at::Tensor& self,
                                at::OptionalIntArrayRef dims,
                                const std::optional<at::Scalar>& correction, bool keepdims) {
  const c10::DimVector axes = Axes(dims, self.dim());
  const Value x = Read(self);
  const std::vector<Value> both = PushAll(
      "var_mean", In(x),
      {{"axes", axes}, {"keepdims", keepdims}, {"correction", correction.value_or(1).toDouble()}});
  const int64_t results = both[0]->numel(), reduced = results == 0 ? 0 : self.numel() / results;
  if (static_cast<double>(reduced) <= correction.value_or(1).toDouble()) {
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the "
               "reduction factor (input numel divided by output numel).");
  }
  return {both[0], both[1]};
}
at::Tensor Var(const at::Tensor& self, at::OptionalIntArrayRef dims,
               const std::optional<at::Scalar>& correction, bool keepdims) {
  return MakeTensor(VarMean("var", self, dims, correction, keepdims).first, self.device().index());
}
at::Tensor Std(const at::Tensor& self, at::OptionalIntArrayRef dims,
               const std::optional<at::Scalar>& correction, bool keepdims) {
  return MakeTensor(
      Push(server_op<"sqrt">, {VarMean("std", self, dims, correction, keepdims).first}),
      self.device().index());
}
at::Tensor& VarOut(const at::Tensor& self, at::OptionalIntArrayRef dims,
                   const std::optional<at::Scalar>& correction, bool keepdims, at::Tensor& out) {
  return WriteOut(out, VarMean("var", self, dims, correction, keepdims).first);
}
at::Tensor& StdOut(const at::Tensor& self, at::OptionalIntArrayRef dims,
                   const std::optional<at::Scalar>& correction, bool keepdims, at::Tensor& out) {
  return WriteOut(
      out, Push(server_op<"sqrt">, {VarMean("std", self, dims, correction, keepdims).first}));
}
std::tuple<at::Tensor, at::Tensor> VarMeanOf(const at::Tensor& self, at::OptionalIntArrayRef dims,
                                             const std::optional<at::Scalar>& correction,
                                             bool keepdims) {
  const auto [var, mean] = VarMean("var_mean", self, dims, correction, keepdims);
  return {MakeTensor(var, self.device().index()), MakeTensor(mean, self.device().index())};
}
std::tuple<at::Tensor, at::Tensor> StdMeanOf(const at::Tensor& self, at::OptionalIntArrayRef dims,
                                             const std::optional<at::Scalar>& correction,
                                             bool keepdims) {
  const auto [var, mean] = VarMean("std_mean", self, dims, correction, keepdims);
  return {MakeTensor(Push(server_op<"sqrt">, {var}), self.device().index()),
          MakeTensor(mean, self.device().index())};
}

Value NormOf(const Value& x, double ord, at::OptionalIntArrayRef dims, bool keepdims) {
  const c10::DimVector axes = Axes(dims, x->dim());
  if (ord == 0) return Cast(ReduceOver("count_nonzero", x, axes, keepdims), x->dtype());
  return Push("norm", {x}, {{"ord", ord}, {"axes", axes}, {"keepdims", keepdims}});
}
at::Tensor& NormOut(const at::Tensor& self, const std::optional<at::Scalar>& ord,
                    at::IntArrayRef dims, bool keepdims, at::Tensor& out) {
  return WriteOut(out, NormOf(Read(self), ord.value_or(2).toDouble(), dims, keepdims));
}
at::Tensor& NormDTypeOut(const at::Tensor& self, const std::optional<at::Scalar>& ord,
                         at::IntArrayRef dims, bool keepdims, at::ScalarType dtype,
                         at::Tensor& out) {
  return WriteOut(out, NormOf(Cast(Read(self), dtype), ord.value_or(2).toDouble(), dims, keepdims));
}
at::Tensor& VectorNormOut(const at::Tensor& self, const at::Scalar& ord,
                          at::OptionalIntArrayRef dims, bool keepdims,
                          std::optional<at::ScalarType> dtype, at::Tensor& out) {
  return WriteOut(out, NormOf(Cast(Read(self), dtype.value_or(self.scalar_type())), ord.toDouble(),
                              dims, keepdims));
}

// ---- scans

template <const char* const& kName>
at::Tensor& ScanOut(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType>,
                    at::Tensor& out) {
  const Value x = Cast(Read(self), out.scalar_type());
  if (x->dim() == 0) return WriteOut(out, x);
  return WriteOut(out, Push(kName, {x}, {{"axis", dim}}));
}
constexpr const char* kCumSum = "cumsum";
constexpr const char* kCumProd = "cumprod";

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("sum.IntList_out", SumOut<kSum>);
  m.impl("mean.out", SumOut<kMean>);
  m.impl("prod", Prod);
  m.impl("prod.int_out", ProdIntOut);
  m.impl("amax.out", ExtremumOut<kMax>);
  m.impl("amin.out", ExtremumOut<kMin>);
  m.impl("max", Extremum<kMax>);
  m.impl("min", Extremum<kMin>);
  m.impl("argmax.out", ArgExtremumOut<kArgMax>);
  m.impl("argmin.out", ArgExtremumOut<kArgMin>);
  m.impl("max.dim_max", ExtremumDimOut<kMax, kArgMax>);
  m.impl("min.dim_min", ExtremumDimOut<kMin, kArgMin>);
  m.impl("aminmax.out", AminmaxOut);
  m.impl("any.out", TruthOut<kAny>);
  m.impl("all.out", TruthOut<kAll>);
  m.impl("any.dims_out", TruthDimsOut<kAny>);
  m.impl("all.dims_out", TruthDimsOut<kAll>);
  m.impl("any.all_out", TruthAllOut<kAny>);
  m.impl("all.all_out", TruthAllOut<kAll>);
  m.impl("count_nonzero.dim_IntList", CountNonzero);
  m.impl("var.correction", Var);
  m.impl("std.correction", Std);
  m.impl("var.correction_out", VarOut);
  m.impl("std.correction_out", StdOut);
  m.impl("var_mean.correction", VarMeanOf);
  m.impl("std_mean.correction", StdMeanOf);
  m.impl("norm.out", NormOut);
  m.impl("norm.dtype_out", NormDTypeOut);
  m.impl("linalg_vector_norm.out", VectorNormOut);
  m.impl("cumsum.out", ScanOut<kCumSum>);
  m.impl("cumprod.out", ScanOut<kCumProd>);
}

}  // namespace torch_tensord
