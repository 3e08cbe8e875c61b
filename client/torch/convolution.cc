// Convolution, and its gradients. A transposed convolution is the gradient of a convolution's
// input.
#include <ATen/ops/convolution_native.h>

#include <algorithm>

#include "kernels.h"

namespace torch_tensord {
namespace {

struct Geometry {
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

Value Conv(c10::ArrayRef<In> inputs, const Geometry& g) {
  return PushAll("conv", inputs,
                 {{"stride", g.stride},
                  {"padding", g.padding},
                  {"dilation", g.dilation},
                  {"groups", g.groups}})[0];
}
// Returns the result of "conv_backward_input" or "conv_backward_weight", of the shape `sizes`.
Value Gradient(const char* name, const Value& gradient, const Value& other, at::IntArrayRef sizes,
               const Geometry& g) {
  return Push(name, {gradient, other},
              {{"stride", g.stride},
               {"padding", g.padding},
               {"dilation", g.dilation},
               {"groups", g.groups},
               {"shape", sizes}});
}
Value Convolve(const Value& x, const Value& weight, const Geometry& g) {
  const In inputs[] = {x, weight};
  return Conv(inputs, g);
}

// Returns the memory format of the result, as that of PyTorch on the CPU.
at::MemoryFormat FormatOf(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

// Checks the devices before PyTorch chooses an implementation by the device of the input alone.
at::Tensor CheckedConvolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                              at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                              at::IntArrayRef output_padding, int64_t groups) {
  CommonDevice("convolution", {&input, &weight});
  if (IsGiven(bias)) CommonDevice("convolution", {&weight, &*bias});
  // PyTorch refuses empty lists.
  const bool checks = transposed && !stride.empty() && !dilation.empty();
  for (size_t i = 0; checks && i < output_padding.size(); ++i) {
    const int64_t step = stride[std::min(i, stride.size() - 1)];
    const int64_t spread = dilation[std::min(i, dilation.size() - 1)];
    TORCH_CHECK(output_padding[i] < std::max(step, spread),
                "output padding must be smaller than either stride or dilation, but got "
                "output_padding ",
                output_padding, ", stride ", stride, " and dilation ", dilation);
  }
  return at::native::convolution(input, weight, bias, stride, padding, dilation, transposed,
                                 output_padding, groups);
}
// If an output padding of a transposed convolution is a stride or more, each whole stride is a zero
// at the end of the input. Returns the input with these zeros.
at::Tensor PadInput(const at::Tensor& input, at::IntArrayRef stride,
                    at::IntArrayRef output_padding) {
  c10::DimVector padding;
  bool pads = false;
  for (size_t i = stride.size(); i-- > 0;) {
    padding.append({0, output_padding[i] / stride[i]});
    pads = pads || output_padding[i] >= stride[i];
  }
  return pads ? at::constant_pad_nd(input, padding, 0) : input;
}

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const c10::DeviceIndex device = CommonDevice("convolution", {&input, &weight});
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()),
                              "aten::convolution_overrideable of ", input.scalar_type(),
                              " isn't implemented on tensord: convert it to a floating dtype");
  const Geometry geometry = {stride, padding, dilation, groups};
  const at::MemoryFormat format = FormatOf(input, weight);
  const Value x = Read(transposed ? PadInput(input, stride, output_padding) : input),
              w = Read(weight);
  Value shift;
  if (IsGiven(bias)) {
    CommonDevice("convolution", {&input, &*bias});
    shift = Read(*bias);
  }
  if (!transposed) {
    c10::SmallVector<In, 3> inputs = {x, w};
    if (shift) inputs.emplace_back(shift);
    return MakeInFormat(Conv(inputs, geometry), device, format);
  }
  c10::DimVector sizes = {input.size(0), weight.size(1) * groups};
  for (int64_t d = 2; d < input.dim(); ++d) {
    const size_t i = static_cast<size_t>(d) - 2;
    sizes.push_back((input.size(d) - 1) * stride[i] - 2 * padding[i] +
                    dilation[i] * (weight.size(d) - 1) + output_padding[i] + 1);
  }
  if (!shift) {
    return MakeInFormat(Gradient("conv_backward_input", x, w, sizes, geometry), device, format);
  }
  c10::DimVector channels(sizes.size(), 1);
  channels[1] = sizes[1];
  // In 16-bit dtypes, the sum is rounded once.
  const at::ScalarType dtype = x->dtype(), computed = ComputeDType(dtype);
  const Value y =
      Gradient("conv_backward_input", Cast(x, computed), Cast(w, computed), sizes, geometry);
  return MakeInFormat(Cast(Add(y, Cast(Reshape(shift, channels), computed)), dtype), device,
                      format);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  const c10::DeviceIndex device =
      CommonDevice("convolution_backward", {&gradient, &input, &weight});
  const Geometry geometry = {stride, padding, dilation, groups};
  const at::MemoryFormat format = FormatOf(input, weight);
  const Value g = Read(gradient);
  at::Tensor results[3];
  if (mask[0]) {
    const Value w = Read(weight);
    Value gx;
    if (transposed) {
      gx = Convolve(g, w, geometry);
      for (int64_t d = 2; d < input.dim(); ++d) gx = Narrow(gx, d, 0, input.size(d));
    } else {
      gx = Gradient("conv_backward_input", g, w, input.sizes(), geometry);
    }
    results[0] = MakeInFormat(gx, device, format);
  }
  if (mask[1]) {
    const Value x = Read(transposed ? PadInput(input, stride, output_padding) : input);
    results[1] = MakeInFormat(Gradient("conv_backward_weight", transposed ? x : g,
                                       transposed ? g : x, weight.sizes(), geometry),
                              device, format);
  }
  if (mask[2]) {
    c10::DimVector axes = {0};
    for (int64_t d = 2; d < gradient.dim(); ++d) axes.push_back(d);
    results[2] = MakeTensor(Reduce("sum", g, axes, false), device);
  }
  return {results[0], results[1], results[2]};
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("convolution", CheckedConvolution);
  m.impl("convolution_overrideable", Convolution);
  m.impl("convolution_backward_overrideable", ConvolutionBackward);
}

}  // namespace torch_tensord
