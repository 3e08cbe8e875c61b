// Cells of recurrent layers, and their gradients. A cell computes one time step of one layer in one
// direction. Cells are computed in float32 if all inputs have 16 bits, and each result is rounded
// once.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// Returns equal parts of the last axis of a matrix.
std::vector<Value> Parts(const Value& x, int64_t count) {
  std::vector<Value> parts;
  const int64_t size = x.shape().dim(1) / count;
  for (int64_t i = 0; i < count; ++i) parts.push_back(Slice(x, 1, i * size, (i + 1) * size));
  return parts;
}

Value SumOverRows(const Value& x) { return Apply("sum", {x}, {{"axes", std::vector<int64_t>{0}}}); }

// Fails unless input i has the shape [rows, columns].
void RequireMatrix(Formula& f, int i, const char* name, int64_t rows, int64_t columns) {
  if (f.input(i).shape() == Shape({rows, columns})) return;
  f.Fail(absl::StrCat(name, " must have the shape [", rows, ", ", columns, "]"));
}

// Fails unless inputs 0 and 1 have the shape (N,gates·H), input 2 is a state (N,H), and the others
// are none or two biases (gates·H).
void RequireGates(Formula& f, int64_t gates) {
  f.RequireFloating();
  const Shape& shape = f.input(2).shape();
  if (shape.rank() != 2) return f.Fail("the state must have two dimensions");
  const int64_t columns = gates * shape.dim(1);
  for (int i : {0, 1}) RequireMatrix(f, i, "gates", shape.dim(0), columns);
  for (int i = 3; i < f.num_inputs(); ++i) {
    if (f.input(i).shape() == Shape({columns})) continue;
    f.Fail(absl::StrCat("a bias must have the shape [", columns, "]"));
  }
  if (f.num_inputs() == 4) f.Fail("takes two biases or none");
}

// The dtype to which all inputs are promoted, and that in which the results are computed.
struct Rounding {
  DType dtype, wide;

  explicit Rounding(const Formula& f) : dtype(PromotedDType(f.inputs())), wide(WideDType(dtype)) {}
  Value Widen(const Value& x) const { return x.To(wide); }
  Value Round(const Value& x) const { return x.To(dtype); }
};

// ---- LSTM

void LstmCell(Formula& f) {
  RequireGates(f, 4);
  if (!f.ok()) return;
  const Rounding r(f);
  Value all = r.Widen(f.input(0)) + r.Widen(f.input(1));
  for (int i = 3; i < f.num_inputs(); ++i) all = all + r.Widen(f.input(i));
  const std::vector<Value> parts = Parts(all, 4);
  const Value i = Sigmoid(parts[0]), keep = Sigmoid(parts[1]), g = Tanh(parts[2]),
              o = Sigmoid(parts[3]);
  const Value c = keep * r.Widen(f.input(2)) + i * g;
  f.Return(r.Round(o * Tanh(c)));
  f.Return(r.Round(c));
  f.Return(r.Round(Concat({i, keep, g, o}, 1)));
}

void LstmCellBackward(Formula& f) {
  f.RequireFloating();
  const Shape& shape = f.input(2).shape();
  if (shape.rank() != 2) return f.Fail("c must have two dimensions");
  for (int i : {0, 1}) {
    if (f.input(i).shape().rank() != 0) {
      RequireMatrix(f, i, "a gradient", shape.dim(0), shape.dim(1));
    }
  }
  RequireMatrix(f, 3, "new_c", shape.dim(0), shape.dim(1));
  RequireMatrix(f, 4, "gates", shape.dim(0), 4 * shape.dim(1));
  if (!f.ok()) return;
  const Rounding r(f);
  const std::vector<Value> gates = Parts(r.Widen(f.input(4)), 4);
  const Value i = gates[0], keep = gates[1], g = gates[2], o = gates[3];
  const Value tanh = Tanh(r.Widen(f.input(3)));
  const Value gh = r.Widen(f.input(0));
  const Value gc = r.Widen(f.input(1)) + gh * o * (1 - tanh * tanh);
  const Value all = Concat({gc * g * i * (1 - i), gc * r.Widen(f.input(2)) * keep * (1 - keep),
                            gc * i * (1 - g * g), gh * tanh * o * (1 - o)},
                           1);
  f.Return(r.Round(all));
  f.Return(r.Round(gc * keep));
  f.Return(r.Round(SumOverRows(all)));
}

// ---- GRU

