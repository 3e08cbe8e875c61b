#include "tensord/client/nn/recurrent.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/functional.h"
#include "tensord/client/internal/module.h"
#include "tensord/client/movement.h"
#include "tensord/client/ops.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::nn {

Recurrent::Recurrent(std::string name, int gates, int state_parts, int64_t input_size,
                     int64_t hidden_size, const RecurrentOptions& options)
    : name_(std::move(name)),
      state_parts_(state_parts),
      input_size_(input_size),
      hidden_size_(hidden_size),
      num_layers_(options.num_layers),
      batch_first_(options.batch_first),
      bidirectional_(options.bidirectional),
      dropout_probability_(options.dropout),
      seed_(options.seed),
      dropout_(AddModule("dropout", Dropout(options.dropout))) {
  const int64_t rows = gates * hidden_size;
  const auto bias = [&]() -> std::optional<Parameter> {
    if (!options.bias) return std::nullopt;
    return Parameter{{options.dtype, {rows}}};
  };
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    const int64_t in = layer == 0 ? input_size : directions() * hidden_size;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      layers_.push_back({absl::StrCat("l", layer, direction == 1 ? "_reverse" : ""),
                         Parameter{{options.dtype, {rows, in}}},
                         Parameter{{options.dtype, {rows, hidden_size}}}, bias(), bias()});
    }
  }
  if (options.device.valid()) Initialize(options.device);
}

absl::Status Recurrent::Check(const Tensor& x, const std::vector<Tensor>& state) const {
  for (const Layer& layer : layers_) {
    TENSORD_RETURN_IF_ERROR(internal::RequireValues(
        *this, {&layer.weight_ih, &layer.weight_hh, layer.bias_ih ? &*layer.bias_ih : nullptr,
                layer.bias_hh ? &*layer.bias_hh : nullptr}));
  }
  TENSORD_RETURN_IF_ERROR(x.status());
  const int rank = x.rank();
  if ((rank != 2 && rank != 3) || x.shape().dim(rank - 1) != input_size_ || x.num_elements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("nn::", name_, ": x has shape ", x.shape().ToString(), ", and must be ",
                     batch_first_ ? "(N,L," : "(L,N,", input_size_, ") or (L,", input_size_,
                     "), with no dimension of size 0"));
  }
  const int64_t batch = rank == 2 ? 1 : x.shape().dim(batch_first_ ? 0 : 1);
  std::vector<int64_t> dims = {num_layers_ * directions()};
  if (rank == 3) dims.push_back(batch);
  dims.push_back(hidden_size_);
  for (const Tensor& part : state) {
    TENSORD_RETURN_IF_ERROR(part.status());
    if (part.shape() == Shape(dims)) continue;
    return absl::InvalidArgumentError(absl::StrCat("nn::", name_, ": a state has shape ",
                                                   part.shape().ToString(), ", and must have ",
                                                   Shape(dims).ToString()));
  }
  return absl::OkStatus();
}

Recurrent::Result Recurrent::RunLayers(const Tensor& x, const std::vector<Tensor>& state) const {
  if (const absl::Status status = Check(x, state); !status.ok()) {
    return {Tensor::Failed(status), std::vector<Tensor>(state_parts_, Tensor::Failed(status))};
  }
  const bool batched = x.rank() == 3;
  const int64_t length = x.shape().dim(batched && batch_first_ ? 1 : 0);
  const int64_t batch = batched ? x.shape().dim(batch_first_ ? 0 : 1) : 1;
  Tensor y = x;
  if (!batched) y = Reshape(x, {length, 1, input_size_});
  if (batched && batch_first_) y = Permute(x, {1, 0, 2});
  const Shape step = {batch, hidden_size_};

  std::vector<std::vector<Tensor>> last(state_parts_);  // of each part, for each layer
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const int64_t index = layer * directions() + direction;
      std::vector<Tensor> own;
      for (int part = 0; part < state_parts_; ++part) {
        own.push_back(state.empty() ? Zeros(x.device(), step, {.dtype = x.dtype()})
                                    : Reshape(Select(state[part], 0, index), step));
      }
      const Layer& of = layers_[index];
      const auto value = [](const std::optional<Parameter>& parameter) {
        return parameter.has_value() ? std::optional(parameter->value) : std::nullopt;
      };
      const RecurrentLayerResult made = RunLayer(
          y, own, {of.weight_ih.value, of.weight_hh.value, value(of.bias_ih), value(of.bias_hh)},
          {.reverse = direction == 1});
      outputs.push_back(made.output);
      last[0].push_back(made.h);
      if (state_parts_ == 2) last[1].push_back(made.c);
    }
    y = outputs.size() == 1 ? outputs[0] : Concat(outputs, 2);
    if (layer + 1 < num_layers_ && dropout_probability_ > 0) y = dropout_->Forward(y);
  }

  Result result;
  if (!batched) {
    result.output = Reshape(y, {length, directions() * hidden_size_});
  } else {
    result.output = batch_first_ ? Permute(y, {1, 0, 2}) : y;
  }
  for (const std::vector<Tensor>& part : last) {
    const Tensor layers = Stack(part);
    result.state.push_back(batched ? layers : Squeeze(layers, {1}));
  }
  return result;
}

