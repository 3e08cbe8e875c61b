// Indexing, gather and scatter. A mask as an index waits for the number of its elements.
#include <ATen/core/List.h>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {

// Returns the indices of the elements that aren't zero, (rank, count). Waits for the count.
Value NonZeroLines(const Value& x) {
  const Value line = x->dim() == 0 ? Reshape(x, {1}) : x;
  const int64_t count = Fetch(Reduce("count_nonzero", line, {}, false)).toLong();
  return Push("nonzero", {line}, {{"size", count}});
}
// Returns them as (count, rank).
Value NonZero(const Value& x) { return Transpose(NonZeroLines(x), 0, 1); }

namespace {

constexpr Origin kIndex{"index", "x[index]", "index tensor #"};
constexpr Origin kIndexPut{"index_put", "x[index] = y (index_put_)", "index tensor #"};
constexpr Origin kIndexSelect{"index", "index_select", "the index"};
constexpr Origin kIndexAdd{"index_put", "index_add", "the index"};
constexpr Origin kIndexCopy{"index_put", "index_copy", "the index"};
constexpr Origin kIndexFill{"index_put", "index_fill", "the index"};
constexpr Origin kGather{"gather", "gather", "the index"};
constexpr Origin kScatter{"scatter", "scatter", "the index"};
constexpr Origin kScatterValue{"scatter", "scatter (also called by one_hot)", "the index"};
constexpr Origin kScatterAdd{"scatter", "scatter_add", "the index"};
constexpr Origin kScatterReduce{"scatter", "scatter_reduce", "the index"};
constexpr Origin kTake{"index", "take", "the index"};
constexpr Origin kMaskedScatter{"index", "masked_scatter (source has too few elements)",
                                "the places in source"};
constexpr Origin kEmbedding{"index", "embedding", "the indices"};
constexpr Origin kEmbeddingBackward{nullptr, "embedding_dense_backward", "the indices"};

// Indices for consecutive axes of a value.
struct Selection {
  Value x;
  int64_t axis = 0;
  std::vector<Value> indices;
  c10::DimVector order;     // the permutation that brought the axes together, or empty
  c10::DimVector selected;  // the shape of x[indices]
};

Value ReadIndex(const at::Tensor& index, c10::DeviceIndex device) {
  const at::Tensor ours = IsOurs(index) ? index : UploadTensor(index, device);
  TORCH_CHECK(DeviceOf(ours) == device,
              "indices should be on the device of the tensor, tensord:", static_cast<int>(device),
              ", or on the CPU");
  const at::ScalarType dtype = ours.scalar_type();
  TORCH_CHECK_INDEX(
      dtype == at::kLong || dtype == at::kInt || dtype == at::kBool || dtype == at::kByte,
      "tensors used as indices must be long, int, byte or bool tensors, but got ", dtype);
  return Read(ours);
}

c10::DimVector BroadcastSizes(const std::vector<Value>& indices) {
  c10::DimVector sizes;
  for (const Value& index : indices) {
    if (!at::are_expandable(sizes, index->sizes())) {
      std::ostringstream shapes;
      for (const Value& each : indices) shapes << (shapes.tellp() > 0 ? ", " : "") << each->sizes();
      TORCH_CHECK_INDEX(
          false, "shape mismatch: indexing tensors could not be broadcast together with shapes ",
          shapes.str());
    }
    sizes = at::infer_size_dimvector(sizes, index->sizes());
  }
  return sizes;
}

Selection Select(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& given) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(given.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", given.size(),
                    ")");
  Selection result;
  result.x = Read(self);
  c10::DimVector axes;
  int64_t axis = 0;
  for (const std::optional<at::Tensor>& each : given) {
    if (!IsGiven(each)) {
      ++axis;
      continue;
    }
    if (each->scalar_type() == at::kByte) {
      TORCH_WARN(
          "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
          "instead.");
    }
    const Value index = ReadIndex(*each, DeviceOf(self));
    if (index->dtype() != at::kBool && index->dtype() != at::kByte) {
      axes.push_back(axis++);
      result.indices.push_back(index);
      continue;
    }
    for (int64_t d = 0; d < index->dim(); ++d) {
      TORCH_CHECK_INDEX(axis + d < self.dim() && index->sizes()[d] == self.size(axis + d),
                        "The shape of the mask ", index->sizes(), " at index ", d,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", axis + d);
    }
    const Value places = NonZero(index);
    for (int64_t d = 0; d < std::max<int64_t>(index->dim(), 1); ++d) {
      const Value column = Reshape(Narrow(places, 1, d, d + 1), {places->sizes()[0]});
      if (index->dim() == 0) break;
      result.indices.push_back(column);
      axes.push_back(axis++);
    }
  }
  const bool adjacent =
      axes.empty() || axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
  result.axis = axes.empty() ? 0 : axes.front();
  if (!adjacent) {
    result.order = axes;
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (std::find(axes.begin(), axes.end(), d) == axes.end()) result.order.push_back(d);
    }
    result.x = Permute(result.x, result.order);
    result.axis = 0;
  }
  const c10::DimVector broadcast = BroadcastSizes(result.indices);
  for (const int64_t each : axes) {
    TORCH_CHECK_INDEX(self.size(each) > 0 || c10::multiply_integers(broadcast) == 0,
                      "index is out of bounds for dimension with size 0, which is dimension ",
                      each);
  }
  const at::IntArrayRef sizes = result.x->sizes();
  result.selected.append(sizes.begin(), sizes.begin() + result.axis);
  result.selected.append(broadcast.begin(), broadcast.end());
  result.selected.append(sizes.begin() + result.axis + result.indices.size(), sizes.end());
  return result;
}

