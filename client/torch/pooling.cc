// Pools, windows as columns, and their gradients.
#include <ATen/ops/empty.h>

#include "resampling.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

// Returns an option of a pool for each axis. The given one is empty, one number for all axes, or
// one for each.
template <size_t kAxes>
c10::DimVector PerAxis(at::IntArrayRef given, at::IntArrayRef fallback) {
  if (given.empty()) return c10::DimVector(fallback);
  if (given.size() == 1) return c10::DimVector(kAxes, given[0]);
  return c10::DimVector(given);
}
template <size_t kAxes>
at::IntArrayRef Spatial(const at::Tensor& self) {
  return self.sizes().slice(self.dim() - kAxes);
}

// Returns the elements, which must be floating.
Value ReadFloating(const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "a pool of ",
                              self.scalar_type(),
                              " isn't implemented on tensord: convert it to a floating dtype");
  return Read(self);
}

// ---- maximum

// Only the axis of the batch may have size 0.
template <size_t kAxes>
void CheckNotEmpty(const at::Tensor& self) {
  const int64_t first = self.dim() == kAxes + 2 ? 1 : 0;
  for (int64_t i = first; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, "max_pool", kAxes,
                "d: Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", i, " being empty");
  }
}

template <size_t kAxes>
struct MaxPool {
  static std::tuple<at::Tensor&, at::Tensor&> Out(const at::Tensor& self, at::IntArrayRef kernel,
                                                  at::IntArrayRef stride, at::IntArrayRef padding,
                                                  at::IntArrayRef dilation, bool ceil_mode,
                                                  at::Tensor& out, at::Tensor& indices) {
    const c10::DimVector k = PerAxis<kAxes>(kernel, {}), s = PerAxis<kAxes>(stride, k),
                         p = PerAxis<kAxes>(padding, {}), d = PerAxis<kAxes>(dilation, {});
    CheckNotEmpty<kAxes>(self);
    const Value x = ReadFloating(self);
    const std::vector<Value> both = PushAll("max_pool", In(x),
                                            {{"kernel", at::IntArrayRef(k)},
                                             {"stride", at::IntArrayRef(s)},
                                             {"padding", at::IntArrayRef(p)},
                                             {"dilation", at::IntArrayRef(d)},
                                             {"ceil_mode", ceil_mode}});
    WriteOut(out, both[0]);
    WriteOut(indices, both[1]);
    return {out, indices};
  }
  static at::Tensor& BackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 at::IntArrayRef kernel, at::IntArrayRef stride,
                                 at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                                 const at::Tensor& indices, at::Tensor& out) {
    const c10::DimVector k = PerAxis<kAxes>(kernel, {}), s = PerAxis<kAxes>(stride, k),
                         p = PerAxis<kAxes>(padding, {}), d = PerAxis<kAxes>(dilation, {});
    return WriteOut(out, Push("max_pool_backward", {Read(gradient), Read(indices)},
                              {{"kernel", at::IntArrayRef(k)},
                               {"stride", at::IntArrayRef(s)},
                               {"padding", at::IntArrayRef(p)},
                               {"dilation", at::IntArrayRef(d)},
                               {"ceil_mode", ceil_mode},
                               {"size", Spatial<kAxes>(self)}}));
  }
  // A pool of three axes isn't a structured op of PyTorch, so it needs a functional form.
  static std::tuple<at::Tensor, at::Tensor> Run(const at::Tensor& self, at::IntArrayRef kernel,
                                                at::IntArrayRef stride, at::IntArrayRef padding,
                                                at::IntArrayRef dilation, bool ceil_mode) {
    at::Tensor out = MakeContiguous({0}, self.scalar_type(), DeviceOf(self));
    at::Tensor indices = MakeContiguous({0}, at::kLong, DeviceOf(self));
    Out(self, kernel, stride, padding, dilation, ceil_mode, out, indices);
    const at::MemoryFormat format = self.suggest_memory_format();
    return {out.contiguous(format), indices.contiguous(format)};
  }
  static at::Tensor Backward(const at::Tensor& gradient, const at::Tensor& self,
                             at::IntArrayRef kernel, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
                             const at::Tensor& indices) {
    at::Tensor out = MakeContiguous(self.sizes(), gradient.scalar_type(), DeviceOf(self));
    return BackwardOut(gradient, self, kernel, stride, padding, dilation, ceil_mode, indices, out);
  }
};

