#include "tensord/client/functional.h"

#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/indexing.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using InputPointers = absl::InlinedVector<const Tensor*, 8>;

Tensor SoftmaxGradient(const Tensor& gradient, const Tensor& y, int64_t axis, bool log) {
  const Tensor* inputs[] = {&gradient, &y};
  return internal::Enqueue("softmax_backward", inputs, {{"axis", axis}, {"log", log}});
}

absl::Status AddParameters(absl::string_view op, const NormParameters& parameters,
                           InputPointers* inputs) {
  if (parameters.weight.has_value()) inputs->push_back(&*parameters.weight);
  if (!parameters.bias.has_value()) return absl::OkStatus();
  if (!parameters.weight.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": a bias needs a weight, for example of ones"));
  }
  inputs->push_back(&*parameters.bias);
  return absl::OkStatus();
}

LayerNormResult Normalize(const Tensor& x, const NormParameters& parameters,
                          const LayerNormOptions& options, bool center) {
  InputPointers inputs = {&x};
  if (const absl::Status status = AddParameters("layer_norm", parameters, &inputs); !status.ok()) {
    return {Tensor::Failed(status), Tensor::Failed(status), Tensor::Failed(status)};
  }
  const internal::Tensors outputs = internal::EnqueueAllOrFailed(
      "layer_norm", inputs,
      {{"normalized_rank", options.normalized_rank}, {"eps", options.eps}, {"center", center}},
      center ? 3 : 2);
  if (center) return {outputs[0], outputs[1], outputs[2]};
  return {outputs[0], Tensor(), outputs[1]};
}

NormGradients NormalizeBackward(const Tensor& gradient, const Tensor& x,
                                const LayerNormResult& forward, const std::optional<Tensor>& weight,
                                const LayerNormOptions& options, bool center) {
  InputPointers inputs = {&gradient, &x, &forward.rstd};
  if (center) inputs.push_back(&forward.mean);
  if (weight.has_value()) inputs.push_back(&*weight);
  const internal::Tensors outputs = internal::EnqueueAllOrFailed(
      "layer_norm_backward", inputs,
      {{"normalized_rank", options.normalized_rank}, {"center", center}}, center ? 3 : 2);
  return {outputs[0], outputs[1], center ? outputs[2] : Tensor()};
}

internal::Tensors NormalizeBatch(const Tensor& x, const Tensor& running_mean,
                                 const Tensor& running_var, const NormParameters& parameters,
                                 const BatchNormOptions& options, bool training) {
  const size_t count = training ? 5 : 1;
  InputPointers inputs = {&x, &running_mean, &running_var};
  if (const absl::Status status = AddParameters("batch_norm", parameters, &inputs); !status.ok()) {
    return internal::Tensors(count, Tensor::Failed(status));
  }
  return internal::EnqueueAllOrFailed(
      "batch_norm", inputs,
      {{"training", training}, {"eps", options.eps}, {"momentum", options.momentum}}, count);
}

Attributes MakeWindowAttrs(const PoolOptions& options) {
  Attributes attrs = {{"kernel", options.kernel}};
  if (!options.stride.empty()) attrs.Set("stride", options.stride);
  if (!options.padding.empty()) attrs.Set("padding", options.padding);
  if (!options.dilation.empty()) attrs.Set("dilation", options.dilation);
  if (options.ceil_mode) attrs.Set("ceil_mode", true);
  return attrs;
}

Attributes AverageAttrs(const AvgPoolOptions& options) {
  Attributes attrs = MakeWindowAttrs({.kernel = options.kernel,
                                      .stride = options.stride,
                                      .padding = options.padding,
                                      .ceil_mode = options.ceil_mode});
  if (!options.count_include_pad) attrs.Set("count_include_pad", false);
  if (options.divisor != 0) attrs.Set("divisor", options.divisor);
  return attrs;
}

// Adds the optional inputs, and returns the attributes.
Attributes AddAttentionOptions(const AttentionOptions& options, InputPointers* inputs) {
  Attributes attrs;
  if (options.scale != 0) attrs.Set("scale", options.scale);
  if (options.causal) attrs.Set("causal", true);
  if (options.dropout_p != 0) attrs.Set("dropout_p", options.dropout_p);
  if (options.stream.has_value()) {
    attrs.Set("seed", options.stream->seed);
    attrs.Set("stream", options.stream->stream);
  }
  if (options.mask.has_value()) inputs->push_back(&*options.mask);
  if (options.state.has_value()) inputs->push_back(&*options.state);
  return attrs;
}

}  // namespace

