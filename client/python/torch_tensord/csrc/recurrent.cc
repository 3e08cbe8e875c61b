// The cells of LSTM and GRU, which PyTorch calls as one op on devices like this one. They are ops of
// the server (common/ops/compositions/recurrent.cc).
#include "kernels.h"

namespace torch_tensord {
namespace {

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

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_thnn_fused_lstm_cell", LstmCell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", LstmCellBackward);
  m.impl("_thnn_fused_gru_cell", GruCell);
  m.impl("_thnn_fused_gru_cell_backward", GruCellBackward);
}

}  // namespace torch_tensord