// ---- average

struct AvgOptions {
  c10::DimVector kernel, stride, padding;
  bool ceil_mode = false, count_padding = true;
  int64_t divisor = 0;
};
Value AvgPoolOf(const Value& x, const AvgOptions& options) {
  return Push("avg_pool", {x},
              {{"kernel", at::IntArrayRef(options.kernel)},
               {"stride", at::IntArrayRef(options.stride)},
               {"padding", at::IntArrayRef(options.padding)},
               {"ceil_mode", options.ceil_mode},
               {"count_include_pad", options.count_padding},
               {"divisor", options.divisor}});
}
Value AvgPoolGradient(const Value& g, at::IntArrayRef size, const AvgOptions& options) {
  return Push("avg_pool_backward", {g},
              {{"kernel", at::IntArrayRef(options.kernel)},
               {"stride", at::IntArrayRef(options.stride)},
               {"padding", at::IntArrayRef(options.padding)},
               {"ceil_mode", options.ceil_mode},
               {"count_include_pad", options.count_padding},
               {"divisor", options.divisor},
               {"size", size}});
}
template <size_t kAxes>
struct AvgPool {
  static AvgOptions Options(at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                            bool ceil_mode, bool count_padding, std::optional<int64_t> divisor) {
    const c10::DimVector k = PerAxis<kAxes>(kernel, {});
    return {k,
            PerAxis<kAxes>(stride, k),
            PerAxis<kAxes>(padding, {}),
            ceil_mode,
            count_padding,
            divisor.value_or(0)};
  }
  static at::Tensor& Out(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                         at::IntArrayRef padding, bool ceil_mode, bool count_padding,
                         std::optional<int64_t> divisor, at::Tensor& out) {
    return WriteOut(out, AvgPoolOf(ReadFloating(self), Options(kernel, stride, padding, ceil_mode,
                                                               count_padding, divisor)));
  }
  static at::Tensor& BackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 at::IntArrayRef kernel, at::IntArrayRef stride,
                                 at::IntArrayRef padding, bool ceil_mode, bool count_padding,
                                 std::optional<int64_t> divisor, at::Tensor& out) {
    return WriteOut(
        out, AvgPoolGradient(Read(gradient), Spatial<kAxes>(self),
                             Options(kernel, stride, padding, ceil_mode, count_padding, divisor)));
  }
};

// ---- adaptive average