Tensor SoftmaxBackward(const Tensor& gradient, const Tensor& y, int64_t axis) {
  return SoftmaxGradient(gradient, y, axis, false);
}
Tensor LogSoftmaxBackward(const Tensor& gradient, const Tensor& y, int64_t axis) {
  return SoftmaxGradient(gradient, y, axis, true);
}

LayerNormResult LayerNormWithStatistics(const Tensor& x, const NormParameters& parameters,
                                        const LayerNormOptions& options) {
  return Normalize(x, parameters, options, true);
}
LayerNormResult RmsNormWithStatistics(const Tensor& x, const NormParameters& parameters,
                                      const LayerNormOptions& options) {
  return Normalize(x, parameters, options, false);
}
Tensor LayerNorm(const Tensor& x, const NormParameters& parameters,
                 const LayerNormOptions& options) {
  return Normalize(x, parameters, options, true).y;
}
Tensor RmsNorm(const Tensor& x, const NormParameters& parameters, const LayerNormOptions& options) {
  return Normalize(x, parameters, options, false).y;
}
NormGradients LayerNormBackward(const Tensor& gradient, const Tensor& x,
                                const LayerNormResult& forward, const std::optional<Tensor>& weight,
                                const LayerNormOptions& options) {
  return NormalizeBackward(gradient, x, forward, weight, options, true);
}
NormGradients RmsNormBackward(const Tensor& gradient, const Tensor& x,
                              const LayerNormResult& forward, const std::optional<Tensor>& weight,
                              const LayerNormOptions& options) {
  return NormalizeBackward(gradient, x, forward, weight, options, false);
}

AttentionResult ScaledDotProductAttentionWithStatistics(const Tensor& q, const Tensor& k,
                                                        const Tensor& v,
                                                        const AttentionOptions& options) {
  InputPointers inputs = {&q, &k, &v};
  const Attributes attrs = AddAttentionOptions(options, &inputs);
  const internal::Tensors outputs = internal::EnqueueAllOrFailed("sdpa", inputs, attrs, 2);
  return {outputs[0], outputs[1]};
}

Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& options) {
  return ScaledDotProductAttentionWithStatistics(q, k, v, options).output;
}

AttentionGradients ScaledDotProductAttentionBackward(const Tensor& gradient, const Tensor& q,
                                                     const Tensor& k, const Tensor& v,
                                                     const AttentionResult& forward,
                                                     const AttentionOptions& options,
                                                     bool mask_gradient) {
  InputPointers inputs = {&gradient, &q, &k, &v, &forward.output, &forward.lse};
  Attributes attrs = AddAttentionOptions(options, &inputs);
  if (mask_gradient) attrs.Set("mask_gradient", true);
  const internal::Tensors outputs =
      internal::EnqueueAllOrFailed("sdpa_backward", inputs, attrs, mask_gradient ? 4 : 3);
  return {outputs[0], outputs[1], outputs[2], mask_gradient ? outputs[3] : Tensor()};
}

Tensor BatchNorm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                 const NormParameters& parameters, const BatchNormOptions& options) {
  return NormalizeBatch(x, running_mean, running_var, parameters, options, false)[0];
}
BatchNormResult BatchNormInTraining(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const NormParameters& parameters,
                                    const BatchNormOptions& options) {
  const internal::Tensors outputs =
      NormalizeBatch(x, running_mean, running_var, parameters, options, true);
  return {outputs[0], outputs[1], outputs[2], outputs[3], outputs[4]};
}
NormGradients BatchNormBackward(const Tensor& gradient, const Tensor& x, const Tensor& mean,
                                const Tensor& invstd, const std::optional<Tensor>& weight,
                                bool training) {
  InputPointers inputs = {&gradient, &x, &mean, &invstd};
  if (weight.has_value()) inputs.push_back(&*weight);
  const internal::Tensors outputs =
      internal::EnqueueAllOrFailed("batch_norm_backward", inputs, {{"training", training}}, 3);
  return {outputs[0], outputs[1], outputs[2]};
}

PoolResult MaxPoolWithIndices(const Tensor& x, const PoolOptions& options) {
  const internal::Tensors outputs =
      internal::EnqueueAllOrFailed("max_pool", {&x}, MakeWindowAttrs(options), 2);
  return {outputs[0], outputs[1]};
}
Tensor MaxPool(const Tensor& x, const PoolOptions& options) {
  return MaxPoolWithIndices(x, options).y;
}
Tensor MaxPoolBackward(const Tensor& gradient, const Tensor& indices,
                       const std::vector<int64_t>& size, const PoolOptions& options) {
  Attributes attrs = MakeWindowAttrs(options);
  attrs.Set("size", size);
  return internal::EnqueueAllOrFailed("max_pool_backward", {&gradient, &indices}, attrs, 1)[0];
}
Tensor AvgPool(const Tensor& x, const AvgPoolOptions& options) {
  return internal::EnqueueAllOrFailed("avg_pool", {&x}, AverageAttrs(options), 1)[0];
}
Tensor AvgPoolBackward(const Tensor& gradient, const std::vector<int64_t>& size,
                       const AvgPoolOptions& options) {
  Attributes attrs = AverageAttrs(options);
  attrs.Set("size", size);
  return internal::EnqueueAllOrFailed("avg_pool_backward", {&gradient}, attrs, 1)[0];
}

