// Softmax, normalization, and their gradients.
#include <ATen/native/layer_norm.h>

#include <limits>

#include "kernels.h"

namespace torch_tensord {
namespace {

using Mask = std::array<bool, 3>;

// ---- softmax

template <const char* const& kName>
at::Tensor& SoftmaxOut(const at::Tensor& self, int64_t dim, bool half_to_float, at::Tensor& out) {
  if (self.numel() == 0) {
    Resize(out, self.sizes());
    return out;
  }
  Value x = Read(self);
  if (half_to_float) x = Cast(x, at::kFloat);
  if (self.dim() == 0)
    return WriteOut(out, Reshape(Push(kName, {Reshape(x, {1})}, {{"axis", 0}}), {}));
  return WriteOut(out, Push(kName, {x}, {{"axis", dim}}));
}
constexpr const char* kSoftmax = "softmax";
constexpr const char* kLogSoftmax = "log_softmax";

template <bool kLog>
at::Tensor& SoftmaxBackwardOut(const at::Tensor& gradient, const at::Tensor& output, int64_t dim,
                               at::ScalarType, at::Tensor& out) {
  if (output.numel() == 0) return out;
  Value g = Read(gradient), y = Read(output);
  if (output.dim() == 0) {
    g = Reshape(g, {1});
    y = Reshape(y, {1});
    dim = 0;
  }
  const Value gx = Push("softmax_backward", {g, y}, {{"axis", dim}, {"log", kLog}});
  return WriteOut(out, Reshape(gx, output.sizes()));
}

// ---- normalization

// The inputs of a norm: x, weight, bias. The parameters have the sizes `shape`. If the caller gives
// a bias and no weight, makes a weight of ones, because bias is the server's input after weight.
struct NormInputs {
  NormInputs(const char* name, const at::Tensor& self, at::IntArrayRef shape,
             const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias)
      : x(Read(self)) {
    list.emplace_back(x);
    if (IsGiven(weight)) {
      CommonDevice(name, {&self, &*weight});
      list.emplace_back(scale = Read(*weight));
    } else if (IsGiven(bias)) {
      list.emplace_back(scale = Full(DeviceOf(self), shape, 1, bias->scalar_type()));
    }
    if (IsGiven(bias)) list.emplace_back(shift = Read(*bias));
  }
  NormInputs(const NormInputs&) = delete;