void GruCell(Formula& f) {
  RequireGates(f, 3);
  if (!f.ok()) return;
  const Rounding w(f);
  Value x = w.Widen(f.input(0)), own = w.Widen(f.input(1));
  const Value h = w.Widen(f.input(2));
  if (f.num_inputs() > 3) {
    x = x + w.Widen(f.input(3));
    own = own + w.Widen(f.input(4));
  }
  const std::vector<Value> of_x = Parts(x, 3), of_h = Parts(own, 3);
  const Value r = Sigmoid(of_x[0] + of_h[0]), z = Sigmoid(of_x[1] + of_h[1]);
  const Value n = Tanh(of_x[2] + r * of_h[2]);
  f.Return(w.Round(n + z * (h - n)));
  f.Return(w.Round(Concat({r, z, n, h, of_h[2]}, 1)));
}

void GruCellBackward(Formula& f) {
  f.RequireFloating();
  const Shape& shape = f.input(0).shape();
  if (shape.rank() != 2) return f.Fail("the gradient must have two dimensions");
  RequireMatrix(f, 1, "gates", shape.dim(0), 5 * shape.dim(1));
  if (!f.ok()) return;
  const Rounding w(f);
  const Value g = w.Widen(f.input(0));
  const std::vector<Value> gates = Parts(w.Widen(f.input(1)), 5);
  const Value r = gates[0], z = gates[1], n = gates[2], h = gates[3], hn = gates[4];
  const Value gz = g * (h - n) * z * (1 - z);
  const Value gn = g * (1 - z) * (1 - n * n);
  const Value gr = gn * hn * r * (1 - r);
  const Value of_x = Concat({gr, gz, gn}, 1), of_own = Concat({gr, gz, gn * r}, 1);
  f.Return(w.Round(of_x));
  f.Return(w.Round(of_own));
  f.Return(w.Round(g * z));
  f.Return(w.Round(SumOverRows(of_x)));
  f.Return(w.Round(SumOverRows(of_own)));
}

void AppendCells(std::vector<OpSchema>& ops) {
  ops.push_back(
      {.name = "lstm_cell",
       .signature = "input_gates, hidden_gates (N,4H), c (N,H), input_bias, hidden_bias (4H) -> "
                    "new_h, new_c (N,H), gates (N,4H)",
       .doc = "One time step of an LSTM. input_gates and hidden_gates are linear functions of the "
              "input and of the state. Their parts are: input, forget, cell, output.",
       .min_inputs = 3,
       .max_inputs = 5,
       .input_names = {"input_gates", "hidden_gates", "c", "input_bias", "hidden_bias"},
       .formula = LstmCell});
  ops.push_back(
      {.name = "lstm_cell_backward",
       .signature = "new_h_gradient, new_c_gradient, c, new_c (N,H), gates (N,4H) -> "
                    "gates_gradient (N,4H), c_gradient (N,H), bias_gradient (4H)",
       .doc =
           "The gradients of both inputs of gates together, of c, and of each bias, from results "
           "of lstm_cell. A gradient of a result may be a scalar.",
       .min_inputs = 5,
       .max_inputs = 5,
       .input_names = {"new_h_gradient", "new_c_gradient", "c", "new_c", "gates"},
       .formula = LstmCellBackward});
  ops.push_back(
      {.name = "gru_cell",
       .signature = "input_gates, hidden_gates (N,3H), h (N,H), input_bias, hidden_bias (3H) -> "
                    "new_h (N,H), gates (N,5H)",
       .doc = "One time step of a GRU. input_gates and hidden_gates are linear functions of the "
              "input and of the state. Their parts are: reset, update, new.",
       .min_inputs = 3,
       .max_inputs = 5,
       .input_names = {"input_gates", "hidden_gates", "h", "input_bias", "hidden_bias"},
       .formula = GruCell});
  ops.push_back(
      {.name = "gru_cell_backward",
       .signature = "new_h_gradient (N,H), gates (N,5H) -> input_gates_gradient, "
                    "hidden_gates_gradient (N,3H), h_gradient (N,H), "
                    "input_bias_gradient, hidden_bias_gradient (3H)",
       .doc =
           "The gradients of all inputs of gru_cell, from that of new_h and from the result gates.",
       .min_inputs = 2,
       .max_inputs = 2,
       .input_names = {"new_h_gradient", "gates"},
       .formula = GruCellBackward});
}

}  // namespace
}  // namespace formula

void AppendRecurrentCompositions(std::vector<OpSchema>& ops) { formula::AppendCells(ops); }

}  // namespace tensord