SgdState SgdStep(const SgdState& state, const Tensor& gradient, Operand lr,
                 const SgdOptions& options) {
  const Attributes attrs = {{"momentum", options.momentum},
                            {"dampening", options.dampening},
                            {"weight_decay", options.weight_decay},
                            {"nesterov", options.nesterov},
                            {"maximize", options.maximize}};
  const bool has_momentum = options.momentum != 0;
  const Tensor rate = lr.tensor() != nullptr
                          ? *lr.tensor()
                          : FromScalar(state.p.device(), lr.scalar(), {.dtype = DType::kFloat64});
  InputPointers inputs = {&state.p, &gradient, &rate};
  if (has_momentum && state.buffer.has_value()) inputs.push_back(&*state.buffer);
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("sgd_step", inputs, attrs, has_momentum ? 2 : 1);
  SgdState next = {made[0]};
  if (has_momentum) next.buffer = made[1];
  return next;
}

AdagradState AdagradStep(const AdagradState& state, const Tensor& gradient, const Tensor& step,
                         const Tensor& lr, const AdagradOptions& options) {
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("adagrad_step", {&state.p, &gradient, &state.sum, &step, &lr},
                                   {{"lr_decay", options.lr_decay},
                                    {"weight_decay", options.weight_decay},
                                    {"eps", options.eps},
                                    {"maximize", options.maximize}},
                                   2);
  return {made[0], made[1]};
}

AdamState AdamStep(const AdamState& state, const Tensor& gradient, const Tensor& step,
                   const Tensor& lr, const AdamOptions& options) {
  const bool amsgrad = state.vmax.has_value();
  InputPointers inputs = {&state.p, &gradient, &state.m, &state.v};
  std::vector<int> donate = {0, 2, 3};
  if (amsgrad) {
    inputs.push_back(&*state.vmax);
    donate.push_back(4);
  }
  inputs.push_back(&step);
  inputs.push_back(&lr);
  if (!options.donate) donate.clear();
  const internal::Tensors outputs =
      internal::EnqueueAllOrFailed("adam_step", inputs,
                                   {{"beta1", options.beta1},
                                    {"beta2", options.beta2},
                                    {"eps", options.eps},
                                    {"weight_decay", options.weight_decay},
                                    {"decoupled", options.decoupled},
                                    {"amsgrad", amsgrad},
                                    {"maximize", options.maximize}},
                                   amsgrad ? 4 : 3, donate);
  AdamState next = {outputs[0], outputs[1], outputs[2]};
  if (amsgrad) next.vmax = outputs[3];
  return next;
}

GroupNormResult GroupNormWithStatistics(const Tensor& x, const GroupNormOptions& options,
                                        const NormParameters& parameters) {
  InputPointers inputs = {&x};
  if (const absl::Status status = AddParameters("group_norm", parameters, &inputs); !status.ok()) {
    return {Tensor::Failed(status), Tensor::Failed(status), Tensor::Failed(status)};
  }
  const internal::Tensors made = internal::EnqueueAllOrFailed(
      "group_norm", inputs, {{"groups", options.groups}, {"eps", options.eps}}, 3);
  return {made[0], made[1], made[2]};
}
Tensor GroupNorm(const Tensor& x, const GroupNormOptions& options,
                 const NormParameters& parameters) {
  return GroupNormWithStatistics(x, options, parameters).y;
}
NormGradients GroupNormBackward(const Tensor& gradient, const Tensor& x,
                                const GroupNormResult& forward, const std::optional<Tensor>& weight,
                                const GroupNormOptions& options) {
  InputPointers inputs = {&gradient, &x, &forward.mean, &forward.rstd};
  if (weight.has_value()) inputs.push_back(&*weight);
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("group_norm_backward", inputs, {{"groups", options.groups}}, 3);
  return {made[0], made[1], made[2]};
}

LstmCellResult LstmCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& c) {
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("lstm_cell", {&input_gates, &hidden_gates, &c}, {}, 3);
  return {made[0], made[1], made[2]};
}