  Value x, scale, shift;
  c10::SmallVector<In, 3> list;  // refer to x, scale and shift
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> LayerNorm(const at::Tensor& self,
                                                         at::IntArrayRef shape,
                                                         const std::optional<at::Tensor>& weight,
                                                         const std::optional<at::Tensor>& bias,
                                                         double eps) {
  const at::Tensor none;
  at::native::_check_layer_norm_inputs(self, shape, IsGiven(weight) ? *weight : none,
                                       IsGiven(bias) ? *bias : none);
  const c10::DeviceIndex device = DeviceOf(self);
  const NormInputs inputs("native_layer_norm", self, shape, weight, bias);
  const std::vector<Value> made =
      PushAll("layer_norm", inputs.list,
              {{"normalized_rank", static_cast<int64_t>(shape.size())}, {"eps", eps}});
  return {MakeTensor(made[0], device), MakeTensor(made[1], device), MakeTensor(made[2], device)};
}

// Returns the gradients for which the mask is true, in the order of the server's outputs. The first
// one gets the memory format.
std::tuple<at::Tensor, at::Tensor, at::Tensor> Gradients(const char* name, c10::ArrayRef<In> inputs,
                                                         Attrs attrs, const Mask& mask,
                                                         c10::DeviceIndex device,
                                                         at::MemoryFormat format) {
  const std::vector<Value> made = PushAll(name, inputs, attrs);
  at::Tensor results[3];
  size_t next = 0;
  for (int i = 0; i < 3; ++i) {
    if (!mask[i]) continue;
    results[i] =
        MakeInFormat(made.at(next++), device, i == 0 ? format : at::MemoryFormat::Contiguous);
  }
  return {results[0], results[1], results[2]};
}
c10::DimVector Positions(const Mask& mask) {
  c10::DimVector positions;
  for (int i = 0; i < 3; ++i) {
    if (mask[i]) positions.push_back(i);
  }
  return positions;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LayerNormBackward(
    const at::Tensor& gradient, const at::Tensor& self, at::IntArrayRef shape,
    const at::Tensor& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>&, Mask mask) {
  const c10::DeviceIndex device =
      CommonDevice("native_layer_norm_backward", {&gradient, &self, &mean, &rstd});
  const c10::DimVector positions = Positions(mask);
  if (positions.empty()) return {};
  const Value g = Read(gradient), x = Read(self), r = Read(rstd), m = Read(mean);
  Value scale;
  c10::SmallVector<In, 5> inputs = {g, x, r, m};
  if (IsGiven(weight)) {
    scale = Read(*weight);
    inputs.emplace_back(scale);
  }
  return Gradients("layer_norm_backward", inputs,
                   {{"normalized_rank", static_cast<int64_t>(shape.size())},
                    {"gradients", at::IntArrayRef(positions)}},
                   mask, device, at::MemoryFormat::Contiguous);
}

// ---- RMS norm. Without these functions, PyTorch runs several ops.

double RmsNormEps(std::optional<double> eps, at::ScalarType dtype) {
  if (eps.has_value()) return *eps;
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
}

std::tuple<at::Tensor, at::Tensor> RmsNorm(const at::Tensor& self, at::IntArrayRef shape,
                                           const std::optional<at::Tensor>& weight,
                                           std::optional<double> eps) {
  const at::Tensor none;
  at::native::_check_layer_norm_inputs(self, shape, IsGiven(weight) ? *weight : none, none);
  const c10::DeviceIndex device = DeviceOf(self);
  const NormInputs inputs("rms_norm", self, shape, weight, std::nullopt);
  const std::vector<Value> made = PushAll("layer_norm", inputs.list,
                                          {{"normalized_rank", static_cast<int64_t>(shape.size())},
                                           {"eps", RmsNormEps(eps, self.scalar_type())},
                                           {"center", false}});
  return {MakeTensor(made[0], device), MakeTensor(made[1], device)};
}

std::tuple<at::Tensor, at::Tensor> RmsNormBackward(const at::Tensor& gradient,
                                                   const at::Tensor& self, at::IntArrayRef shape,
                                                   const at::Tensor& rstd,
                                                   const std::optional<at::Tensor>& weight,
                                                   std::array<bool, 2> mask) {
  const c10::DeviceIndex device =
      CommonDevice("_fused_rms_norm_backward", {&gradient, &self, &rstd});
  const Mask wanted = {mask[0], mask[1] && IsGiven(weight), false};
  const c10::DimVector positions = Positions(wanted);
  if (positions.empty()) return {};
  const Value g = Cast(Read(gradient), self.scalar_type()), x = Read(self), r = Read(rstd);
  Value scale;
  c10::SmallVector<In, 4> inputs = {g, x, r};
  if (IsGiven(weight)) inputs.emplace_back(scale = Read(*weight));
  auto [gx, of_weight, unused] = Gradients("layer_norm_backward", inputs,
                                           {{"normalized_rank", static_cast<int64_t>(shape.size())},
                                            {"center", false},
                                            {"gradients", at::IntArrayRef(positions)}},
                                           wanted, device, at::MemoryFormat::Contiguous);
  return {gx, of_weight};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> GroupNorm(const at::Tensor& self,
                                                         const std::optional<at::Tensor>& weight,
                                                         const std::optional<at::Tensor>& bias,
                                                         int64_t /*n*/, int64_t channels,
                                                         int64_t /*pixels*/, int64_t groups,
                                                         double epsilon) {
  for (const std::optional<at::Tensor>* each : {&weight, &bias}) {
    if (!IsGiven(*each)) continue;
    const at::ScalarType dtype = (*each)->scalar_type();
    TORCH_CHECK(dtype == self.scalar_type() || dtype == ComputeDType(self.scalar_type()),
                "group_norm: mixed dtype: expect parameter to have scalar type of ",
                ComputeDType(self.scalar_type()), ", but got ", dtype);
  }
  const c10::DeviceIndex device = DeviceOf(self);
  const NormInputs inputs("native_group_norm", self, channels, weight, bias);
  const std::vector<Value> made =
      PushAll("group_norm", inputs.list, {{"groups", groups}, {"eps", epsilon}});
  return {MakeInFormat(made[0], device, self.suggest_memory_format()), MakeTensor(made[1], device),
          MakeTensor(made[2], device)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> GroupNormBackward(
    const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight, int64_t /*n*/,
    int64_t /*channels*/, int64_t /*pixels*/, int64_t groups, Mask mask) {
  const c10::DeviceIndex device =
      CommonDevice("native_group_norm_backward", {&gradient, &self, &mean, &rstd});
  const c10::DimVector positions = Positions(mask);
  if (positions.empty()) return {};
  const Value g = Read(gradient), x = Read(self), m = Read(mean), r = Read(rstd);
  Value scale;
  c10::SmallVector<In, 5> inputs = {g, x, m, r};
  if (IsGiven(weight)) inputs.emplace_back(scale = Read(*weight));
  return Gradients("group_norm_backward", inputs,
                   {{"groups", groups}, {"gradients", at::IntArrayRef(positions)}}, mask, device,
                   self.suggest_memory_format());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(
    const at::Tensor& self, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  const c10::DeviceIndex device = DeviceOf(self);
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const int64_t channels[] = {self.size(1)};
  const auto parameter = [&](const std::optional<at::Tensor>& tensor, double fallback) {
    return IsGiven(tensor) ? Read(*tensor) : Full(device, channels, fallback, dtype);
  };
  const Value x = Read(self);
  const Value inputs[] = {x, parameter(running_mean, 0), parameter(running_var, 1),
                          parameter(weight, 1), parameter(bias, 0)};
  c10::SmallVector<In, 5> given;
  for (const Value& each : inputs) given.emplace_back(each);
  const std::vector<Value> made =
      PushAll("batch_norm", given, {{"training", training}, {"momentum", momentum}, {"eps", eps}});
  const at::MemoryFormat format = self.suggest_memory_format();
  if (!training) {
    return {MakeInFormat(made[0], device, format), MakeContiguous({0}, dtype, device),
            MakeContiguous({0}, dtype, device)};
  }
  if (IsGiven(running_mean)) Write(*running_mean, made[3]);
  if (IsGiven(running_var)) Write(*running_var, made[4]);
  return {MakeInFormat(made[0], device, format), MakeTensor(made[1], device),
          MakeTensor(made[2], device)};
}

// AOTAutograd's graphs have these two forms.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNormInPlace(
    const at::Tensor& self, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, at::Tensor& running_mean, at::Tensor& running_var,
    bool training, double momentum, double eps) {
  return BatchNorm(self, weight, bias, running_mean, running_var, training, momentum, eps);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNormOfBatch(
    const at::Tensor& self, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, bool training, double momentum, double eps) {
  return BatchNorm(self, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNormBackward(
    const at::Tensor& gradient, const at::Tensor& self, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& save_mean, const std::optional<at::Tensor>& save_invstd,
    bool training, double eps, Mask mask) {
  const c10::DeviceIndex device = CommonDevice("native_batch_norm_backward", {&gradient, &self});
  const c10::DimVector positions = Positions(mask);
  if (positions.empty()) return {};
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Value g = Read(gradient), x = Read(self);
  Value mean, invstd, scale;
  if (training) {
    mean = Cast(Read(*save_mean), dtype);
    invstd = Cast(Read(*save_invstd), dtype);
  } else {
    mean = Cast(Read(*running_mean), dtype);
    invstd = Push(server_op<"rsqrt">, {Add(Cast(Read(*running_var), dtype), at::Scalar(eps))});
  }
  c10::SmallVector<In, 5> inputs = {g, x, mean, invstd};
  if (IsGiven(weight)) {
    scale = Read(*weight);
    inputs.emplace_back(scale);
  }
  return Gradients("batch_norm_backward", inputs,
                   {{"training", training}, {"gradients", at::IntArrayRef(positions)}}, mask,
                   device, self.suggest_memory_format());
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_softmax.out", SoftmaxOut<kSoftmax>);
  m.impl("_log_softmax.out", SoftmaxOut<kLogSoftmax>);
  m.impl("_softmax_backward_data.out", SoftmaxBackwardOut<false>);
  m.impl("_log_softmax_backward_data.out", SoftmaxBackwardOut<true>);
  m.impl("native_layer_norm", LayerNorm);
  m.impl("native_layer_norm_backward", LayerNormBackward);
  m.impl("native_group_norm", GroupNorm);
  m.impl("native_group_norm_backward", GroupNormBackward);
  m.impl("_fused_rms_norm", RmsNorm);
  m.impl("_fused_rms_norm_backward", RmsNormBackward);
  m.impl("native_batch_norm", BatchNorm);
  m.impl("_native_batch_norm_legit", BatchNormInPlace);
  m.impl("_native_batch_norm_legit.no_stats", BatchNormOfBatch);
  m.impl("native_batch_norm_backward", BatchNormBackward);
}

}  // namespace torch_tensord
