// Recurrent layers and their gradients, and the gradients of cells. recurrent_ops.cc has the cells.
// A layer gives what its cells give one by one.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

Value SumOverRows(const Value& x) { return Apply("sum", {x}, {{"axes", std::vector<int64_t>{0}}}); }

// Fails unless input i has the shape [rows, columns].
void RequireMatrix(Formula& f, int i, const char* name, int64_t rows, int64_t columns) {
  if (f.input(i).shape() == Shape({rows, columns})) return;
  f.Fail(absl::StrCat(name, " must have the shape [", rows, ", ", columns, "]"));
}

// The dtype to which all inputs are promoted, and that in which the results are computed.
struct Rounding {
  DType dtype, wide;

  explicit Rounding(const Formula& f) : dtype(PromotedDType(f.inputs())), wide(WideDType(dtype)) {}
  Value Widen(const Value& x) const { return x.To(wide); }
  Value Round(const Value& x) const { return x.To(dtype); }
};

// ---- Gradients of cells

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
  const auto gradient = [&, state = shape](int i) {
    return BroadcastTo(r.Widen(f.input(i)), state);
  };
  const auto made = ApplyAll("lstm_gates_backward", {gradient(0), gradient(1), r.Widen(f.input(2)),
                                                     r.Widen(f.input(3)), r.Widen(f.input(4))});
  if (!f.ok()) return;
  f.Return(r.Round(made[0]));
  f.Return(r.Round(made[1]));
  f.Return(r.Round(SumOverRows(made[0])));
}

void GruCellBackward(Formula& f) {
  f.RequireFloating();
  const Shape& shape = f.input(0).shape();
  if (shape.rank() != 2) return f.Fail("the gradient must have two dimensions");
  RequireMatrix(f, 1, "gates", shape.dim(0), 5 * shape.dim(1));
  if (!f.ok()) return;
  const Rounding r(f);
  const auto made = ApplyAll("gru_gates_backward", {r.Widen(f.input(0)), r.Widen(f.input(1))});
  if (!f.ok()) return;
  for (const Value& value : made) f.Return(r.Round(value));
  for (int i : {0, 1}) f.Return(r.Round(SumOverRows(made[i])));
}

// ---- Layers: all steps of a layer in one direction. The products of x are computed for all steps
// at once.

// The operands of a layer: x (T,N,I), the states (N,H), the weights (G·H,I) and (G·H,H), and two
// biases (G·H) or none.
struct Layer {
  Value x;
  std::vector<Value> states;
  Value weight_ih, weight_hh;
  bool reverse, allow_tf32;

  int64_t steps() const { return x.shape().dim(0); }
  int64_t rows() const { return x.shape().dim(1); }
  int64_t size() const { return weight_hh.shape().dim(1); }

  Value Project(const Value& values, const Value& weight, absl::Span<const Value> bias) const {
    std::vector<Value> inputs = {values, weight};
    inputs.insert(inputs.end(), bias.begin(), bias.end());
    return ApplyAll("linear", inputs, {{"allow_tf32", allow_tf32}})[0];
  }
  Value Product(const Value& a, const Value& b, bool transpose_a = false) const {
    return Apply("matmul", {a, b}, {{"transpose_a", transpose_a}, {"allow_tf32", allow_tf32}});
  }
};

// Reads x, `num_states` states and both weights from the inputs, which begin at `first`. Fails
// unless they have one floating dtype, and the shapes of a layer with `gates` gates.
Layer ReadLayer(Formula& f, int first, int num_states, int64_t gates) {
  Layer layer = {f.input(first),
                 {},
                 f.input(first + num_states + 1),
                 f.input(first + num_states + 2),
                 f.attrs().Bool("reverse"),
                 f.attrs().Bool("allow_tf32")};
  for (int i = 1; i <= num_states; ++i) layer.states.push_back(f.input(first + i));
  f.RequireFloating();
  for (const Value& input : f.inputs()) {
    if (input.dtype() != layer.x.dtype()) f.Fail("all inputs must have one dtype");
  }
  if (layer.x.shape().rank() != 3 || layer.steps() == 0) {
    f.Fail("x must have the shape (steps, rows, features) with one step or more");
  }
  if (layer.weight_hh.shape().rank() != 2) f.Fail("weight_hh must have two dimensions");
  if (!f.ok()) return layer;
  const int64_t columns = gates * layer.size();
  for (int i = 1; i <= num_states; ++i) {
    RequireMatrix(f, first + i, "a state", layer.rows(), layer.size());
  }
  RequireMatrix(f, first + num_states + 1, "weight_ih", columns, layer.x.shape().dim(2));
  RequireMatrix(f, first + num_states + 2, "weight_hh", columns, layer.size());
  return layer;
}