// Returns the pool that computes the adaptive pool, if all windows of an axis have one size.
template <size_t kAxes>
std::optional<AvgOptions> EvenWindows(at::IntArrayRef in, at::IntArrayRef out) {
  AvgOptions options;
  for (size_t i = 0; i < kAxes; ++i) {
    if (out[i] == 0 || in[i] % out[i] != 0) return std::nullopt;
    options.kernel.push_back(in[i] / out[i]);
  }
  options.stride = options.kernel;
  options.padding.resize(kAxes, 0);
  return options;
}
using Maps = c10::SmallVector<LinearMap, 3>;
template <size_t kAxes>
Maps AverageMaps(at::IntArrayRef in, at::IntArrayRef out) {
  Maps maps;
  for (size_t i = 0; i < kAxes; ++i) maps.push_back(AdaptiveAverage(in[i], out[i]));
  return maps;
}
template <size_t kAxes>
struct AdaptiveAvgPool {
  static void CheckInput(const at::Tensor& self) {
    for (const int64_t size : Spatial<kAxes>(self)) {
      TORCH_CHECK(size > 0, "adaptive_avg_pool", kAxes,
                  "d(): Expected input to have non-zero size for non-batch dimensions, but input "
                  "has sizes ",
                  self.sizes());
    }
    TORCH_CHECK(self.dim() == kAxes + 1 || self.dim() == kAxes + 2, "adaptive_avg_pool", kAxes,
                "d(): Expected ", kAxes + 1, "D or ", kAxes + 2, "D tensor, but got ",
                self.sizes());
  }
  static Value Compute(const at::Tensor& self, at::IntArrayRef size) {
    TORCH_CHECK(size.size() == kAxes, "adaptive_avg_pool", kAxes, "d: output_size must be ", kAxes);
    CheckInput(self);
    c10::DimVector sizes(self.sizes().slice(0, self.dim() - kAxes));
    sizes.append(size.begin(), size.end());
    if (c10::multiply_integers(sizes) == 0) return Zeros(DeviceOf(self), sizes, self.scalar_type());
    const std::optional<AvgOptions> even = EvenWindows<kAxes>(Spatial<kAxes>(self), size);
    if (even) return AvgPoolOf(ReadFloating(self), *even);
    return ApplyAll(AverageMaps<kAxes>(Spatial<kAxes>(self), size), self);
  }
  static at::Tensor Run(const at::Tensor& self, at::IntArrayRef size) {
    return MakeInFormat(Compute(self, size), DeviceOf(self), self.suggest_memory_format());
  }
  static at::Tensor& Out(const at::Tensor& self, at::IntArrayRef size, at::Tensor& out) {
    return WriteOut(out, Compute(self, size));
  }
  static Value Gradient(const at::Tensor& gradient, const at::Tensor& self) {
    if (gradient.numel() == 0) return Zeros(DeviceOf(self), self.sizes(), self.scalar_type());
    const at::IntArrayRef in = Spatial<kAxes>(self), out = Spatial<kAxes>(gradient);
    const std::optional<AvgOptions> even = EvenWindows<kAxes>(in, out);
    if (even) return AvgPoolGradient(Read(gradient), in, *even);
    return ApplyAllTransposed(AverageMaps<kAxes>(in, out), gradient);
  }
  static at::Tensor Backward(const at::Tensor& gradient, const at::Tensor& self) {
    return MakeInFormat(Gradient(gradient, self), DeviceOf(self), self.suggest_memory_format());
  }
  static at::Tensor& BackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                 at::Tensor& out) {
    return WriteOut(out, Gradient(gradient, self));
  }
};

// ---- adaptive maximum

