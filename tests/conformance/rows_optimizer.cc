// Steps of optimizers.
#include <cmath>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

Input Number(DType dtype, double value) { return {{dtype, {}}, Fill::kValues, {value}}; }

Row AdamRow(DType dtype, const Shape& shape, double step, double lr, bool amsgrad) {
  Row row{"adam_step",
          {{{dtype, shape}},
           {{dtype, shape}, Fill::kUnit},
           {{dtype, shape}, Fill::kUnit},
           {{dtype, shape}, Fill::kPositive}}};
  if (amsgrad) {
    row.inputs.push_back({{dtype, shape}, Fill::kPositive});
    row.attrs.Set("amsgrad", true);
  }
  row.inputs.push_back(Number(DType::kInt64, step));
  row.inputs.push_back(Number(DType::kFloat64, lr));
  row.num_outputs = amsgrad ? 4 : 3;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  row.bound = {.ulps = narrow ? 1.0 : 2.0, .epsilons = 6};
  return row;
}

void AddAdamRefusals(Rows& rows) {
  const Row row = AdamRow(DType::kFloat32, {3, 4}, 1, 0.1, false);
  for (const char* name : {"beta1", "beta2"}) {
    for (const double value : {1.0, -0.1, std::nan("")}) {
      Refuse(rows, row);
      rows.back().attrs.Set(name, value);
    }
  }
  for (const char* name : {"eps", "weight_decay"}) {
    for (const double value : {-1.0, double{INFINITY}}) {
      Refuse(rows, row);
      rows.back().attrs.Set(name, value);
    }
  }
  Refuse(rows, row);
  rows.back().attrs.Set("amsgrad", true);
  Refuse(rows, AdamRow(DType::kFloat32, {3, 4}, 1, 0.1, true));
  rows.back().attrs.Set("amsgrad", false);
  for (size_t input = 0; input < row.inputs.size(); ++input) {
    Refuse(rows, row);
    rows.back().inputs[input] = {{DType::kFloat32, {4, 3}}};
    Refuse(rows, row);
    rows.back().inputs[input] = {{DType::kBool, input < 4 ? Shape({3, 4}) : Shape()}};
  }
  Refuse(rows, row);
  rows.back().inputs[2].spec.dtype = DType::kFloat64;
}

void AddGradientScaler(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const Fill fill : {Fill::kPlain, Fill::kSpecial}) {
      for (const double found : {0.0, 1.0}) {
        Row row{"amp_unscale",
                {{{dtype, {40}}, fill},
                 Number(DType::kFloat32, found),
                 Number(DType::kFloat32, 1.0 / 1024)}};
        row.num_outputs = 2;
        row.bound = Ulps(dtype, 1);
        rows.push_back(std::move(row));
      }
    }
  }
  const Attributes attrs{{"growth", 2.0}, {"backoff", 0.5}, {"interval", int64_t{5}}};
  for (const double scale : {65536.0, 3e38}) {
    for (const double tracker : {0.0, 3.0, 4.0}) {
      for (const double found : {0.0, 1.0}) {
        Row row{"amp_update_scale",
                {Number(DType::kFloat32, scale), Number(DType::kInt32, tracker),
                 Number(DType::kFloat32, found)},
                attrs};
        row.num_outputs = 2;
        rows.push_back(std::move(row));
      }
    }
  }
  const Input one = Number(DType::kFloat32, 1);
  Refuse(rows, {"amp_unscale", {{{DType::kInt32, {3}}}, one, one}});
  Refuse(rows, {"amp_unscale", {one, {{DType::kFloat32, {2}}}, one}});
  const Input count = Number(DType::kInt32, 1);
  Refuse(rows, {"amp_update_scale", {one, {{DType::kInt32, {2}}}, one}, attrs});
  Refuse(rows, {"amp_update_scale", {count, count, one}, attrs});
  Refuse(rows, {"amp_update_scale", {one, one, one}, attrs});
}

}  // namespace

void AddOptimizerRows(Rows& rows) {
  AddGradientScaler(rows);
  for (const DType dtype : kFloatingDTypes) {
    for (const Shape& shape :
         {Shape(), Shape({1}), Shape({37}), Shape({0}), Shape({3, 4, 5}), Shape({67, 129})}) {
      for (const bool amsgrad : {false, true}) {
        rows.push_back(AdamRow(dtype, shape, 1, 0.001, amsgrad));
        rows.push_back(AdamRow(dtype, shape, 1000, 0.1, amsgrad));
        rows.back().attrs.Set("weight_decay", 0.01);
        rows.push_back(AdamRow(dtype, shape, 3, 0.1, amsgrad));
        rows.back().attrs.Set("weight_decay", 0.1);
        rows.back().attrs.Set("decoupled", true);
        rows.back().attrs.Set("maximize", true);
        rows.back().attrs.Set("beta1", 0.5);
        rows.back().attrs.Set("beta2", 0.75);
        rows.back().attrs.Set("eps", 0.01);
      }
    }
    // The numbers may have any dtype.
    Row row = AdamRow(dtype, {5}, 2, 0.25, false);
    row.inputs[4] = Number(DType::kFloat32, 2);
    row.inputs[5] = Number(DType::kFloat16, 0.25);
    rows.push_back(row);
    const double nan = std::nan(""), inf = INFINITY;
    for (size_t input = 0; input < 5; ++input) {
      rows.push_back(AdamRow(dtype, {6}, 2, 0.1, true));
      rows.back().inputs[input] = {{dtype, {6}}, Fill::kValues, {nan, inf, -0.0, 1, 0, 2}};
    }
  }
  AddAdamRefusals(rows);
}

}  // namespace tensord::conformance
