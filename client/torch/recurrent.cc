// Recurrent layers, and the cells of LSTM and GRU. They are ops of the server
// (common/ops/compositions/recurrent.cc). Packed sequences, layers with projections, other modes
// and the gradients of gradients run PyTorch's compositions of cells.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

// ---- cells

// Sends a cell. PyTorch gives both biases or none.
std::vector<Value> Cell(const char* op, const at::Tensor& input, const at::Tensor& hidden,
                        const at::Tensor& state, const std::optional<at::Tensor>& input_bias,
                        const std::optional<at::Tensor>& hidden_bias) {
  CommonDevice(op, {&input, &hidden, &state});
  const Value x = Read(input), h = Read(hidden), own = Read(state);
  Value bias, other;
  c10::SmallVector<In, 5> inputs = {x, h, own};
  if (IsGiven(input_bias) && IsGiven(hidden_bias)) {
    inputs.emplace_back(bias = Read(*input_bias));
    inputs.emplace_back(other = Read(*hidden_bias));
  }
  return PushAll(op, inputs, {});
}

// Returns the hidden state, the cell state, and the gates for the gradient.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const c10::DeviceIndex device = DeviceOf(cx);
  const auto made = Cell("lstm_cell", input, hidden, cx, input_bias, hidden_bias);
  return {MakeTensor(made[0], device), MakeTensor(made[1], device), MakeTensor(made[2], device)};
}
// Returns the gradients of the gates, of the cell state, and of the bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCellBackward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!IsGiven(grad_hy) && !IsGiven(grad_cy)) return {};
  const c10::DeviceIndex device = DeviceOf(cx);
  const Value c = Read(cx), next = Read(cy), gates = Read(workspace);
  Value of_h, of_c;
  const In zero = Number(0, c);
  c10::SmallVector<In, 5> inputs = {zero, zero, c, next, gates};
  if (IsGiven(grad_hy)) inputs[0] = of_h = Read(*grad_hy);
  if (IsGiven(grad_cy)) inputs[1] = of_c = Read(*grad_cy);
  const std::vector<Value> made = PushAll("lstm_cell_backward", inputs, {});
  return {MakeTensor(made[0], device), MakeTensor(made[1], device),
          has_bias ? MakeTensor(made[2], device) : at::Tensor()};
}

// Returns the hidden state, and the gates for the gradient.
std::tuple<at::Tensor, at::Tensor> GruCell(const at::Tensor& input, const at::Tensor& hidden,
                                           const at::Tensor& hx,
                                           const std::optional<at::Tensor>& input_bias,
                                           const std::optional<at::Tensor>& hidden_bias) {
  const auto made = Cell("gru_cell", input, hidden, hx, input_bias, hidden_bias);
  return {MakeTensor(made[0], DeviceOf(hx)), MakeTensor(made[1], DeviceOf(hx))};
}
// Returns the gradients of the input gates, the hidden gates, hx, and both biases.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> GruCellBackward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const c10::DeviceIndex device = DeviceOf(grad_hy);
  const Value g = Read(grad_hy), gates = Read(workspace);
  const std::vector<Value> made = PushAll("gru_cell_backward", {In(g), In(gates)}, {});
  const auto bias = [&](const Value& of) {
    return has_bias ? MakeTensor(of, device) : at::Tensor();
  };
  return {MakeTensor(made[0], device), MakeTensor(made[1], device), MakeTensor(made[2], device),
          bias(made[3]), bias(made[4])};
}

// ---- layers

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Kind : int64_t { kLstm, kGru, kTanh, kRelu };

struct KindOfLayer {
  const char* op;
  const char* backward;
  const char* nonlinearity;  // null: the op has no such attribute
  int64_t states, gates;
};
constexpr KindOfLayer kKinds[] = {{"lstm_layer", "lstm_layer_backward", nullptr, 2, 4},
                                  {"gru_layer", "gru_layer_backward", nullptr, 1, 3},
                                  {"rnn_layer", "rnn_layer_backward", "tanh", 1, 1},
                                  {"rnn_layer", "rnn_layer_backward", "relu", 1, 1}};

// The arguments that PyTorch's functions of whole networks have in common.
struct Network {
  Kind kind;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;

  const KindOfLayer& of() const { return kKinds[kind]; }
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t parameters() const { return has_biases ? 4 : 2; }  // of a layer in one direction
};