// Returns the value of the state after the last step.
Value LastOf(const Layer& layer, const Value& states) {
  const int64_t last = layer.reverse ? 0 : layer.steps() - 1;
  return Copy(Reshape(Slice(states, 0, last, last + 1), {layer.rows(), layer.size()}));
}

// Returns the values of a state before each step: (T,N,H).
Value BeforeEach(const Layer& layer, const Value& first, const Value& states) {
  const int64_t steps = layer.steps();
  const Value own = Reshape(first, {1, layer.rows(), layer.size()});
  if (steps == 1) return own;
  return layer.reverse ? Concat({Slice(states, 0, 1, steps), own}, 0)
                       : Concat({own, Slice(states, 0, 0, steps - 1)}, 0);
}

// Returns the gradients of the operands of the layer that the attribute `gradients` numbers.
// `input_gates` and `own_gates` are the gradients (T,N,G·H) of the products of x and of the state;
// nullopt: they are the same. `states` are those of the first states. `h` has the state before each
// step.
void ReturnGradients(Formula& f, const Layer& layer, const Value& input_gates,
                     const std::optional<Value>& own_gates, absl::Span<const Value> states,
                     const Value& h) {
  const int num_states = static_cast<int>(states.size()), count = num_states + 5;
  const absl::Span<const int64_t> given = f.attrs().Ints("gradients");
  std::vector<int64_t> wanted(given.begin(), given.end());
  for (int i = 0; given.empty() && i < count; ++i) wanted.push_back(i);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] >= (i == 0 ? 0 : wanted[i - 1] + 1) && wanted[i] < count) continue;
    return f.Fail(
        absl::StrCat("gradients must name operands from 0 to ", count - 1, " in ascending order"));
  }
  const auto lines = [&](const Value& v) {
    return Reshape(v, {layer.steps() * layer.rows(), v.shape().dim(2)});
  };
  std::optional<Value> sum;  // of the gates of all steps and rows
  const auto gradient = [&](int64_t operand) {
    if (operand == 0) {
      return Reshape(layer.Product(lines(input_gates), layer.weight_ih), layer.x.shape());
    }
    if (operand <= num_states) return states[operand - 1];
    const int64_t parameter = operand - num_states - 1;
    const Value& gates = parameter % 2 == 1 && own_gates.has_value() ? *own_gates : input_gates;
    if (parameter < 2) {
      return layer.Product(lines(gates), lines(parameter == 0 ? layer.x : h), true);
    }
    if (!sum.has_value() || own_gates.has_value()) sum = SumOverRows(lines(gates));
    return *sum;
  };
  for (const int64_t operand : wanted) f.Return(gradient(operand));
}

// What a layer keeps of each step: (T,N,parts·H).
struct Kept {
  const char* name;
  int64_t parts;
};

// Reads the operands of a layer from the inputs of its gradient. Fails unless all inputs have the
// shapes that RunLayerBackward() needs.
Layer ReadGradient(Formula& f, int num_states, int64_t gates, std::initializer_list<Kept> kept) {
  Layer layer = ReadLayer(f, num_states + 1, num_states, gates);
  if (!f.ok()) return layer;
  const auto require = [&](int i, const char* name, const Shape& shape) {
    if (f.input(i).shape() == shape) return;
    f.Fail(absl::StrCat(name, " must have the shape ", shape.ToString()));
  };
  const Shape all = {layer.steps(), layer.rows(), layer.size()};
  const Shape state = {layer.rows(), layer.size()};
  for (int i = 0; i <= num_states; ++i) {
    if (f.input(i).shape().rank() != 0) require(i, "a gradient", i == 0 ? all : state);
  }
  int i = 2 * num_states + 4;
  require(i++, "output", all);
  for (const Kept& each : kept) {
    require(i++, each.name, {layer.steps(), layer.rows(), each.parts * layer.size()});
  }
  return layer;
}