Tensor Recurrent::Forward(const Tensor& x) const { return RunLayers(x, {}).output; }

std::string Recurrent::ToString() const {
  std::string text = absl::StrCat(name_, "(", input_size_, ", ", hidden_size_);
  if (num_layers_ != 1) absl::StrAppend(&text, ", num_layers=", num_layers_);
  if (!layers_.empty() && !layers_[0].bias_ih.has_value()) text += ", bias=False";
  if (batch_first_) text += ", batch_first=True";
  if (dropout_probability_ != 0) absl::StrAppend(&text, ", dropout=", dropout_probability_);
  if (bidirectional_) text += ", bidirectional=True";
  return text + ")";
}

void Recurrent::VisitParameters(const std::string& prefix, const Visitor& visit) {
  for (Layer& layer : layers_) {
    visit(absl::StrCat(prefix, "weight_ih_", layer.suffix), &layer.weight_ih);
    visit(absl::StrCat(prefix, "weight_hh_", layer.suffix), &layer.weight_hh);
    if (layer.bias_ih) visit(absl::StrCat(prefix, "bias_ih_", layer.suffix), &*layer.bias_ih);
    if (layer.bias_hh) visit(absl::StrCat(prefix, "bias_hh_", layer.suffix), &*layer.bias_hh);
  }
}

void Recurrent::Initialize(const Device& device) {
  internal::Initializer initializer(device, seed_);
  const double bound = internal::FanInBound(hidden_size_);
  VisitParameters("", [&](const std::string& /*name*/, Parameter* parameter) {
    initializer.Uniform(parameter, bound);
  });
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options)
    : Recurrent("LSTM", /*gates=*/4, /*state_parts=*/2, input_size, hidden_size, options) {}

RecurrentLayerResult LSTM::RunLayer(const Tensor& x, const std::vector<Tensor>& state,
                                    const RecurrentWeights& weights,
                                    const RecurrentLayerOptions& options) const {
  return LstmLayer(x, state[0], state[1], weights, options);
}

LSTMResult LSTM::Run(const Tensor& x, const std::optional<LSTMState>& state) const {
  std::vector<Tensor> parts;
  if (state.has_value()) parts = {state->h, state->c};
  const Result result = RunLayers(x, parts);
  return {result.output, {result.state[0], result.state[1]}};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options)
    : Recurrent("GRU", /*gates=*/3, /*state_parts=*/1, input_size, hidden_size, options) {}

RecurrentLayerResult GRU::RunLayer(const Tensor& x, const std::vector<Tensor>& state,
                                   const RecurrentWeights& weights,
                                   const RecurrentLayerOptions& options) const {
  return GruLayer(x, state[0], weights, options);
}

GRUResult GRU::Run(const Tensor& x, const std::optional<Tensor>& h) const {
  std::vector<Tensor> parts;
  if (h.has_value()) parts = {*h};
  const Result result = RunLayers(x, parts);
  return {result.output, result.state[0]};
}

}  // namespace tensord::nn
