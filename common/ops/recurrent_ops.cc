// Cells of recurrent layers. compositions/recurrent.cc has the layers.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Checks that input `state` is a floating matrix (N,H).
absl::Status RequireState(const InferenceContext& ctx, int state) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(i).dtype));
  }
  if (ctx.input(state).shape.rank() == 2) return absl::OkStatus();
  return ctx.Error(absl::StrCat(ctx.schema().input_names[state], " must have two dimensions"));
}

// Adds the outputs of a cell whose input 2 is its state, and whose inputs have `gates` gates.
absl::Status InferCell(InferenceContext& ctx, int64_t gates, int64_t num_states, int64_t kept) {
  TENSORD_RETURN_IF_ERROR(RequireState(ctx, 2));
  const Shape& state = ctx.input(2).shape;
  const int64_t rows = state.dim(0), columns = gates * state.dim(1);
  for (const int i : {0, 1}) {
    TENSORD_RETURN_IF_ERROR(RequireShape(ctx, i, {rows, columns}, "that of the state's gates"));
  }
  if (ctx.num_inputs() == 4) return ctx.Error("takes two biases or none");
  for (int i = 3; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(RequireShape(ctx, i, {columns}, "that of a row of gates"));
  }
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  for (int64_t i = 0; i < num_states; ++i) ctx.AddOutput(dtype, state);
  ctx.AddOutput(dtype, {rows, kept * state.dim(1)});
  return absl::OkStatus();
}

absl::Status InferLstmCell(InferenceContext& ctx) { return InferCell(ctx, 4, 2, 4); }
absl::Status InferGruCell(InferenceContext& ctx) { return InferCell(ctx, 3, 1, 5); }

absl::Status InferLstmGatesBackward(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireState(ctx, 2));
  const Shape& state = ctx.input(2).shape;
  const Shape gates = {state.dim(0), 4 * state.dim(1)};
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(i == 4 ? RequireShape(ctx, i, gates, "that of the gates of c")
                                   : RequireShape(ctx, i, state, "that of c"));
  }
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  ctx.AddOutput(dtype, gates);
  ctx.AddOutput(dtype, state);
  return absl::OkStatus();
}

absl::Status InferGruGatesBackward(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(RequireState(ctx, 0));
  const Shape& state = ctx.input(0).shape;
  TENSORD_RETURN_IF_ERROR(
      RequireShape(ctx, 1, {state.dim(0), 5 * state.dim(1)}, "that of the gates of h"));
  if (ctx.num_inputs() > 2) TENSORD_RETURN_IF_ERROR(RequireShape(ctx, 2, state, "that of h"));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  for (int i = 0; i < 2; ++i) ctx.AddOutput(dtype, {state.dim(0), 3 * state.dim(1)});
  ctx.AddOutput(dtype, state);
  return absl::OkStatus();
}

}  // namespace

void AppendRecurrentOps(std::vector<OpSchema>& ops) {
  ops.push_back(
      {.name = "lstm_cell",
       .signature = "input_gates, hidden_gates (N,4H), c (N,H), input_bias, hidden_bias (4H) -> "
                    "new_h, new_c (N,H), gates (N,4H)",
       .doc = "One time step of an LSTM. input_gates and hidden_gates are linear functions of the "
              "input and of the state. Their parts are: input, forget, cell, output.",
       .min_inputs = 3,
       .max_inputs = 5,
       .infer = InferLstmCell,
       .input_names = {"input_gates", "hidden_gates", "c", "input_bias", "hidden_bias"}});
  ops.push_back(
      {.name = "lstm_gates_backward",
       .signature = "h_gradient, c_gradient, c, new_c (N,H), gates (N,4H)[, another h_gradient "
                    "(N,H)] -> gates_gradient (N,4H), c_gradient (N,H)",
       .doc = "The gradients of the sums of the gates and of c, from results of lstm_cell and "
              "their gradients. If h has two gradients, they are added.",
       .min_inputs = 5,
       .max_inputs = 6,
       .infer = InferLstmGatesBackward,
       .input_names = {"h_gradient", "c_gradient", "c", "new_c", "gates", "other_h_gradient"}});
  ops.push_back(
      {.name = "gru_cell",
       .signature = "input_gates, hidden_gates (N,3H), h (N,H), input_bias, hidden_bias (3H) -> "
                    "new_h (N,H), gates (N,5H)",
       .doc = "One time step of a GRU. input_gates and hidden_gates are linear functions of the "
              "input and of the state. Their parts are: reset, update, new.",
       .min_inputs = 3,
       .max_inputs = 5,
       .infer = InferGruCell,
       .input_names = {"input_gates", "hidden_gates", "h", "input_bias", "hidden_bias"}});
  ops.push_back(
      {.name = "gru_gates_backward",
       .signature = "h_gradient (N,H), gates (N,5H)[, another h_gradient (N,H)] -> "
                    "input_gates_gradient, hidden_gates_gradient (N,3H), h_gradient (N,H)",
       .doc = "The gradients of the sums of the gates and of h, from that of new_h and the result "
              "`gates` of gru_cell. If new_h has two gradients, they are added.",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = InferGruGatesBackward,
       .input_names = {"h_gradient", "gates", "other_h_gradient"}});
}

}  // namespace tensord