LstmCellGradients LstmCellBackward(const Tensor& h_gradient, const Tensor& c_gradient,
                                   const Tensor& c, const LstmCellResult& forward) {
  const internal::Tensors made = internal::EnqueueAllOrFailed(
      "lstm_cell_backward", {&h_gradient, &c_gradient, &c, &forward.c, &forward.gates}, {}, 3);
  return {made[0], made[1], made[2]};
}

GruCellResult GruCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& h) {
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("gru_cell", {&input_gates, &hidden_gates, &h}, {}, 2);
  return {made[0], made[1]};
}

GruCellGradients GruCellBackward(const Tensor& h_gradient, const GruCellResult& forward) {
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("gru_cell_backward", {&h_gradient, &forward.gates}, {}, 5);
  return {made[0], made[1], made[2], made[3], made[4]};
}

namespace {

Attributes LayerAttributes(const RecurrentLayerOptions& options, bool is_rnn) {
  Attributes attrs = {{"reverse", options.reverse}, {"allow_tf32", options.allow_tf32}};
  if (is_rnn) attrs.Set("nonlinearity", options.relu ? "relu" : "tanh");
  return attrs;
}

internal::Tensors RunLayer(const char* op, InputPointers inputs, const RecurrentWeights& weights,
                           const Attributes& attrs, size_t outputs) {
  inputs.insert(inputs.end(), {&weights.ih, &weights.hh});
  for (const std::optional<Tensor>* bias : {&weights.bias_ih, &weights.bias_hh}) {
    if (bias->has_value()) inputs.push_back(&**bias);
  }
  return internal::EnqueueAllOrFailed(op, inputs, attrs, outputs);
}

// Returns the last four gradients: those of the weights and biases.
RecurrentWeights WeightGradients(absl::Span<const Tensor> made) {
  return {made[0], made[1], made[2], made[3]};
}

}  // namespace

RecurrentLayerResult LstmLayer(const Tensor& x, const Tensor& h, const Tensor& c,
                               const RecurrentWeights& weights,
                               const RecurrentLayerOptions& options) {
  const internal::Tensors made =
      RunLayer("lstm_layer", {&x, &h, &c}, weights, LayerAttributes(options, false), 5);
  return {made[0], made[1], made[2], made[3], made[4]};
}

RecurrentLayerResult GruLayer(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                              const RecurrentLayerOptions& options) {
  const internal::Tensors made =
      RunLayer("gru_layer", {&x, &h}, weights, LayerAttributes(options, false), 3);
  return {.output = made[0], .h = made[1], .gates = made[2]};
}

RecurrentLayerResult RnnLayer(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                              const RecurrentLayerOptions& options) {
  const internal::Tensors made =
      RunLayer("rnn_layer", {&x, &h}, weights, LayerAttributes(options, true), 2);
  return {.output = made[0], .h = made[1]};
}

RecurrentLayerGradients LstmLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                          const Tensor& c_gradient, const Tensor& x,
                                          const Tensor& h, const Tensor& c,
                                          const RecurrentWeights& weights,
                                          const RecurrentLayerResult& forward,
                                          const RecurrentLayerOptions& options) {
  const internal::Tensors made = internal::EnqueueAllOrFailed(
      "lstm_layer_backward",
      {&output_gradient, &h_gradient, &c_gradient, &x, &h, &c, &weights.ih, &weights.hh,
       &forward.output, &forward.cells, &forward.gates},
      LayerAttributes(options, false), 7);
  return {made[0], made[1], made[2], WeightGradients(absl::MakeConstSpan(made).subspan(3))};
}

RecurrentLayerGradients GruLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                         const Tensor& x, const Tensor& h,
                                         const RecurrentWeights& weights,
                                         const RecurrentLayerResult& forward,
                                         const RecurrentLayerOptions& options) {
  const internal::Tensors made =
      internal::EnqueueAllOrFailed("gru_layer_backward",
                                   {&output_gradient, &h_gradient, &x, &h, &weights.ih, &weights.hh,
                                    &forward.output, &forward.gates},
                                   LayerAttributes(options, false), 6);
  return {made[0], made[1], {}, WeightGradients(absl::MakeConstSpan(made).subspan(2))};
}

RecurrentLayerGradients RnnLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                         const Tensor& x, const Tensor& h,
                                         const RecurrentWeights& weights,
                                         const RecurrentLayerResult& forward,
                                         const RecurrentLayerOptions& options) {
  const internal::Tensors made = internal::EnqueueAllOrFailed(
      "rnn_layer_backward",
      {&output_gradient, &h_gradient, &x, &h, &weights.ih, &weights.hh, &forward.output},
      LayerAttributes(options, true), 6);
  return {made[0], made[1], {}, WeightGradients(absl::MakeConstSpan(made).subspan(2))};
}

}  // namespace tensord