Value IndexValue(const at::Tensor& self, const Selection& part) {
  if (part.indices.empty()) return part.x;
  c10::SmallVector<In, 4> inputs = {part.x};
  for (const Value& index : part.indices) inputs.emplace_back(index);
  return Named(kIndex, DeviceOf(self), PushAll("index", inputs, {{"axis", part.axis}})[0]);
}
// Makes a tensor with the strides that PyTorch's iterator gives x[indices].
at::Tensor MakeSelected(const at::Tensor& self, const Selection& part) {
  const at::Tensor x = part.order.empty() ? self : self.permute(part.order);
  const auto count = static_cast<int64_t>(part.indices.size());
  const auto rank = static_cast<int64_t>(part.selected.size());
  const int64_t end = part.axis + rank - (self.dim() - count);
  c10::DimVector strides(rank, 0);
  for (int64_t d = 0; d < part.axis; ++d) strides[d] = x.stride(d);
  for (int64_t d = end; d < rank; ++d) strides[d] = x.stride(d - end + part.axis + count);
  const at::Tensor source = Alias(self, part.selected, strides, 0);
  c10::SmallVector<at::Tensor, 4> operands = {source};
  for (const Value& index : part.indices) {
    c10::DimVector sizes(rank, 1), steps(rank, 0);
    int64_t step = 1;
    for (int64_t d = 1; d <= index->dim(); ++d) {
      const int64_t size = index->sizes()[index->dim() - d];
      sizes[end - d] = size;
      if (size != 1) steps[end - d] = step;
      step *= size;
    }
    operands.push_back(Alias(self, sizes, steps, 0));
  }
  c10::SmallVector<const at::Tensor*, 4> pointers;
  for (const at::Tensor& each : operands) pointers.push_back(&each);
  return MakeElementwise(pointers, self.scalar_type(), DeviceOf(self));
}
at::Tensor Index(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  const Selection part = Select(self, indices);
  const Value made = IndexValue(self, part);
  if (C10_LIKELY(self.is_contiguous()) || part.indices.empty())
    return MakeTensor(made, DeviceOf(self));
  at::Tensor out = MakeSelected(self, part);
  Write(out, made);
  return out;
}
at::Tensor& IndexOut(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     at::Tensor& out) {
  return WriteOut(out, IndexValue(self, Select(self, indices)));
}

// `line`: a storage as a tensor with one axis. `places`: the indices of a tensor's elements in it.
struct Places {
  at::Tensor line, places;
};
Places PlacesOf(const at::Tensor& self) {
  const int64_t count[] = {static_cast<int64_t>(CellOf(self)->nbytes() / self.element_size())};
  const int64_t step[] = {1};
  const Value all = Arange(DeviceOf(self), count[0]);
  const Value places = AsStrided(all, self.sizes(), self.strides(), self.storage_offset());
  return {Alias(self, count, step, 0), MakeTensor(places, DeviceOf(self))};
}

