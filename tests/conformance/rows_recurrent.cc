// Cells of recurrent layers and their gradients.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

Bound RecurrentBound(DType dtype, int64_t rows) {
  Bound bound = Ulps(dtype, 2);
  bound.epsilons = 8 + std::sqrt(static_cast<double>(rows));
  return bound;
}

void AddCells(Rows& rows, DType dtype, int64_t n, int64_t h) {
  const auto matrix = [&](int64_t columns, Fill fill = Fill::kPlain) {
    return Input{{dtype, {n, columns}}, fill};
  };
  const Bound bound = RecurrentBound(dtype, n);
  const auto add = [&](const char* op, std::vector<Input> inputs, int outputs) {
    Row row{op, std::move(inputs)};
    row.bound = bound;
    row.num_outputs = outputs;
    rows.push_back(std::move(row));
  };
  for (const bool biased : {false, true}) {
    std::vector<Input> lstm = {matrix(4 * h), matrix(4 * h), matrix(h)};
    std::vector<Input> gru = {matrix(3 * h), matrix(3 * h), matrix(h)};
    for (int i = 0; biased && i < 2; ++i) {
      lstm.push_back({{dtype, {4 * h}}, Fill::kUnit});
      gru.push_back({{dtype, {3 * h}}, Fill::kUnit});
    }
    add("lstm_cell", lstm, 3);
    add("gru_cell", gru, 2);
  }
  const Input unit = matrix(h, Fill::kUnit), gates = matrix(4 * h, Fill::kUnit), c = matrix(h);
  const Input none{{dtype, {}}, Fill::kValues, {0}};
  add("lstm_cell_backward", {unit, unit, c, c, gates}, 3);
  add("lstm_cell_backward", {unit, none, c, c, gates}, 3);
  add("lstm_cell_backward", {none, unit, c, c, gates}, 3);
  add("gru_cell_backward", {unit, matrix(5 * h, Fill::kUnit)}, 5);
  add("lstm_gates_backward", {unit, unit, c, c, gates}, 2);
  add("lstm_gates_backward", {unit, unit, c, c, gates, c}, 2);
  add("gru_gates_backward", {unit, matrix(5 * h, Fill::kUnit)}, 3);
  add("gru_gates_backward", {unit, matrix(5 * h, Fill::kUnit), c}, 3);
}

// The sizes of a layer: steps, rows, features, units.
struct Sizes {
  int64_t t, n, i, h;
};

struct LayerOp {
  const char* name;
  int64_t gates, states, kept;  // kept: what a step keeps for the gradient besides h, in units
};
constexpr LayerOp kLayers[] = {{"lstm", 4, 2, 5}, {"gru", 3, 1, 5}, {"rnn", 1, 1, 0}};

void AddLayer(Rows& rows, DType dtype, const LayerOp& op, const Sizes& s, Attributes attrs) {
  const auto input = [&](const Shape& shape) { return Input{{dtype, shape}, Fill::kUnit}; };
  const Input state = input({s.n, s.h}), none{{dtype, {}}, Fill::kValues, {0}};
  const auto sequence = [&](int64_t units) { return input({s.t, s.n, units * s.h}); };
  const std::vector<Input> states(op.states, state);
  std::vector<Input> layer = {input({s.t, s.n, s.i})};
  layer.insert(layer.end(), states.begin(), states.end());
  layer.insert(layer.end(), {input({op.gates * s.h, s.i}), input({op.gates * s.h, s.h})});
  const auto add = [&](const std::string& name, std::vector<Input> inputs, int64_t outputs,
                       Attributes all) {
    Row row{name, std::move(inputs), std::move(all)};
    row.num_outputs = static_cast<int>(outputs);
    // 16-bit values are rounded after each product and each step.
    row.bound = {.ulps = 2,
                 .epsilons = 4.0 * (dtype == DType::kFloat16    ? 0x1p13
                                    : dtype == DType::kBFloat16 ? 0x1p16
                                                                : 1)};
    rows.push_back(std::move(row));
  };
  const std::string name = std::string(op.name) + "_layer";
  const int64_t outputs = 1 + op.states + (op.kept == 0 ? 0 : op.states);
  add(name, layer, outputs, attrs);
  std::vector<Input> biased = layer;
  biased.insert(biased.end(), 2, input({op.gates * s.h}));
  add(name, biased, outputs, attrs);

  std::vector<Input> kept = layer;
  kept.push_back(sequence(1));
  if (op.states == 2) kept.push_back(sequence(1));
  if (op.kept > 0) kept.push_back(sequence(op.states == 2 ? 4 : 5));
  const auto backward = [&](const Input& of_output, const Input& of_state, int64_t gradients,
                            Attributes all) {
    std::vector<Input> inputs = {of_output};
    inputs.insert(inputs.end(), op.states, of_state);
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    add(name + "_backward", std::move(inputs), gradients, std::move(all));
  };
  const int64_t all = op.states + 5;
  backward(sequence(1), state, all, attrs);
  backward(sequence(1), none, all, attrs);
  backward(none, state, all, attrs);
  Attributes some = attrs;
  some.Set("gradients", std::vector<int64_t>{1, op.states + 1, op.states + 4});
  backward(sequence(1), state, 3, some);
}

}  // namespace

void AddRecurrentRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    AddCells(rows, dtype, 1, 1);
    AddCells(rows, dtype, 1, 8);
    AddCells(rows, dtype, 3, 5);
    AddCells(rows, dtype, 33, 20);
    AddCells(rows, dtype, 64, 128);
    AddCells(rows, dtype, 2, 0);
    for (const LayerOp& op : kLayers) {
      const bool is_rnn = op.gates == 1;
      for (const bool reverse : {false, true}) {
        for (const Sizes& sizes : {Sizes{1, 1, 1, 1}, Sizes{1, 3, 4, 8}, Sizes{4, 2, 3, 5},
                                   Sizes{3, 33, 8, 40}, Sizes{2, 0, 3, 5}, Sizes{2, 3, 0, 5}}) {
          AddLayer(rows, dtype, op, sizes, {{"reverse", reverse}});
          if (is_rnn) {
            AddLayer(rows, dtype, op, sizes, {{"reverse", reverse}, {"nonlinearity", "relu"}});
          }
        }
      }
    }
  }
  const auto f32 = [](const Shape& shape) { return Input{{DType::kFloat32, shape}}; };
  const auto refuse = [&](const char* op, std::vector<Input> inputs) {
    Refuse(rows, {op, std::move(inputs)});
  };
  refuse("lstm_cell", {f32({2, 12}), f32({2, 12}), f32({3})});
  refuse("lstm_cell", {f32({2, 12}), f32({2, 9}), f32({2, 3})});
  refuse("lstm_cell", {f32({2, 12}), f32({2, 12}), f32({2, 3}), f32({12})});
  refuse("lstm_cell", {f32({2, 12}), f32({2, 12}), f32({2, 3}), f32({12}), f32({9})});
  refuse("lstm_cell", {f32({2, 12}), f32({2, 12}), {{DType::kInt32, {2, 3}}}});
  refuse("lstm_cell_backward", {f32({}), f32({2, 3}), f32({2, 3}), f32({2, 3}), f32({2, 9})});
  refuse("lstm_cell_backward", {f32({}), f32({2, 3}), f32({2, 3}), f32({2, 4}), f32({2, 12})});
  refuse("lstm_cell_backward", {f32({}), f32({2, 4}), f32({2, 3}), f32({2, 3}), f32({2, 12})});
  refuse("lstm_cell_backward", {f32({}), f32({2, 1}), f32({2, 3}), f32({2, 3}), f32({2, 12})});
  refuse("gru_cell", {f32({2, 9}), f32({2, 12}), f32({2, 3})});
  refuse("gru_cell_backward", {f32({2, 3}), f32({2, 9})});
  refuse("lstm_gates_backward", {f32({2, 3}), f32({2, 3}), f32({2, 3}), f32({2, 3}), f32({2, 9})});
  refuse("gru_gates_backward", {f32({2, 3}), f32({2, 15}), f32({2, 4})});
  refuse("rnn_layer", {f32({0, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3})});
  refuse("rnn_layer", {f32({2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3})});
  refuse("rnn_layer", {f32({5, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 4})});
  refuse("rnn_layer", {f32({5, 2, 4}), f32({1, 3}), f32({3, 4}), f32({3, 3})});
  refuse("rnn_layer", {f32({5, 2, 4}), f32({2, 3}), f32({3, 5}), f32({3, 3})});
  refuse("rnn_layer", {f32({5, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3}), f32({3})});
  refuse("rnn_layer", {f32({5, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3}), f32({3}), f32({4})});
  refuse("gru_layer", {f32({5, 2, 4}), f32({2, 3}), f32({12, 4}), f32({12, 3})});
  refuse("lstm_layer",
         {f32({5, 2, 4}), f32({2, 3}), f32({2, 3}), f32({12, 4}), {{DType::kFloat64, {12, 3}}}});
  Refuse(rows, {"rnn_layer",
                {f32({5, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3})},
                {{"nonlinearity", "gelu"}}});
  Refuse(rows,
         {"rnn_layer_backward",
          {f32({}), f32({}), f32({5, 2, 4}), f32({2, 3}), f32({3, 4}), f32({3, 3}), f32({5, 2, 3})},
          {{"gradients", std::vector<int64_t>{1, 0}}}});
  refuse("rnn_layer_backward", {f32({5, 2, 2}), f32({}), f32({5, 2, 4}), f32({2, 3}), f32({3, 4}),
                                f32({3, 3}), f32({5, 2, 3})});
}

}  // namespace tensord::conformance