// Runs a network as PyTorch composes it. Returns the output and the states.
variable_list Composed(const Network& net, const at::Tensor& x, at::TensorList states,
                       at::TensorList parameters) {
  const auto run = [&](auto function, const auto& state) {
    return function(x, state, parameters, net.has_biases, net.num_layers, net.dropout, net.train,
                    net.bidirectional, net.batch_first);
  };
  using OneState =
      std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, const at::Tensor&, at::TensorList,
                                             bool, int64_t, double, bool, bool, bool);
  if (net.kind == kLstm) {
    using TwoStates = std::tuple<at::Tensor, at::Tensor, at::Tensor> (*)(
        const at::Tensor&, at::TensorList, at::TensorList, bool, int64_t, double, bool, bool, bool);
    auto [output, h, c] = run(static_cast<TwoStates>(at::native::lstm), states);
    return {output, h, c};
  }
  OneState function = at::native::rnn_relu;
  if (net.kind == kGru) function = at::native::gru;
  if (net.kind == kTanh) function = at::native::rnn_tanh;
  auto [output, h] = run(function, states[0]);
  return {output, h};
}

// One layer in one direction, over x (T,N,I). Undefined biases are none.
struct Layer {
  Kind kind;
  bool reverse;
  at::Tensor x, h, c, weight_ih, weight_hh, bias_ih, bias_hh;

  const KindOfLayer& of() const { return kKinds[kind]; }
  // The operands in the order of the op.
  variable_list operands() const {
    variable_list all = {x, h};
    for (const at::Tensor& each : {c, weight_ih, weight_hh, bias_ih, bias_hh}) {
      if (each.defined()) all.push_back(each);
    }
    return all;
  }
};

// Sends the op of a layer or of its gradient.
std::vector<Value> PushLayer(const Layer& layer, bool backward, c10::ArrayRef<In> inputs,
                             at::IntArrayRef gradients = {}) {
  const char* const op = backward ? layer.of().backward : layer.of().op;
  c10::SmallVector<Attr, 3> attrs = {{"reverse", layer.reverse}};
  if (backward) attrs.emplace_back("gradients", gradients);
  if (layer.of().nonlinearity != nullptr)
    attrs.emplace_back("nonlinearity", layer.of().nonlinearity);
  return PushAll(op, inputs, attrs);
}

// What the server has computed for a layer: the output, the last states, and what the gradient
// needs in addition to the output.
variable_list RunLayer(const Layer& layer) {
  const c10::DeviceIndex device = DeviceOf(layer.x);
  std::vector<Value> operands;
  std::vector<In> inputs;
  for (const at::Tensor& each : layer.operands()) {
    operands.push_back(Read(each));
    inputs.emplace_back(operands.back());
  }
  variable_list results;
  for (const Value& value : PushLayer(layer, false, inputs)) {
    results.push_back(MakeTensor(value, device));
  }
  return results;
}

// Returns the gradients of the operands by PyTorch's composition. If grad mode is enabled, autograd
// can differentiate them.
variable_list DifferentiableGradients(const Layer& layer, const variable_list& gradients) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode enabled(true);
  // One operand may depend on another, or be the same, so the gradients are those of aliases.
  variable_list operands = layer.operands();
  for (at::Tensor& each : operands) {
    if (each.requires_grad()) each = each.view_as(each);
  }
  const auto first_parameter = operands.begin() + 1 + layer.of().states;
  variable_list states;
  for (auto state = operands.begin() + 1; state != first_parameter; ++state) {
    states.push_back(state->unsqueeze(0));
  }
  const Network net = {layer.kind, layer.bias_ih.defined(), 1, 0, true, false, false};
  variable_list outputs = Composed(net, layer.reverse ? operands[0].flip(0) : operands[0], states,
                                   variable_list(first_parameter, operands.end()));
  if (layer.reverse) outputs[0] = outputs[0].flip(0);
  variable_list from, of_outputs, inputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    from.push_back(i == 0 ? outputs[i] : outputs[i].squeeze(0));
    of_outputs.push_back(gradients[i]);
  }
  for (const at::Tensor& each : operands) {
    if (each.requires_grad()) inputs.push_back(each);
  }
  const variable_list made = torch::autograd::grad(from, inputs, of_outputs, /*retain_graph=*/true,
                                                   create_graph, /*allow_unused=*/true);
  variable_list results(operands.size());
  for (size_t i = 0, next = 0; i < operands.size(); ++i) {
    if (operands[i].requires_grad()) results[i] = made[next++];
  }
  return results;
}