// Reads all windows, each filled up with its last element, and takes the first maximum of each.
template <size_t kAxes>
struct AdaptiveMaxPool {
  static std::tuple<at::Tensor&, at::Tensor&> Out(const at::Tensor& self, at::IntArrayRef size,
                                                  at::Tensor& out, at::Tensor& indices) {
    const c10::DeviceIndex device = DeviceOf(self);
    const int64_t outer = self.dim() - kAxes;
    c10::DimVector sizes(self.sizes().slice(0, outer));
    sizes.append(size.begin(), size.end());
    if (c10::multiply_integers(sizes) == 0) {
      Resize(out, sizes);
      Resize(indices, sizes);
      return {out, indices};
    }
    Value x = Read(self);
    // `places` has the place of each element of the windows, with the axes (out, window) for each
    // axis.
    Value places;
    c10::DimVector windows, table(self.sizes().slice(0, outer)), order;
    for (int64_t d = 0; d < outer; ++d) order.push_back(d);
    for (size_t a = 0; a < kAxes; ++a) {
      const LinearMap map = AdaptiveAverage(Spatial<kAxes>(self)[a], size[a]);
      std::vector<int64_t> rows = map.index;
      for (int64_t i = 0; i < map.out; ++i) {
        for (int64_t t = 1; t < map.terms; ++t) {
          if (rows[i * map.terms + t] < 0) rows[i * map.terms + t] = rows[i * map.terms + t - 1];
        }
      }
      windows.push_back(map.terms);
      table.push_back(map.out);
      table.push_back(map.terms);
      const Value axis = UploadIntegers(rows, {map.out, map.terms}, device);
      // After this, axis outer + 2a is the place, and the next one the element of the window.
      x = Push("index", {x, axis}, {{"axis", outer + static_cast<int64_t>(2 * a)}});
      c10::DimVector shape(2 * (a + 1), 1);
      shape[2 * a] = map.out;
      shape[2 * a + 1] = map.terms;
      const Value row = Reshape(axis, shape);
      if (places) {
        c10::DimVector wider(places->sizes());
        wider.append({1, 1});
        places = Add(Mul(Reshape(places, wider), at::Scalar(Spatial<kAxes>(self)[a])), row);
      } else {
        places = row;
      }
    }
    // Brings the elements of the windows together.
    c10::DimVector inner;
    for (size_t a = 0; a < kAxes; ++a) inner.push_back(static_cast<int64_t>(2 * a));
    for (size_t a = 0; a < kAxes; ++a) inner.push_back(static_cast<int64_t>(2 * a + 1));
    for (const int64_t d : inner) order.push_back(outer + d);
    const int64_t window = c10::multiply_integers(windows);
    c10::DimVector lines(self.sizes().slice(0, outer)), place_lines(size);
    lines.append(size.begin(), size.end());
    lines.push_back(window);
    place_lines.push_back(window);
    x = Reshape(Permute(x, order), lines);
    places = BroadcastTo(Reshape(Permute(places, inner), place_lines), lines);
    const int64_t last = static_cast<int64_t>(lines.size()) - 1;
    const Value first = Reduce("argmax", x, {last}, true);
    const at::IntArrayRef result = at::IntArrayRef(lines).slice(0, last);
    WriteOut(out, Reshape(Push("gather", {x, first}, {{"axis", last}}), result));
    WriteOut(indices, Reshape(Push("gather", {places, first}, {{"axis", last}}), result));
    return {out, indices};
  }
  static at::Tensor& BackwardOut(const at::Tensor& gradient, const at::Tensor&,
                                 const at::Tensor& indices, at::Tensor& out) {
    if (gradient.numel() == 0) return out.zero_();
    c10::DimVector lines(out.sizes().slice(0, out.dim() - kAxes)), flat = lines;
    lines.push_back(c10::multiply_integers(Spatial<kAxes>(gradient)));
    flat.push_back(c10::multiply_integers(Spatial<kAxes>(out)));
    const Value zeros = Zeros(DeviceOf(out), flat, gradient.scalar_type());
    const Value sums =
        Push("scatter", {zeros, Reshape(Read(indices), lines), Reshape(Read(gradient), lines)},
             {{"axis", static_cast<int64_t>(flat.size()) - 1}, {"reduce", "add"}}, 1);
    return WriteOut(out, Reshape(sums, out.sizes()));
  }
};

// ---- the inverse of a pool: each element goes to its index

constexpr Origin kUnpool{"scatter", "max_unpool", "the indices"};

