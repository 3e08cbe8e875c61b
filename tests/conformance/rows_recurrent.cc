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
}

}  // namespace tensord::conformance