class RecurrentLayer final : public torch::autograd::Function<RecurrentLayer> {
 public:
  static variable_list forward(AutogradContext* ctx, int64_t kind, bool reverse,
                               const at::Tensor& x, const at::Tensor& h,
                               const std::optional<at::Tensor>& c, const at::Tensor& weight_ih,
                               const at::Tensor& weight_hh,
                               const std::optional<at::Tensor>& bias_ih,
                               const std::optional<at::Tensor>& bias_hh) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto given = [](const std::optional<at::Tensor>& each) {
      return each.value_or(at::Tensor());
    };
    const Layer layer = {
        static_cast<Kind>(kind), reverse,       x, h, given(c), weight_ih, weight_hh,
        given(bias_ih),          given(bias_hh)};
    variable_list made = RunLayer(layer);
    const auto end_of_results = made.begin() + 1 + layer.of().states;
    // The caller may change the output in place, so the gradient has a tensor of its own.
    variable_list saved = {x,
                           h,
                           layer.c,
                           weight_ih,
                           weight_hh,
                           layer.bias_ih,
                           layer.bias_hh,
                           MakeTensor(Read(made[0]), DeviceOf(x))};
    saved.insert(saved.end(), end_of_results, made.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["kind"] = kind;
    ctx->saved_data["reverse"] = reverse;
    ctx->set_materialize_grads(false);
    made.erase(end_of_results, made.end());
    return made;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const Layer layer = {static_cast<Kind>(ctx->saved_data["kind"].toInt()),
                         ctx->saved_data["reverse"].toBool(),
                         saved[0],
                         saved[1],
                         saved[2],
                         saved[3],
                         saved[4],
                         saved[5],
                         saved[6]};
    variable_list results(9);
    bool any = false, plain = !InTransform() && !at::GradMode::is_enabled();
    for (const at::Tensor& each : gradients) {
      if (!each.defined()) continue;
      any = true;
      plain = plain && IsPlainTensor(each);
    }
    if (!any) return results;
    const variable_list made =
        plain ? Gradients(ctx, layer, saved, gradients) : DifferentiableGradients(layer, gradients);
    // Argument 2 is x, and 4 is c, which not every kind has.
    for (size_t i = 0; i < made.size(); ++i) {
      results[i + (i > 1 && !layer.c.defined() ? 3 : 2)] = made[i];
    }
    return results;
  }

 private:
  // Returns the gradients that are needed, by operand of the op.
  static variable_list Gradients(AutogradContext* ctx, const Layer& layer,
                                 const variable_list& saved, const variable_list& gradients) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const variable_list operands = layer.operands();
    std::vector<int64_t> needed;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (ctx->needs_input_grad(i)) needed.push_back(static_cast<int64_t>(i));
    }
    std::vector<Value> values;
    std::vector<In> inputs;
    const auto add = [&](const at::Tensor& tensor) {
      values.push_back(Read(tensor));
      inputs.emplace_back(values.back());
    };
    const In zero(0, layer.x.scalar_type());
    for (const at::Tensor& each : gradients) {
      if (each.defined()) {
        add(each);
      } else {
        inputs.push_back(zero);
      }
    }
    const size_t num_biases = layer.bias_ih.defined() ? 2 : 0;
    for (size_t i = 0; i + num_biases < operands.size(); ++i) add(operands[i]);
    for (size_t i = 7; i < saved.size(); ++i) add(saved[i]);
    const std::vector<Value> made = PushLayer(layer, true, inputs, needed);
    variable_list results(operands.size());
    for (size_t i = 0; i < needed.size(); ++i) {
      results[needed[i]] = MakeTensor(made[i], DeviceOf(layer.x));
    }
    return results;
  }
};

