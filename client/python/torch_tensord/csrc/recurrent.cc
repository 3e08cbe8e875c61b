// The cells of LSTM and GRU, which PyTorch calls as one op on devices like this one.
#include "kernels.h"

namespace torch_tensord {
namespace {

Value Sigmoid(const Value& x) { return Push(op::sigmoid, {x}); }
Value Tanh(const Value& x) { return Push(op::tanh, {x}); }
Value OneMinus(const Value& x) { return Push(op::sub, {Number(1, x), x}); }

Value Gates(const at::Tensor& input, const at::Tensor& hidden) {
  return Add(Read(input), Read(hidden));
}
Value Biased(const Value& x, const std::optional<at::Tensor>& bias) {
  return IsGiven(bias) ? Add(x, Read(*bias)) : x;
}
// Returns part i of `parts` equal parts of axis 1.
Value Part(const Value& x, int64_t i, int64_t parts) {
  const int64_t size = x->sizes()[1] / parts;
  return Narrow(x, 1, i * size, (i + 1) * size);
}

// Returns the hidden state, the cell state, and the gates (input, forget, cell, output) for the
// gradient.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const c10::DeviceIndex device = CommonDevice("lstm_cell", {&input, &hidden, &cx});
  const Value gates = Biased(Biased(Gates(input, hidden), input_bias), hidden_bias);
  const Value i = Sigmoid(Part(gates, 0, 4)), f = Sigmoid(Part(gates, 1, 4)),
              g = Tanh(Part(gates, 2, 4)), o = Sigmoid(Part(gates, 3, 4));
  const Value cy = Add(Mul(f, Read(cx)), Mul(i, g));
  return {MakeTensor(Mul(o, Tanh(cy)), device), MakeTensor(cy, device),
          MakeTensor(Concat({i, f, g, o}, 1), device)};
}
// Returns the gradients of the gates, of the cell state, and of the bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCellBackward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!IsGiven(grad_hy) && !IsGiven(grad_cy)) return {};
  const c10::DeviceIndex device = DeviceOf(cx);
  const Value gates = Read(workspace);
  const Value i = Part(gates, 0, 4), f = Part(gates, 1, 4), g = Part(gates, 2, 4),
              o = Part(gates, 3, 4);
  const Value tanh = Tanh(Read(cy));
  Value gc, go = Mul(o, at::Scalar(0));
  if (IsGiven(grad_cy)) gc = Read(*grad_cy);
  if (IsGiven(grad_hy)) {
    const Value gh = Read(*grad_hy);
    go = Mul(Mul(gh, tanh), Mul(o, OneMinus(o)));
    const Value through = Mul(Mul(gh, o), OneMinus(Mul(tanh, tanh)));
    gc = gc ? Add(gc, through) : through;
  }
  const Value gi = Mul(Mul(gc, g), Mul(i, OneMinus(i)));
  const Value gf = Mul(Mul(gc, Read(cx)), Mul(f, OneMinus(f)));
  const Value gg = Mul(Mul(gc, i), OneMinus(Mul(g, g)));
  const Value all = Concat({gi, gf, gg, go}, 1);
  return {MakeTensor(all, device), MakeTensor(Mul(gc, f), device),
          has_bias ? MakeTensor(Reduce("sum", all, {0}, false), device) : at::Tensor()};
}

// Returns the hidden state, and the workspace (reset, update, new, hx, hidden part of new).
std::tuple<at::Tensor, at::Tensor> GruCell(const at::Tensor& input, const at::Tensor& hidden,
                                           const at::Tensor& hx,
                                           const std::optional<at::Tensor>& input_bias,
                                           const std::optional<at::Tensor>& hidden_bias) {
  const c10::DeviceIndex device = CommonDevice("gru_cell", {&input, &hidden, &hx});
  const Value x = Biased(Read(input), input_bias), h = Biased(Read(hidden), hidden_bias),
              state = Read(hx);
  const Value r = Sigmoid(Add(Part(x, 0, 3), Part(h, 0, 3))),
              z = Sigmoid(Add(Part(x, 1, 3), Part(h, 1, 3)));
  const Value hn = Part(h, 2, 3);
  const Value n = Tanh(Add(Part(x, 2, 3), Mul(r, hn)));
  const Value hy = Add(n, Mul(z, Sub(state, n)));
  return {MakeTensor(hy, device), MakeTensor(Concat({r, z, n, state, hn}, 1), device)};
}
// Returns the gradients of the input gates, the hidden gates, hx, and both biases.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> GruCellBackward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const c10::DeviceIndex device = DeviceOf(grad_hy);
  const Value all = Read(workspace), gh = Read(grad_hy);
  const Value r = Part(all, 0, 5), z = Part(all, 1, 5), n = Part(all, 2, 5), hx = Part(all, 3, 5),
              hn = Part(all, 4, 5);
  const Value gz = Mul(Mul(gh, Sub(hx, n)), Mul(z, OneMinus(z)));
  const Value gn = Mul(Mul(gh, OneMinus(z)), OneMinus(Mul(n, n)));
  const Value gr = Mul(Mul(gn, hn), Mul(r, OneMinus(r)));
  const Value input = Concat({gr, gz, gn}, 1), hidden = Concat({gr, gz, Mul(gn, r)}, 1);
  const auto bias = [&](const Value& g) {
    return has_bias ? MakeTensor(Reduce("sum", g, {0}, false), device) : at::Tensor();
  };
  return {MakeTensor(input, device), MakeTensor(hidden, device), MakeTensor(Mul(gh, z), device),
          bias(input), bias(hidden)};
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_thnn_fused_lstm_cell", LstmCell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", LstmCellBackward);
  m.impl("_thnn_fused_gru_cell", GruCell);
  m.impl("_thnn_fused_gru_cell_backward", GruCellBackward);
}

}  // namespace torch_tensord