// Adds an op of `count` outputs.
using Outputs = absl::InlinedVector<Value, 2>;
Outputs OutputsOf(const char* op, std::initializer_list<Value> inputs, int count) {
  Outputs made = ApplyAll(op, inputs);
  // After an error, there are fewer, which mean nothing.
  made.resize(count, made[0]);
  return made;
}

// Computes the states after a step, and what is kept for the gradient, from both products and the
// states before the step.
using StepFunction = absl::FunctionRef<Formula::LoopResults(
    const Value& input_gates, const Value& own_gates, absl::Span<const Value> states)>;

// The layer whose state has `num_states` parts, the first of which is the output, and whose weights
// have `gates` parts. Returns the output, the last states, the other states after each step, and
// what is kept of each step.
void RunLayer(Formula& f, int num_states, int64_t gates, StepFunction step) {
  const Layer layer = ReadLayer(f, 0, num_states, gates);
  if (!f.ok()) return;
  const int first_bias = num_states + 3;
  for (int i = first_bias; i < f.num_inputs(); ++i) {
    if (f.input(i).shape() == Shape({gates * layer.size()})) continue;
    f.Fail(absl::StrCat("a bias must have the shape [", gates * layer.size(), "]"));
  }
  const bool has_bias = f.num_inputs() > first_bias;
  if (f.num_inputs() == first_bias + 1) f.Fail("takes two biases or none");
  if (!f.ok()) return;
  const auto bias = [&](int i) {
    return has_bias ? f.inputs().subspan(first_bias + i, 1) : absl::Span<const Value>();
  };
  const Value products = layer.Project(layer.x, layer.weight_ih, bias(0));
  std::vector<Formula::LoopState> states;
  for (const Value& state : layer.states) states.push_back({state, /*stacked=*/true});
  std::vector<Value> constants = {layer.weight_hh};
  if (has_bias) constants.push_back(bias(1)[0]);
  const std::vector<Value> made =
      f.Loop({states, {products}, constants, layer.reverse}, [&](const Formula::LoopInputs& in) {
        const Value own = layer.Project(in.states[0], in.constants[0], in.constants.subspan(1));
        return step(in.elements[0], own, in.states);
      });
  if (!f.ok()) return;
  f.Return(made[0]);
  for (int i = 0; i < num_states; ++i) f.Return(LastOf(layer, made[i]));
  for (size_t i = 1; i < made.size(); ++i) f.Return(made[i]);
}

// The gradients of the operands of a step.
struct StepGradients {
  Value input_gates;
  std::optional<Value> own_gates;  // nullopt: those of the input
  std::optional<Value> h;          // without that of the product of h
  std::vector<Value> other_states;
};
// Computes them from both gradients of h after the step, those of the other states, and what the
// forward pass has kept for the step.
using StepBackward = absl::FunctionRef<StepGradients(const Value& g, const Value& later,
                                                     absl::Span<const Value> other_states,
                                                     absl::Span<const Value> kept)>;

// The gradients of RunLayer. The inputs are the gradients of the output and of the last states, the
// operands of the layer without biases, and its other outputs, the first of which is the output.
// `kept` has a sequence for each value that a step reads.
void RunLayerBackward(Formula& f, const Layer& layer, std::vector<Value> kept, StepBackward step) {
  const int num_states = static_cast<int>(layer.states.size());
  std::vector<Formula::LoopState> states;
  for (int i = 1; i <= num_states; ++i) {
    states.push_back({BroadcastTo(f.input(i), {layer.rows(), layer.size()})});
  }
  kept.push_back(BroadcastTo(f.input(0), {layer.steps(), layer.rows(), layer.size()}));
  const std::vector<Value> made = f.Loop(
      {states, kept, {&layer.weight_hh, 1}, !layer.reverse}, [&](const Formula::LoopInputs& in) {
        StepGradients own = step(in.elements.back(), in.states[0], in.states.subspan(1),
                                 in.elements.subspan(0, in.elements.size() - 1));
        Formula::LoopResults results = {{}, {own.input_gates}};
        if (own.own_gates.has_value()) results.rows.push_back(*own.own_gates);
        const Value h = layer.Product(results.rows.back(), in.constants[0]);
        results.states.push_back(own.h.has_value() ? h + *own.h : h);
        for (const Value& state : own.other_states) results.states.push_back(state);
        return results;
      });
  if (!f.ok()) return;
  const auto of_states = absl::MakeConstSpan(made).subspan(0, num_states);
  const bool has_own = made.size() > static_cast<size_t>(num_states) + 1;
  ReturnGradients(f, layer, made[num_states], has_own ? std::optional(made.back()) : std::nullopt,
                  of_states, BeforeEach(layer, layer.states[0], f.input(2 * num_states + 4)));
}