// Returns whether the ops of the server can run the network.
bool MayFuse(const Network& net, const at::Tensor& x, at::TensorList states,
             at::TensorList parameters) {
  const int64_t gates = net.of().gates, layers = net.num_layers * net.directions();
  if (layers < 1 || InTransform() || !IsPlainTensor(x) || x.dim() != 3 ||
      x.size(net.batch_first ? 1 : 0) == 0 || !at::isFloatingType(x.scalar_type())) {
    return false;
  }
  if (static_cast<int64_t>(states.size()) != net.of().states ||
      static_cast<int64_t>(parameters.size()) != layers * net.parameters()) {
    return false;
  }
  const auto fits = [&](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return IsPlainTensor(tensor) && tensor.device() == x.device() &&
           tensor.scalar_type() == x.scalar_type() && tensor.sizes().equals(sizes);
  };
  if (parameters[1].dim() != 2) return false;
  const int64_t size = parameters[1].size(1);
  for (const at::Tensor& state : states) {
    if (!fits(state, {layers, x.size(net.batch_first ? 0 : 1), size})) return false;
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const at::Tensor* const of = &parameters[layer * net.parameters()];
    const int64_t in = layer < net.directions() ? x.size(2) : size * net.directions();
    if (!fits(of[0], {gates * size, in}) || !fits(of[1], {gates * size, size})) return false;
    for (int i = 2; i < net.parameters(); ++i) {
      if (!fits(of[i], {gates * size})) return false;
    }
  }
  return true;
}

// Returns the output and the states of all layers.
variable_list Run(const Network& net, at::Tensor x, variable_list states,
                  variable_list parameters) {
  if (at::autocast::is_autocast_enabled(at::kPrivateUse1)) {
    // As PyTorch does for cuDNN: one dtype for all.
    const at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kPrivateUse1);
    const auto cast = [&](at::Tensor& each) {
      each = at::autocast::cached_cast(dtype, each, at::kPrivateUse1);
    };
    cast(x);
    for (at::Tensor& each : states) cast(each);
    for (at::Tensor& each : parameters) cast(each);
  }
  if (!MayFuse(net, x, states, parameters)) return Composed(net, x, states, parameters);
  if (net.batch_first) x = x.transpose(0, 1);
  std::vector<variable_list> last(states.size());
  for (int64_t layer = 0; layer < net.num_layers; ++layer) {
    variable_list outputs;
    for (int64_t direction = 0; direction < net.directions(); ++direction) {
      const int64_t index = layer * net.directions() + direction;
      const at::Tensor* const of = &parameters[index * net.parameters()];
      const auto bias = [&](int i) { return net.has_biases ? std::optional(of[i]) : std::nullopt; };
      const auto c = net.kind == kLstm ? std::optional(states[1].select(0, index)) : std::nullopt;
      const variable_list made =
          RecurrentLayer::apply(static_cast<int64_t>(net.kind), direction == 1, x,
                                states[0].select(0, index), c, of[0], of[1], bias(2), bias(3));
      outputs.push_back(made[0]);
      for (size_t i = 0; i < states.size(); ++i) last[i].push_back(made[i + 1]);
    }
    x = net.bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (net.train && net.dropout > 0 && layer + 1 < net.num_layers) {
      x = at::dropout(x, net.dropout, /*train=*/true);
    }
  }
  variable_list results = {net.batch_first ? x.transpose(0, 1) : x};
  for (const variable_list& each : last) {
    results.push_back(each.size() == 1 ? each[0].unsqueeze(0) : at::stack(each));
  }
  return results;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Lstm(const at::Tensor& x, at::TensorList states,
                                                    at::TensorList parameters, bool has_biases,
                                                    int64_t num_layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first) {
  const variable_list made =
      Run({kLstm, has_biases, num_layers, dropout, train, bidirectional, batch_first}, x,
          states.vec(), parameters.vec());
  return {made[0], made[1], made[2]};
}

template <Kind kKind>
std::tuple<at::Tensor, at::Tensor> OneState(const at::Tensor& x, const at::Tensor& state,
                                            at::TensorList parameters, bool has_biases,
                                            int64_t num_layers, double dropout, bool train,
                                            bool bidirectional, bool batch_first) {
  const variable_list made =
      Run({kKind, has_biases, num_layers, dropout, train, bidirectional, batch_first}, x, {state},
          parameters.vec());
  return {made[0], made[1]};
}

void RegisterLayers(torch::Library& m) {
  m.impl("lstm.input", Lstm);
  m.impl("gru.input", OneState<kGru>);
  m.impl("rnn_tanh.input", OneState<kTanh>);
  m.impl("rnn_relu.input", OneState<kRelu>);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { RegisterLayers(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { RegisterLayers(m); }  // in inference mode

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_thnn_fused_lstm_cell", LstmCell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", LstmCellBackward);
  m.impl("_thnn_fused_gru_cell", GruCell);
  m.impl("_thnn_fused_gru_cell_backward", GruCellBackward);
}

}  // namespace torch_tensord