template <size_t kAxes>
Value Unpool(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef size) {
  // PyTorch makes this check on every device, because CUDA and the CPU may keep any of the elements
  // with one index. The server keeps the last one.
  at::globalContext().alertNotDeterministic(kAxes == 2 ? "max_unpooling2d_forward_out"
                                                       : "max_unpooling3d_forward_out");
  CommonDevice("max_unpool", {&self, &indices});
  TORCH_CHECK(self.dim() == kAxes + 1 || self.dim() == kAxes + 2, "Input to max_unpooling", kAxes,
              "d should be a ", kAxes + 1, "d or ", kAxes + 2, "d Tensor, but got a tensor with ",
              self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes().equals(indices.sizes()),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t d = 1; d < self.dim(); ++d) {
    TORCH_CHECK(self.size(d) > 0, "max_unpooling", kAxes,
                "d: Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", d, " being empty");
  }
  c10::DimVector result(self.sizes().slice(0, self.dim() - kAxes));
  c10::DimVector lines = result, flat = result;
  result.append(size.begin(), size.end());
  lines.push_back(c10::multiply_integers(Spatial<kAxes>(self)));
  flat.push_back(c10::multiply_integers(size));
  const Value zeros = Zeros(DeviceOf(self), flat, self.scalar_type());
  if (self.numel() == 0) return Reshape(zeros, result);
  const Value made =
      Push("scatter", {zeros, Reshape(Read(indices), lines), Reshape(Read(self), lines)},
           {{"axis", static_cast<int64_t>(flat.size()) - 1}, {"reduce", "none"}}, 1);
  return Reshape(Named(kUnpool, DeviceOf(self), made), result);
}
at::Tensor Unpool2(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef size) {
  return MakeInFormat(Unpool<2>(self, indices, size), DeviceOf(self), self.suggest_memory_format());
}
at::Tensor& Unpool2Out(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef size,
                       at::Tensor& out) {
  return WriteOut(out, Unpool<2>(self, indices, size));
}
void CheckStride(at::IntArrayRef stride) {
  for (const int64_t each : stride) {
    TORCH_CHECK(each > 0, "strides should be greater than zero, but got stride: ", stride);
  }
}
at::Tensor Unpool3(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef size,
                   at::IntArrayRef stride, at::IntArrayRef) {
  CheckStride(stride);
  return MakeInFormat(Unpool<3>(self, indices, size), DeviceOf(self), self.suggest_memory_format());
}
at::Tensor& Unpool3Out(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef size,
                       at::IntArrayRef stride, at::IntArrayRef, at::Tensor& out) {
  CheckStride(stride);
  return WriteOut(out, Unpool<3>(self, indices, size));
}

// ---- windows as columns

struct Columns {
  int64_t batch, channels, height, width;  // of the image
  int64_t padded_height, padded_width;
  c10::DimVector kernel, dilation, padding, stride;
  int64_t rows, columns;  // of windows
};
Columns ColumnsOf(const char* name, int64_t batch, int64_t channels, at::IntArrayRef image,
                  at::IntArrayRef kernel, at::IntArrayRef dilation, at::IntArrayRef padding,
                  at::IntArrayRef stride) {
  Columns c = {batch,
               channels,
               image[0],
               image[1],
               0,
               0,
               PerAxis<2>(kernel, {}),
               PerAxis<2>(dilation, {}),
               PerAxis<2>(padding, {}),
               PerAxis<2>(stride, {}),
               0,
               0};
  c.padded_height = c.height + 2 * c.padding[0];
  c.padded_width = c.width + 2 * c.padding[1];
  const auto windows = [](int64_t size, int64_t kernel, int64_t dilation, int64_t stride) {
    const int64_t extent = dilation * (kernel - 1) + 1;
    return size < extent ? 0 : (size - extent) / stride + 1;
  };
  for (size_t i = 0; i < 2; ++i) {
    TORCH_CHECK(c.kernel[i] > 0 && c.dilation[i] > 0 && c.stride[i] > 0 && c.padding[i] >= 0, name,
                ": kernel, dilation and stride should be greater than zero, and padding not "
                "negative");
  }
  c.rows = windows(c.padded_height, c.kernel[0], c.dilation[0], c.stride[0]);
  c.columns = windows(c.padded_width, c.kernel[1], c.dilation[1], c.stride[1]);
  TORCH_CHECK(c.rows > 0 && c.columns > 0, name, ": the calculated shape of the array of sliding ",
              "blocks is (", c.rows, ", ", c.columns, "), but its components must be at least one");
  return c;
}