void LstmLayer(Formula& f) {
  RunLayer(f, 2, 4, [](const Value& x, const Value& own, absl::Span<const Value> states) {
    const Outputs made = OutputsOf("lstm_cell", {x, own, states[1]}, 3);
    return Formula::LoopResults{{made[0], made[1]}, {made[2]}};
  });
}

void LstmLayerBackward(Formula& f) {
  const Layer layer = ReadGradient(f, 2, 4, {{"cells", 1}, {"gates", 4}});
  if (!f.ok()) return;
  const Value cells = f.input(9);
  RunLayerBackward(f, layer, {BeforeEach(layer, layer.states[1], cells), cells, f.input(10)},
                   [](const Value& g, const Value& later, absl::Span<const Value> of_c,
                      absl::Span<const Value> kept) {
                     const Outputs made = OutputsOf(
                         "lstm_gates_backward", {g, of_c[0], kept[0], kept[1], kept[2], later}, 2);
                     return StepGradients{made[0], {}, {}, {made[1]}};
                   });
}

void GruLayer(Formula& f) {
  RunLayer(f, 1, 3, [](const Value& x, const Value& own, absl::Span<const Value> states) {
    const Outputs made = OutputsOf("gru_cell", {x, own, states[0]}, 2);
    return Formula::LoopResults{{made[0]}, {made[1]}};
  });
}

void GruLayerBackward(Formula& f) {
  const Layer layer = ReadGradient(f, 1, 3, {{"gates", 5}});
  if (!f.ok()) return;
  RunLayerBackward(f, layer, {f.input(7)},
                   [](const Value& g, const Value& later, absl::Span<const Value> /*others*/,
                      absl::Span<const Value> kept) {
                     const Outputs made = OutputsOf("gru_gates_backward", {g, kept[0], later}, 3);
                     return StepGradients{made[0], made[1], made[2], {}};
                   });
}

// Fails unless the attribute has one of its values.
bool IsRelu(Formula& f) {
  const std::string& name = f.attrs().String("nonlinearity");
  if (name != "relu" && name != "tanh") f.Fail("nonlinearity must be \"tanh\" or \"relu\"");
  return name == "relu";
}

void RnnLayer(Formula& f) {
  RunLayer(
      f, 1, 1,
      [relu = IsRelu(f)](const Value& x, const Value& own, absl::Span<const Value> /*states*/) {
        const DType dtype = x.dtype(), wide = WideDType(dtype);
        const Value sum = x.To(wide) + own.To(wide);
        return Formula::LoopResults{{(relu ? Relu(sum) : Tanh(sum)).To(dtype)}, {}};
      });
}

void RnnLayerBackward(Formula& f) {
  const bool relu = IsRelu(f);
  const Layer layer = ReadGradient(f, 1, 1, {});
  if (!f.ok()) return;
  RunLayerBackward(f, layer, {f.input(6)},
                   [relu](const Value& g, const Value& later, absl::Span<const Value> /*others*/,
                          absl::Span<const Value> kept) {
                     const DType dtype = g.dtype(), wide = WideDType(dtype);
                     const Value of_h = g.To(wide) + later.To(wide), h = kept[0].To(wide);
                     const Value gates = relu ? Where(Le(h, 0), 0, of_h) : of_h * (1 - h * h);
                     return StepGradients{gates.To(dtype), {}, {}, {}};
                   });
}