// A mask of bools, and the sizes with which it broadcasts to the tensor.
struct Mask {
  at::Tensor mask;
  c10::DimVector sizes;
};
// If slices and one mask select the elements, returns the mask. Otherwise returns null.
std::optional<Mask> SingleMask(const at::Tensor& self,
                               const c10::List<std::optional<at::Tensor>>& indices) {
  Mask found = {{}, c10::DimVector(self.dim(), 1)};
  int64_t axis = 0;
  for (const std::optional<at::Tensor>& each : indices) {
    if (!IsGiven(each)) {
      ++axis;
      continue;
    }
    if (found.mask.defined() || each->scalar_type() != at::kBool) return std::nullopt;
    for (const int64_t size : each->sizes()) {
      if (axis >= self.dim() || self.size(axis) != size) return std::nullopt;
      found.sizes[axis++] = size;
    }
    found.mask = *each;
  }
  return found.mask.defined() ? std::optional(found) : std::nullopt;
}

at::Tensor& IndexPut(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     const at::Tensor& values, bool accumulate, bool) {
  const c10::DeviceIndex device = CommonDevice("index_put_", {&self, &values});
  at::assert_no_overlap(self, values);
  for (const std::optional<at::Tensor>& each : indices) {
    if (IsGiven(each)) at::assert_no_overlap(self, *each);
  }
  // If one mask selects the elements, and there is one value, this doesn't wait, and the value may
  // have any dtype.
  const auto mask = !accumulate && values.numel() == 1 ? SingleMask(self, indices) : std::nullopt;
  const auto check_dtypes = [&] {
    TORCH_CHECK(self.scalar_type() == values.scalar_type(),
                "Index put requires the source and destination dtypes match, got ",
                self.scalar_type(), " for the destination and ", values.scalar_type(),
                " for the source.");
  };
  if (self.numel() == 0 && values.numel() == 0) {
    check_dtypes();
    return self;
  }
  if (WarnIfExpanded("index_put_", self)) {
    Places all = PlacesOf(self);
    c10::List<std::optional<at::Tensor>> chosen;
    chosen.push_back(Index(all.places, indices));
    IndexPut(all.line, chosen, mask ? values.to(self.scalar_type()) : values, accumulate, false);
    return self;
  }
  const Value source = ReadAs(values, self.scalar_type(), device);
  if (mask) {
    const Value chosen = Reshape(ReadIndex(mask->mask, device), mask->sizes);
    Write(self, Where(BroadcastTo(chosen, self.sizes()), Reshape(source, {}), Read(self)));
    return self;
  }
  const Selection part = Select(self, indices);
  TORCH_CHECK(at::is_expandable_to(values.sizes(), part.selected),
              "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", part.selected);
  check_dtypes();
  if (part.indices.empty()) {
    Write(self, accumulate ? Add(part.x, source) : source);
    return self;
  }
  if (c10::multiply_integers(part.selected) == 0) return self;
  c10::SmallVector<In, 4> inputs = {part.x};
  for (const Value& index : part.indices) inputs.emplace_back(index);
  const Value spread = source->dim() == 0 ? source : BroadcastTo(source, part.selected);
  inputs.emplace_back(spread);
  Value result = Named(kIndexPut, device,
                       PushAll("index_put", inputs,
                               {{"axis", part.axis}, {"reduce", accumulate ? "add" : "none"}})[0]);
  if (!part.order.empty()) {
    c10::DimVector back(part.order.size());
    for (size_t i = 0; i < part.order.size(); ++i) back[part.order[i]] = static_cast<int64_t>(i);
    result = Permute(result, back);
  }
  Write(self, result);
  return self;
}

// ---- an index for one axis

void RequireIndex(const Origin& origin, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, origin.function,
              "(): Expected dtype int32 or int64 for index, but got ", index.scalar_type());
}

Value Line(const Value& x) { return x->dim() == 0 ? Reshape(x, {1}) : x; }