// Only the batch may be empty.
void CheckElements(const char* ranks, const at::Tensor& self, int64_t rank) {
  bool valid = self.dim() == rank || self.dim() == rank + 1;
  for (int64_t d = self.dim() - rank; d >= 0 && d < self.dim(); ++d)
    valid = valid && self.size(d) > 0;
  TORCH_CHECK(valid, "Expected ", ranks,
              " (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
              "input, but got: ",
              self.sizes());
}
Value Im2Col(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef dilation,
             at::IntArrayRef padding, at::IntArrayRef stride) {
  CheckElements("3D or 4D", self, 3);
  const bool batched = self.dim() == 4;
  const Columns c = ColumnsOf("im2col", batched ? self.size(0) : 1, self.size(-3), Spatial<2>(self),
                              kernel, dilation, padding, stride);
  const c10::DeviceIndex device = DeviceOf(self);
  c10::DimVector result = {c.channels * c.kernel[0] * c.kernel[1], c.rows * c.columns};
  if (batched) result.insert(result.begin(), c.batch);
  if (self.numel() == 0) return Zeros(device, result, self.scalar_type());
  const int64_t h = c.padded_height, w = c.padded_width;
  Value x = Read(self);
  if (h != c.height || w != c.width) {
    const int64_t shape[] = {c.batch, c.channels, c.height, c.width},
                  strides[] = {c.channels * h * w, h * w, w, 1},
                  padded[] = {c.batch, c.channels, h, w};
    x = Push("as_strided_scatter", {Zeros(device, padded, x->dtype()), Reshape(x, shape)},
             {{"shape", at::IntArrayRef(shape)},
              {"strides", at::IntArrayRef(strides)},
              {"offset", c.padding[0] * w + c.padding[1]}},
             1);
  }
  const Value windows = AsStrided(
      x, {c.batch, c.channels, c.kernel[0], c.kernel[1], c.rows, c.columns},
      {c.channels * h * w, h * w, c.dilation[0] * w, c.dilation[1], c.stride[0] * w, c.stride[1]},
      0);
  return Reshape(windows, result);
}
// Adds each column to the elements of its window.
Value Col2Im(const at::Tensor& self, at::IntArrayRef image, at::IntArrayRef kernel,
             at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  CheckElements("2D or 3D", self, 2);
  TORCH_CHECK(kernel.size() == 2 && image.size() == 2,
              "It is expected output_size and kernel_size equal to 2");
  const bool batched = self.dim() == 3;
  const int64_t taps = kernel[0] * kernel[1];
  TORCH_CHECK(taps > 0 && self.size(-2) % taps == 0,
              "Expected size of input's first non-batch dimension to be divisible by the product "
              "of kernel_size, but got input.size(-2)=",
              self.size(-2), " and kernel_size=", kernel);
  const Columns c = ColumnsOf("col2im", batched ? self.size(0) : 1, self.size(-2) / taps, image,
                              kernel, dilation, padding, stride);
  TORCH_CHECK(self.size(-1) == c.rows * c.columns, "Expected size of input's dimension ",
              self.dim() - 1, " to match the calculated number of sliding blocks ", c.rows, " * ",
              c.columns, " = ", c.rows * c.columns, ", but got ", self.size(-1));
  const c10::DeviceIndex device = DeviceOf(self);
  c10::DimVector result = {c.channels, c.height, c.width};
  if (batched) result.insert(result.begin(), c.batch);
  if (self.numel() == 0) return Zeros(device, result, self.scalar_type());
  const int64_t h = c.padded_height, w = c.padded_width;
  const auto line = [&](int64_t count, int64_t step, at::IntArrayRef shape) {
    return Reshape(Mul(Arange(device, count), at::Scalar(step)), shape);
  };
  const Value places = Add(
      Add(line(c.kernel[0], c.dilation[0] * w, {c.kernel[0], 1, 1, 1}),
          line(c.kernel[1], c.dilation[1], {c.kernel[1], 1, 1})),
      Add(line(c.rows, c.stride[0] * w, {c.rows, 1}), line(c.columns, c.stride[1], {c.columns})));
  const int64_t planes = c.batch * c.channels, count = taps * c.rows * c.columns;
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Value sums = Push("index_put",
                          {Zeros(device, {planes, h * w}, dtype), Reshape(places, {count}),
                           Reshape(Cast(Read(self), dtype), {planes, count})},
                          {{"axis", 1}, {"reduce", "add"}}, 1);
  const Value inside =
      AsStrided(sums, {planes, c.height, c.width}, {h * w, w, 1}, c.padding[0] * w + c.padding[1]);
  return Cast(Reshape(inside, result), self.scalar_type());
}
at::Tensor Im2ColOf(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef dilation,
                    at::IntArrayRef padding, at::IntArrayRef stride) {
  return MakeTensor(Im2Col(self, kernel, dilation, padding, stride), DeviceOf(self));
}
at::Tensor& Im2ColOut(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef dilation,
                      at::IntArrayRef padding, at::IntArrayRef stride, at::Tensor& out) {
  return WriteOut(out, Im2Col(self, kernel, dilation, padding, stride));
}
at::Tensor Col2ImOf(const at::Tensor& self, at::IntArrayRef image, at::IntArrayRef kernel,
                    at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  return MakeTensor(Col2Im(self, image, kernel, dilation, padding, stride), DeviceOf(self));
}
at::Tensor& Col2ImOut(const at::Tensor& self, at::IntArrayRef image, at::IntArrayRef kernel,
                      at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride,
                      at::Tensor& out) {
  return WriteOut(out, Col2Im(self, image, kernel, dilation, padding, stride));
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("max_pool2d_with_indices.out", MaxPool<2>::Out);
  m.impl("max_pool2d_with_indices_backward.grad_input", MaxPool<2>::BackwardOut);
  m.impl("max_pool3d_with_indices", MaxPool<3>::Run);
  m.impl("max_pool3d_with_indices.out", MaxPool<3>::Out);
  m.impl("max_pool3d_with_indices_backward", MaxPool<3>::Backward);
  m.impl("max_pool3d_with_indices_backward.grad_input", MaxPool<3>::BackwardOut);
  m.impl("avg_pool2d.out", AvgPool<2>::Out);
  m.impl("avg_pool2d_backward.grad_input", AvgPool<2>::BackwardOut);
  m.impl("avg_pool3d.out", AvgPool<3>::Out);
  m.impl("avg_pool3d_backward.grad_input", AvgPool<3>::BackwardOut);
  m.impl("_adaptive_avg_pool2d", AdaptiveAvgPool<2>::Run);
  m.impl("adaptive_avg_pool2d.out", AdaptiveAvgPool<2>::Out);
  m.impl("_adaptive_avg_pool2d_backward", AdaptiveAvgPool<2>::Backward);
  m.impl("_adaptive_avg_pool3d", AdaptiveAvgPool<3>::Run);
  m.impl("adaptive_avg_pool3d.out", AdaptiveAvgPool<3>::Out);
  m.impl("_adaptive_avg_pool3d_backward", AdaptiveAvgPool<3>::Backward);
  m.impl("adaptive_avg_pool3d_backward.grad_input", AdaptiveAvgPool<3>::BackwardOut);
  m.impl("adaptive_max_pool2d.out", AdaptiveMaxPool<2>::Out);
  m.impl("adaptive_max_pool2d_backward.grad_input", AdaptiveMaxPool<2>::BackwardOut);
  m.impl("adaptive_max_pool3d.out", AdaptiveMaxPool<3>::Out);
  m.impl("adaptive_max_pool3d_backward.grad_input", AdaptiveMaxPool<3>::BackwardOut);
  m.impl("max_unpool2d", Unpool2);
  m.impl("max_unpool2d.out", Unpool2Out);
  m.impl("max_unpool3d", Unpool3);
  m.impl("max_unpool3d.out", Unpool3Out);
  m.impl("im2col", Im2ColOf);
  m.impl("im2col.out", Im2ColOut);
  m.impl("col2im", Col2ImOf);
  m.impl("col2im.out", Col2ImOut);
}

}  // namespace torch_tensord