void AppendCells(std::vector<OpSchema>& ops) {
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

// Appends a layer and its gradient.
void AppendLayer(std::vector<OpSchema>& ops, OpSchema layer, OpSchema backward) {
  const AttrDef reverse =
      OptionalAttr("reverse", AttrType::kBool, false, "from the last step to the first");
  for (OpSchema* op : {&layer, &backward}) {
    op->attrs.insert(op->attrs.begin(), {reverse, AllowTf32()});
  }
  backward.attrs.push_back(OptionalAttr(
      "gradients", AttrType::kInts, std::vector<int64_t>{},
      "the operands of the layer whose gradients are computed, by number; empty: all"));
  ops.push_back(std::move(layer));
  ops.push_back(std::move(backward));
}

void AppendLayers(std::vector<OpSchema>& ops) {
  AppendLayer(
      ops,
      {.name = "lstm_layer",
       .signature = "x (T,N,I), h, c (N,H), weight_ih (4H,I), weight_hh (4H,H), bias_ih, bias_hh "
                    "(4H) -> output (T,N,H), new_h, new_c (N,H), cells (T,N,H), gates (T,N,4H)",
       .doc =
           "All steps of one layer of an LSTM in one direction: lstm_cell of linear functions of "
           "x and of the state. `cells` and `gates` are for the gradient.",
       .min_inputs = 5,
       .max_inputs = 7,
       .input_names = {"x", "h", "c", "weight_ih", "weight_hh", "bias_ih", "bias_hh"},
       .formula = LstmLayer},
      {.name = "lstm_layer_backward",
       .signature = "output_gradient (T,N,H), new_h_gradient, new_c_gradient (N,H), x, h, c, "
                    "weight_ih, weight_hh, output, cells, gates -> the gradients of x, h, c, "
                    "weight_ih, weight_hh, bias_ih, bias_hh",
       .doc = "The gradients of lstm_layer. That of a result may be a scalar.",
       .min_inputs = 11,
       .max_inputs = 11,
       .input_names = {"output_gradient", "new_h_gradient", "new_c_gradient", "x", "h", "c",
                       "weight_ih", "weight_hh", "output", "cells", "gates"},
       .formula = LstmLayerBackward});
  AppendLayer(
      ops,
      {.name = "gru_layer",
       .signature = "x (T,N,I), h (N,H), weight_ih (3H,I), weight_hh (3H,H), bias_ih, bias_hh (3H) "
                    "-> output (T,N,H), new_h (N,H), gates (T,N,5H)",
       .doc = "All steps of one layer of a GRU in one direction: gru_cell of linear functions of x "
              "and of the state. `gates` is for the gradient.",
       .min_inputs = 4,
       .max_inputs = 6,
       .input_names = {"x", "h", "weight_ih", "weight_hh", "bias_ih", "bias_hh"},
       .formula = GruLayer},
      {.name = "gru_layer_backward",
       .signature =
           "output_gradient (T,N,H), new_h_gradient (N,H), x, h, weight_ih, weight_hh, "
           "output, gates -> the gradients of x, h, weight_ih, weight_hh, bias_ih, bias_hh",
       .doc = "The gradients of gru_layer. That of a result may be a scalar.",
       .min_inputs = 8,
       .max_inputs = 8,
       .input_names = {"output_gradient", "new_h_gradient", "x", "h", "weight_ih", "weight_hh",
                       "output", "gates"},
       .formula = GruLayerBackward});
  const AttrDef nonlinearity =
      OptionalAttr("nonlinearity", AttrType::kString, std::string("tanh"), "\"tanh\" or \"relu\"");
  AppendLayer(
      ops,
      {.name = "rnn_layer",
       .signature = "x (T,N,I), h (N,H), weight_ih (H,I), weight_hh (H,H), bias_ih, bias_hh (H) -> "
                    "output (T,N,H), new_h (N,H)",
       .doc = "All steps of one layer of an RNN in one direction: the nonlinearity of the sum of "
              "linear functions of x and of the state.",
       .min_inputs = 4,
       .max_inputs = 6,
       .attrs = {nonlinearity},
       .input_names = {"x", "h", "weight_ih", "weight_hh", "bias_ih", "bias_hh"},
       .formula = RnnLayer},
      {.name = "rnn_layer_backward",
       .signature = "output_gradient (T,N,H), new_h_gradient (N,H), x, h, weight_ih, weight_hh, "
                    "output -> the gradients of x, h, weight_ih, weight_hh, bias_ih, bias_hh",
       .doc = "The gradients of rnn_layer. That of a result may be a scalar.",
       .min_inputs = 7,
       .max_inputs = 7,
       .attrs = {nonlinearity},
       .input_names = {"output_gradient", "new_h_gradient", "x", "h", "weight_ih", "weight_hh",
                       "output"},
       .formula = RnnLayerBackward});
}

}  // namespace
}  // namespace formula

void AppendRecurrentCompositions(std::vector<OpSchema>& ops) {
  formula::AppendCells(ops);
  formula::AppendLayers(ops);
}

}  // namespace tensord