Value IndexSelectValue(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_select(): Index is supposed to be a vector, but got dim: ", index.dim());
  CommonDevice("index_select", {&self, &index});
  RequireIndex(kIndexSelect, index);
  const Value places = Line(ReadIndex(index, DeviceOf(self)));
  const Value picked =
      Named(kIndexSelect, DeviceOf(self),
            Push("index", {Line(Read(self)), places},
                 {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"from_end", false}}));
  return self.dim() == 0 ? Reshape(picked, {}) : picked;
}
at::Tensor IndexSelect(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return MakeTensor(IndexSelectValue(self, dim, index), DeviceOf(self));
}
at::Tensor& IndexSelectOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                           at::Tensor& out) {
  return WriteOut(out, IndexSelectValue(self, dim, index));
}

Value PutAlong(const Origin& origin, const at::Tensor& self, int64_t dim, const at::Tensor& index,
               const Value& source, const char* reduce) {
  RequireIndex(origin, index);
  const Value places = Line(ReadIndex(index, DeviceOf(self)));
  const Value x = Line(Read(self));
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  Value values = source;
  if (values->dim() > 0 || self.dim() > 0) {
    c10::DimVector sizes(x->sizes());
    sizes[axis] = places->numel();
    values = source->dim() == 0 && sizes.size() > 1 ? source : Reshape(source, sizes);
  }
  if (values->dim() == 0 && places->numel() == 1 && x->dim() == 1) values = Reshape(values, {1});
  const Value made = Push("index_put", {x, places, values},
                          {{"axis", axis}, {"reduce", reduce}, {"from_end", false}});
  return Reshape(Named(origin, DeviceOf(self), made), self.sizes());
}
at::Tensor& IndexAddOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                        const at::Tensor& source, const at::Scalar& alpha, at::Tensor& out) {
  CommonDevice("index_add", {&self, &index, &source});
  if (index.numel() == 0) return WriteOut(out, Read(self));
  Value values = Read(source);
  const In factor = Checked(alpha, values->dtype());
  if (!alpha.equal(1)) values = Push(server_op<"mul">, {values, factor});
  return WriteOut(out, PutAlong(kIndexAdd, self, dim, index, values, "add"));
}
at::Tensor& IndexCopyOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                         const at::Tensor& source, at::Tensor& out) {
  CommonDevice("index_copy", {&self, &index, &source});
  if (index.numel() == 0) return WriteOut(out, Read(self));
  return WriteOut(out, PutAlong(kIndexCopy, self, dim, index, Read(source), "none"));
}
at::Tensor& IndexFillScalar(at::Tensor& self, int64_t dim, const at::Tensor& index,
                            const at::Scalar& value) {
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_fill_(): Expected dtype int64 for index.");
  at::assert_no_overlap(self, index);
  if (index.numel() == 0 || self.numel() == 0) return self;
  RequireIndex(kIndexFill, index);
  if (WarnIfExpanded("index_fill_", self)) {
    Places all = PlacesOf(self);
    // Unlike IndexSelect, Index accepts negative indices.
    c10::List<std::optional<at::Tensor>> chosen;
    for (int64_t axis = at::maybe_wrap_dim(dim, self.dim()); axis > 0; --axis)
      chosen.push_back(std::nullopt);
    chosen.push_back(index);
    IndexFillScalar(all.line, 0, Index(all.places, chosen).reshape({-1}), value);
    return self;
  }
  const Value number = Full(DeviceOf(self), {}, Checked(value, self.scalar_type()));
  const Value places = Line(ReadIndex(index, DeviceOf(self)));
  const Value made = Push("index_put", {Line(Read(self)), places, number},
                          {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"reduce", "none"}});
  Write(self, Reshape(Named(kIndexFill, DeviceOf(self), made), self.sizes()));
  return self;
}
at::Tensor& IndexFillTensor(at::Tensor& self, int64_t dim, const at::Tensor& index,
                            const at::Tensor& value) {
  return IndexFillScalar(self, dim, index, value.item());
}

// ---- gather and scatter

