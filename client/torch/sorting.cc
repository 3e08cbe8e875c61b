// Sorting and searching.
#include <ATen/ScalarOps.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/ops/empty.h>

#include "kernels.h"

namespace torch_tensord {
Value NonZero(const Value& x);  // indexing.cc
namespace {

std::tuple<at::Tensor&, at::Tensor&> SortOut(const at::Tensor& self, std::optional<bool>,
                                             int64_t dim, bool descending, at::Tensor& values,
                                             at::Tensor& indices) {
  const Value x = Read(self);
  if (self.dim() == 0 || self.numel() == 0) {
    WriteOut(values, x);
    WriteOut(indices, Zeros(DeviceOf(self), self.sizes(), at::kLong));
    return {values, indices};
  }
  const std::vector<Value> both = PushAll(
      "sort", In(x), {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"descending", descending}});
  WriteOut(values, both[0]);
  WriteOut(indices, both[1]);
  return {values, indices};
}
std::tuple<at::Tensor&, at::Tensor&> TopkOut(const at::Tensor& self, int64_t k, int64_t dim,
                                             bool largest, bool, at::Tensor& values,
                                             at::Tensor& indices) {
  const Value x = Read(self);
  if (self.dim() == 0) {
    WriteOut(values, x);
    WriteOut(indices, Zeros(DeviceOf(self), {}, at::kLong));
    return {values, indices};
  }
  if (k == 0 || self.numel() == 0) {
    c10::DimVector sizes(self.sizes());
    sizes[at::maybe_wrap_dim(dim, self.dim())] = k;
    Resize(values, sizes);
    Resize(indices, sizes);
    return {values, indices};
  }
  const std::vector<Value> both =
      PushAll("topk", In(x),
              {{"k", k}, {"axis", at::maybe_wrap_dim(dim, self.dim())}, {"largest", largest}});
  WriteOut(values, both[0]);
  WriteOut(indices, both[1]);
  return {values, indices};
}

Value Search(const Value& sorted, const Value& x, bool right, bool int32) {
  const Value found = Push("searchsorted", {sorted, x}, {{"right", right}});
  return int32 ? Cast(found, at::kInt) : found;
}
at::Tensor SearchSorted(const at::Tensor& sorted, const at::Tensor& self, bool int32, bool right,
                        std::optional<c10::string_view> side,
                        const std::optional<at::Tensor>& sorter) {
  CommonDevice("searchsorted", {&sorted, &self});
  const at::Tensor places = at::empty({0}, int32 ? at::kInt : at::kLong);
  at::native::searchsorted_pre_check(sorted, self, places, int32, right, side,
                                     sorter.value_or(at::Tensor()));
  if (IsGiven(sorter))
    return SearchSorted(sorted.gather(-1, *sorter), self, int32, right, side, std::nullopt);
  const at::ScalarType dtype = ResultType({&sorted, &self});
  const Value x = BroadcastTo(ReadAs(self, dtype, DeviceOf(sorted)), self.sizes());
  return MakeTensor(
      Search(Cast(Read(sorted), dtype), x, right || (side.has_value() && *side == "right"), int32),
      DeviceOf(sorted));
}
// Returns a number as a tensor beside `like`, in the dtype to which both are promoted.
at::Tensor NumberTensor(const at::Scalar& number, const at::Tensor& like) {
  const at::Tensor host = at::native::wrapped_scalar_tensor(number);
  return ToDType(host, ResultType({&host, &like}), DeviceOf(like));
}
at::Tensor SearchNumber(const at::Tensor& sorted, const at::Scalar& number, bool int32, bool right,
                        std::optional<c10::string_view> side,
                        const std::optional<at::Tensor>& sorter) {
  return SearchSorted(sorted, NumberTensor(number, sorted), int32, right, side, sorter);
}
at::Tensor Bucketize(const at::Tensor& self, const at::Tensor& boundaries, bool int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return SearchSorted(boundaries, self, int32, right, std::nullopt, std::nullopt);
}
at::Tensor BucketizeNumber(const at::Scalar& number, const at::Tensor& boundaries, bool int32,
                           bool right) {
  return Bucketize(NumberTensor(number, boundaries), boundaries, int32, right);
}

at::Tensor& IsinOut(const at::Tensor& elements, const at::Tensor& tests, bool, bool invert,
                    at::Tensor& out) {
  const c10::DeviceIndex device = CommonDevice("isin", {&elements, &tests});
  const at::ScalarType dtype = ResultType({&elements, &tests});
  if (tests.numel() == 0) return WriteOut(out, Full(device, elements.sizes(), invert, at::kBool));
  const Value listed = BroadcastTo(ReadAs(tests, dtype, device), tests.sizes());
  const Value line = Reshape(listed, {tests.numel()});
  const Value sorted = PushAll("sort", In(line), {{"axis", 0}})[0];
  const Value x = BroadcastTo(ReadAs(elements, dtype, device), elements.sizes());
  const Value first = Search(sorted, x, false, false), after = Search(sorted, x, true, false);
  Value found = Push(server_op<"ne">, {first, after});
  // A NaN is found among the sorted elements, but equals none of them.
  if (at::isFloatingType(dtype))
    found = Push(server_op<"bitwise_and">, {found, Push(server_op<"eq">, {x, x})});
  return WriteOut(out, invert ? Push(server_op<"ne">, {found, In(true, at::kBool)}) : found);
}
at::Tensor& NumberIsinOut(const at::Scalar& element, const at::Tensor& tests, bool unique,
                          bool invert, at::Tensor& out) {
  return IsinOut(at::native::wrapped_scalar_tensor(element), tests, unique, invert, out);
}
at::Tensor& IsinNumberOut(const at::Tensor& elements, const at::Scalar& test, bool unique,
                          bool invert, at::Tensor& out) {
  return IsinOut(elements, at::native::wrapped_scalar_tensor(test), unique, invert, out);
}

struct Unique {
  Value values, inverse, counts;
};
// `order` has the positions of the sorted elements, or is null if the elements are in order.
Unique UniqueOf(const Value& sorted, const Value& order, c10::DeviceIndex device) {
  const int64_t size = sorted->numel();
  Value starts = Full(device, {1}, true, at::kBool);
  if (size > 1) {
    starts = Concat({starts, Push(server_op<"ne">,
                                  {Narrow(sorted, 0, 1, size), Narrow(sorted, 0, 0, size - 1)})},
                    0);
  }
  const Value places = NonZero(starts);
  const int64_t count = places->sizes()[0];
  const Value first = Reshape(places, {count});
  Unique result;
  result.values = Push("index", {sorted, first}, {{"axis", 0}});
  const Value ends = Concat({Narrow(first, 0, 1, count), Full(device, {1}, size, at::kLong)}, 0);
  result.counts = Sub(ends, first);
  const Value group = Sub(Push("cumsum", {starts}, {{"axis", 0}}), at::Scalar(1));
  result.inverse = order ? Push("scatter", {Zeros(device, {size}, at::kLong), order, group},
                                {{"axis", 0}, {"reduce", "none"}})
                         : group;
  return result;
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> Results(const Unique& unique, const at::Tensor& self,
                                                       bool inverse, bool counts) {
  const c10::DeviceIndex device = DeviceOf(self);
  const at::Tensor none = MakeContiguous({0}, at::kLong, device);
  return {MakeTensor(unique.values, device),
          inverse ? MakeTensor(Reshape(unique.inverse, self.sizes()), device) : none,
          counts ? MakeTensor(unique.counts, device) : none};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> Unique2(const at::Tensor& self, bool, bool inverse,
                                                       bool counts) {
  if (self.numel() == 0) {
    const auto indices = [&](at::IntArrayRef sizes) {
      return MakeContiguous(sizes, at::kLong, DeviceOf(self));
    };
    return {MakeContiguous({0}, self.scalar_type(), DeviceOf(self)),
            inverse ? indices(self.sizes()) : indices({0}), indices({0})};
  }
  const Value line = Reshape(Read(self), {self.numel()});
  const std::vector<Value> sorted = PushAll("sort", In(line), {{"axis", 0}});
  return Results(UniqueOf(sorted[0], sorted[1], DeviceOf(self)), self, inverse, counts);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> UniqueConsecutive(const at::Tensor& self,
                                                                 bool inverse, bool counts,
                                                                 std::optional<int64_t> dim) {
  if (dim.has_value() && self.dim() != 1) {
    return at::unique_dim_consecutive(self, *dim, inverse, counts);
  }
  if (self.numel() == 0) return Unique2(self, true, inverse, counts);
  return Results(UniqueOf(Reshape(Read(self), {self.numel()}), {}, DeviceOf(self)), self, inverse,
                 counts);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("sort.values_stable", SortOut);
  m.impl("topk.values", TopkOut);
  m.impl("searchsorted.Tensor", SearchSorted);
  m.impl("searchsorted.Scalar", SearchNumber);
  m.impl("bucketize.Tensor", Bucketize);
  m.impl("bucketize.Scalar", BucketizeNumber);
  m.impl("isin.Tensor_Tensor_out", IsinOut);
  m.impl("isin.Tensor_Scalar_out", IsinNumberOut);
  m.impl("isin.Scalar_Tensor_out", NumberIsinOut);
  m.impl("_unique2", Unique2);
  m.impl("unique_consecutive", UniqueConsecutive);
}

}  // namespace torch_tensord