at::Tensor& GatherOut(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool,
                      at::Tensor& out) {
  CommonDevice("gather", {&self, &index});
  if (index.numel() == 0) {
    Resize(out, index.sizes());
    return out;
  }
  const Value x = Line(Read(self)), places = Line(Read(index));
  const Value made = Push("gather", {x, places},
                          {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"from_end", false}});
  return WriteOut(out, Reshape(Named(kGather, DeviceOf(self), made), index.sizes()));
}

Value ScatterValue(const Origin& origin, const at::Tensor& self, int64_t dim, const Value& index,
                   const Value& source, const char* reduce) {
  const Value values = source->dim() == 0 ? source : Line(source);
  const Value made = Push(
      "scatter", {Line(Read(self)), Line(index), values},
      {{"axis", at::maybe_wrap_dim(dim, self.dim())}, {"reduce", reduce}, {"from_end", false}});
  return Reshape(Named(origin, DeviceOf(self), made), self.sizes());
}
const char* ReduceName(c10::string_view name) {
  if (name == "add" || name == "sum" || name == "mean") return "add";
  if (name == "multiply" || name == "prod") return "mul";
  if (name == "amax") return "max";
  TORCH_CHECK(name == "amin",
              "reduce argument must be add, multiply, sum, prod, mean, amax or amin");
  return "min";
}
at::Tensor& ScatterWith(const Origin& origin, const at::Tensor& self, int64_t dim,
                        const at::Tensor& index, const at::Tensor& source, const char* reduce,
                        at::Tensor& out) {
  CommonDevice("scatter", {&self, &index, &source});
  if (index.numel() == 0) return WriteOut(out, Read(self));
  return WriteOut(out, ScatterValue(origin, self, dim, Read(index), Read(source), reduce));
}
at::Tensor& ScatterNumber(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Scalar& value, const char* reduce, at::Tensor& out) {
  CommonDevice("scatter", {&self, &index});
  if (index.numel() == 0) return WriteOut(out, Read(self));
  const Value number = Full(DeviceOf(self), {}, Checked(value, self.scalar_type()));
  return WriteOut(out, ScatterValue(kScatterValue, self, dim, Read(index), number, reduce));
}
at::Tensor& ScatterSrcOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Tensor& source, at::Tensor& out) {
  return ScatterWith(kScatter, self, dim, index, source, "none", out);
}
at::Tensor& ScatterAddOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Tensor& source, at::Tensor& out) {
  return ScatterWith(kScatterAdd, self, dim, index, source, "add", out);
}
at::Tensor& ScatterReduceOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             const at::Tensor& source, c10::string_view reduce, at::Tensor& out) {
  return ScatterWith(kScatterReduce, self, dim, index, source, ReduceName(reduce), out);
}
at::Tensor& ScatterValueOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                            const at::Scalar& value, at::Tensor& out) {
  return ScatterNumber(self, dim, index, value, "none", out);
}
at::Tensor& ScatterValueReduceOut(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                  const at::Scalar& value, c10::string_view reduce,
                                  at::Tensor& out) {
  return ScatterNumber(self, dim, index, value, ReduceName(reduce), out);
}

// ---- masks

Value MaskedSelectValue(const at::Tensor& self, const at::Tensor& mask) {
  CommonDevice("masked_select", {&self, &mask});
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const c10::DimVector sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
  const int64_t count = c10::multiply_integers(sizes);
  if (count == 0) return Zeros(DeviceOf(self), {0}, self.scalar_type());
  const Value x = Reshape(BroadcastTo(ReadForBroadcast(self), sizes), {count});
  const Value places = NonZero(Reshape(BroadcastTo(ReadForBroadcast(mask), sizes), {count}));
  return Push("index", {x, Reshape(places, {places->numel()})}, {{"axis", 0}});
}
at::Tensor MaskedSelect(const at::Tensor& self, const at::Tensor& mask) {
  return MakeTensor(MaskedSelectValue(self, mask), DeviceOf(self));
}
at::Tensor& MaskedSelectOut(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  return WriteOut(out, MaskedSelectValue(self, mask));
}
at::Tensor NonZeroOf(const at::Tensor& self) {
  if (self.dim() == 0) {
    const int64_t count =
        Fetch(Cast(Push(server_op<"ne">, {Read(self), In(0, self.scalar_type())}), at::kLong))
            .toLong();
    return MakeContiguous({count, 0}, at::kLong, DeviceOf(self));
  }
  if (self.numel() == 0) return MakeContiguous({0, self.dim()}, at::kLong, DeviceOf(self));
  // As on the CPU, an index for each axis lies in one piece.
  return MakeTensor(NonZeroLines(Read(self)), DeviceOf(self)).t();
}
// Writes the elements of `source`, in order, where the mask is true. If there are too few of them,
// the result has an error. Waits only if the source is empty.
at::Tensor& MaskedScatter(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  CommonDevice("masked_scatter_", {&self, &mask, &source});
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, mask);
  if (self.numel() == 0) return self;
  if (source.numel() == 0) {
    const int64_t selected = Fetch(Reduce("count_nonzero", Read(mask), {}, false)).toLong();
    TORCH_CHECK(selected == 0, "masked_scatter_: the mask selects elements, but source is empty");
    return self;
  }
  const Value where = Reshape(BroadcastTo(ReadForBroadcast(mask), self.sizes()), {self.numel()});
  const Value counts = Push("cumsum", {where}, {{"axis", 0}});
  const Value place = Push(server_op<"maximum">, {Sub(counts, at::Scalar(1)), In(0, at::kLong)});
  const Value line = Reshape(Read(source), {source.numel()});
  const Value moved =
      Named(kMaskedScatter, DeviceOf(self), Push("index", {line, place}, {{"axis", 0}}));
  Write(self, Reshape(Where(where, moved, Reshape(Read(self), {self.numel()})), self.sizes()));
  return self;
}

at::Tensor Take(const at::Tensor& self, const at::Tensor& index) {
  CommonDevice("take", {&self, &index});
  RequireIndex(kTake, index);
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0,
                    "take(): tried to take from an empty tensor");
  const Value made =
      Push("index", {Reshape(Read(self), {self.numel()}), Read(index)}, {{"axis", 0}});
  return MakeTensor(Named(kTake, DeviceOf(self), made), DeviceOf(self));
}

// ---- embeddings

at::Tensor Embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
      "Long, Int; but got ",
      indices.scalar_type(), " instead (while checking arguments for embedding)");
  const c10::DeviceIndex device = CommonDevice("embedding", {&weight, &indices});
  const Value made =
      Push("index", {Read(weight), Read(indices)}, {{"axis", 0}, {"from_end", false}});
  return MakeTensor(Named(kEmbedding, device, made), device);
}
at::Tensor EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& indices, int64_t rows,
                             int64_t padding, bool scale) {
  const c10::DeviceIndex device = CommonDevice("embedding_dense_backward", {&gradient, &indices});
  c10::DimVector padded;
  if (padding >= 0 && padding < rows) padded.push_back(padding);
  const Value made = Push("embedding_backward", {Read(gradient), Read(indices)},
                          {{"rows", rows}, {"padding_idx", padded}, {"scale_grad_by_freq", scale}});
  return MakeTensor(Named(kEmbeddingBackward, device, made), device);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("index.Tensor", Index);
  m.impl("index.Tensor_out", IndexOut);
  m.impl("_index_put_impl_", IndexPut);
  m.impl("index_select", IndexSelect);
  m.impl("index_select.out", IndexSelectOut);
  m.impl("index_add.out", IndexAddOut);
  m.impl("index_copy.out", IndexCopyOut);
  m.impl("index_fill_.int_Scalar", IndexFillScalar);
  m.impl("index_fill_.int_Tensor", IndexFillTensor);
  m.impl("gather.out", GatherOut);
  m.impl("scatter.src_out", ScatterSrcOut);
  m.impl("scatter.value_out", ScatterValueOut);
  m.impl("scatter.reduce_out", ScatterReduceOut);
  m.impl("scatter.value_reduce_out", ScatterValueReduceOut);
  m.impl("scatter_add.out", ScatterAddOut);
  m.impl("masked_select", MaskedSelect);
  m.impl("masked_select.out", MaskedSelectOut);
  m.impl("nonzero", NonZeroOf);
  m.impl("masked_scatter_", MaskedScatter);
  m.impl("take", Take);
  m.impl("embedding", Embedding);
  m.impl("embedding_dense_backward", EmbeddingBackward);
}

}  // namespace torch_tensord
