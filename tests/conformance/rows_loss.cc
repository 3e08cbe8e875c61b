// Losses and their gradients.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

struct LossCase {
  Shape x;
  int64_t axis = -1;
};

const LossCase kLossCases[] = {
    {{5}},           {{1}},          {{3, 1}},        {{4, 7}},           {{4, 32}},
    {{7, 33}},       {{3, 2500}},    {{1, 20001}},    {{0, 5}},           {{0, 0}},
    {{6, 3}, 0},     {{2, 5, 3}, 1}, {{2, 5, 40}, 1}, {{3, 40, 7, 9}, 1}, {{2, 60, 131}, 1},
    {{2, 3, 4}, -1}, {{9, 1, 5}, 1}, {{20, 200}, 0},  {{64, 1000}}};

int64_t AxisOf(const LossCase& c) { return c.axis < 0 ? c.axis + c.x.rank() : c.axis; }

Shape RowsOf(const LossCase& c) {
  Shape shape;
  for (int d = 0; d < c.x.rank(); ++d) {
    if (d != AxisOf(c)) shape.AppendDim(c.x.dim(d));
  }
  return shape;
}

// Returns targets. If `ignored` isn't -100, every fifth target is ignored.
Input Targets(DType dtype, const LossCase& c, int64_t ignored) {
  Input input{{dtype, RowsOf(c)}, Fill::kValues};
  const int64_t classes = c.x.dim(static_cast<int>(AxisOf(c)));
  for (int64_t i = 0; i < input.spec.num_elements(); ++i) {
    const int64_t value = (i * 7 + i * i / 3) % classes;
    input.values.push_back(static_cast<double>(ignored != -100 && i % 5 == 2 ? ignored : value));
  }
  return input;
}

Bound LossBound(DType dtype, int64_t classes) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return {.ulps = narrow ? 1.0 : 2.0, .epsilons = 8 + std::sqrt(static_cast<double>(classes))};
}

struct LossOptions {
  bool weight = false;
  DType weight_dtype = DType::kUnspecified;  // kUnspecified: that of x
  double smoothing = 0;
  int64_t ignored = -100;
  DType index = DType::kInt64;
};

Attributes LossAttributes(const LossCase& c, const LossOptions& options) {
  Attributes attrs{{"axis", c.axis}};
  if (options.smoothing != 0) attrs.Set("label_smoothing", options.smoothing);
  if (options.ignored != -100) attrs.Set("ignore_index", options.ignored);
  return attrs;
}

void AddWeight(Row& row, const LossCase& c, DType dtype, const LossOptions& options) {
  if (!options.weight) return;
  const DType given = options.weight_dtype == DType::kUnspecified ? dtype : options.weight_dtype;
  row.inputs.push_back({{given, {c.x.dim(static_cast<int>(AxisOf(c)))}}, Fill::kPositive});
}

void AddForward(Rows& rows, const Input& x, const LossCase& c, const LossOptions& options) {
  const DType dtype = x.spec.dtype;
  Row row{
      "cross_entropy", {x, Targets(options.index, c, options.ignored)}, LossAttributes(c, options)};
  AddWeight(row, c, dtype, options);
  row.bound = LossBound(StatisticsOf(dtype), c.x.dim(static_cast<int>(AxisOf(c))));
  row.num_outputs = 2;
  rows.push_back(std::move(row));
}

void AddBackward(Rows& rows, const Input& x, const LossCase& c, const LossOptions& options,
                 Fill g = Fill::kPlain) {
  const DType dtype = x.spec.dtype;
  Row row{"cross_entropy_backward",
          {{{StatisticsOf(dtype), RowsOf(c)}, g},
           x,
           {{StatisticsOf(dtype), RowsOf(c)}, Fill::kPositive},
           Targets(options.index, c, options.ignored)},
          LossAttributes(c, options)};
  AddWeight(row, c, dtype, options);
  row.bound = LossBound(dtype, 1);
  rows.push_back(std::move(row));
}

// Adds rows of the reduced loss and of its gradient.
void AddReduced(Rows& rows, const LossCase& c, DType dtype, const LossOptions& options,
                const std::string& reduction) {
  const DType statistics = StatisticsOf(dtype);
  const Input x{{dtype, c.x}}, target = Targets(options.index, c, options.ignored);
  const Shape gradient = reduction == "none" ? RowsOf(c) : Shape{};
  Attributes attrs = LossAttributes(c, options);
  attrs.Set("reduction", reduction);
  const auto terms = std::sqrt(static_cast<double>(1 + RowsOf(c).num_elements()));
  Row forward{"cross_entropy_loss", {x, target}, attrs};
  AddWeight(forward, c, dtype, options);
  forward.bound = LossBound(statistics, c.x.dim(static_cast<int>(AxisOf(c))));
  forward.bound.epsilons += terms;
  forward.num_outputs = 3;
  rows.push_back(std::move(forward));
  Row backward{"cross_entropy_loss_backward",
               {{{statistics, gradient}, Fill::kUnit},
                x,
                {{statistics, RowsOf(c)}, Fill::kPositive},
                target,
                {{statistics, {}}, Fill::kPositive}},
               attrs};
  AddWeight(backward, c, dtype, options);
  backward.bound = LossBound(dtype, 1);
  rows.push_back(std::move(backward));
}

// Adds rows of nll_loss and of its gradient.
void AddNll(Rows& rows, const LossCase& c, DType dtype, const LossOptions& options,
            const std::string& reduction) {
  const Input x{{dtype, c.x}}, target = Targets(options.index, c, options.ignored);
  Attributes attrs = LossAttributes(c, options);
  attrs.Set("reduction", reduction);
  Row forward{"nll_loss", {x, target}, attrs};
  AddWeight(forward, c, dtype, options);
  forward.bound = LossBound(dtype, 1 + RowsOf(c).num_elements());
  forward.num_outputs = 2;
  rows.push_back(std::move(forward));
  const Shape gradient = reduction == "none" ? RowsOf(c) : Shape{};
  Row backward{"nll_loss_backward", {{{dtype, gradient}, Fill::kUnit}, x, target}, attrs};
  AddWeight(backward, c, dtype, options);
  backward.bound = LossBound(dtype, 1 + RowsOf(c).num_elements());
  rows.push_back(std::move(backward));
}

// ---- losses of elements

struct ElementCase {
  const char* name;
  std::vector<Attributes> attrs = {{}};
  Fill x = Fill::kPlain, target = Fill::kPlain;
  int weights = 0;  // the number of optional inputs
};

// Returns multiples of 1/32 in [0, 1], which all floating dtypes represent exactly.
std::vector<double> Probabilities(int64_t count, int64_t step) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i * step % 33) / 32);
  }
  return values;
}

Input Filled(DType dtype, const Shape& shape, Fill fill, int64_t step) {
  Input input{{dtype, shape}, fill};
  if (fill == Fill::kValues) input.values = Probabilities(shape.num_elements(), step);
  return input;
}

std::vector<ElementCase> ElementCases() {
  return {
      {.name = "mse_loss"},
      {.name = "l1_loss"},
      {.name = "smooth_l1_loss", .attrs = {{}, {{"beta", 2.5}}, {{"beta", 0.0}}}},
      {.name = "huber_loss", .attrs = {{}, {{"delta", 2.5}}}},
      {.name = "binary_cross_entropy", .x = Fill::kValues, .target = Fill::kValues, .weights = 1},
      {.name = "binary_cross_entropy_with_logits", .target = Fill::kValues, .weights = 2},
      {.name = "kl_div", .target = Fill::kValues},
      {.name = "kl_div", .attrs = {{{"log_target", true}}}}};
}

// Adds rows of a loss and of its gradient, with `weights` optional inputs.
void AddElementRows(Rows& rows, const ElementCase& c, Attributes attrs, DType dtype,
                    const Shape& shape, const std::string& reduction, int weights) {
  attrs.Set("reduction", reduction);
  std::vector<Input> inputs = {Filled(dtype, shape, c.x, 5), Filled(dtype, shape, c.target, 7)};
  Shape factor;
  if (shape.rank() > 0) factor.AppendDim(shape.dim(shape.rank() - 1));
  for (int i = 0; i < weights; ++i) inputs.push_back({{dtype, factor}, Fill::kPositive});
  const Bound bound = LossBound(dtype, 1 + shape.num_elements());
  rows.push_back({c.name, inputs, attrs, bound});
  const Input gradient{{dtype, reduction == "none" ? shape : Shape{}}, Fill::kUnit};
  inputs.insert(inputs.begin(), gradient);
  Row backward{std::string(c.name) + "_backward", inputs, attrs, bound};
  backward.bound.absolute = 1e-12;  // the difference quotient's own error
  rows.push_back(std::move(backward));
}

void AddElementLosses(Rows& rows) {
  for (const ElementCase& c : ElementCases()) {
    for (const Attributes& attrs : c.attrs) {
      for (const DType dtype : kFloatingDTypes) {
        for (const Shape& shape : {Shape{}, {0}, {7}, {3, 5}, {67, 129}}) {
          for (const std::string reduction : {"none", "mean", "sum"}) {
            for (int weights = 0; weights <= c.weights; ++weights) {
              AddElementRows(rows, c, attrs, dtype, shape, reduction, weights);
            }
          }
        }
      }
      AddElementRows(rows, c, attrs, DType::kFloat32, {600, 1000}, "mean", c.weights);
    }
    // Equal elements: the derivative of an absolute value is 0 there.
    ElementCase ties = c;
    if (c.x == Fill::kPlain) ties.x = Fill::kTies;
    if (c.target == Fill::kPlain) ties.target = Fill::kTies;
    AddElementRows(rows, ties, c.attrs[0], DType::kFloat32, {90}, "none", 0);
    const std::string name = c.name, backward = name + "_backward";
    const Input x{{DType::kFloat32, {6}}}, wide{{DType::kFloat64, {6}}}, ints{{DType::kInt64, {6}}};
    const Input other{{DType::kFloat32, {5}}}, one{{DType::kFloat32, {}}};
    Refuse(rows, {name, {x, other}});
    Refuse(rows, {name, {x, one}});
    Refuse(rows, {name, {x, ints}});
    Refuse(rows, {name, {x, x}, {{"reduction", std::string("median")}}});
    Refuse(rows, {backward, {one, x, other}});
    Refuse(rows, {backward, {other, x, x}});
    Refuse(rows, {backward, {{{DType::kFloat32, {2, 6}}}, x, x}});
    if (c.weights > 0) Refuse(rows, {name, {x, x, {{DType::kFloat32, {2, 6}}}}});
    if (c.x != Fill::kPlain || c.target != Fill::kPlain) continue;
    const Input half{{DType::kFloat16, {6}}};
    rows.push_back({name, {x, wide}, c.attrs[0], LossBound(DType::kFloat32, 6)});
    rows.push_back({name, {half, x}, c.attrs[0], LossBound(DType::kFloat32, 6)});
    rows.push_back({backward, {one, half, x}, c.attrs[0], LossBound(DType::kFloat32, 6)});
    rows.back().bound.absolute = 1e-12;
  }
  const Input x{{DType::kFloat32, {6}}};
  Refuse(rows, {"smooth_l1_loss", {x, x}, {{"beta", -1.0}}});
  Refuse(rows, {"huber_loss", {x, x}, {{"delta", 0.0}}});
  Refuse(rows, {"huber_loss_backward", {x, x, x}, {{"delta", std::nan("")}}});
}

void AddSpecial(Rows& rows, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  const LossCase c{{6, 3}}, columns{{3, 6}, 0};
  const std::vector<double> x = {nan,  1, 2,    inf,   1,     2,     -inf, -inf, -inf,
                                 -inf, 3, -inf, 60000, 60000, 59968, 0,    -0.0, 0};
  for (const double smoothing : {0.0, 0.25}) {
    const LossOptions options{.smoothing = smoothing};
    AddForward(rows, {{dtype, {6, 3}}, Fill::kValues, x}, c, options);
    AddForward(rows, {{dtype, {3, 6}}, Fill::kValues, x}, columns, options);
    AddBackward(rows, {{dtype, {6, 3}}, Fill::kTies}, c, options, Fill::kTies);
  }
  // Many classes after a block of -inf.
  std::vector<double> late(3000, -inf);
  for (int i = 2500; i < 3000; ++i) late[i] = i % 7;
  AddForward(rows, {{dtype, {1, 3000}}, Fill::kValues, late}, {{1, 3000}}, {});
}

void AddLossRefusals(Rows& rows) {
  const Input x{{DType::kFloat32, {4, 6}}}, row{{DType::kFloat32, {4}}};
  const Input target = Targets(DType::kInt64, {{4, 6}}, -100);
  Refuse(rows, {"cross_entropy", {{{DType::kFloat32, {}}}, {{DType::kInt64, {}}}}});
  Refuse(rows, {"cross_entropy", {{{DType::kInt32, {4, 6}}}, target}});
  Refuse(rows, {"cross_entropy", {x, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"cross_entropy", {x, {{DType::kInt64, {6}}}}});
  Refuse(rows, {"cross_entropy", {x, {{DType::kInt64, {4, 1}}}}});
  Refuse(rows, {"cross_entropy", {x, target}, {{"axis", int64_t{2}}}});
  Refuse(rows, {"cross_entropy", {x, target}, {{"label_smoothing", 1.5}}});
  Refuse(rows, {"cross_entropy", {x, target}, {{"label_smoothing", std::nan("")}}});
  Refuse(rows, {"cross_entropy", {x, target, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"cross_entropy", {x, target, {{DType::kFloat64, {6}}}}});
  Refuse(rows, {"cross_entropy", {{{DType::kFloat32, {4, 0}}}, target}});
  Refuse(rows, {"cross_entropy_loss", {x, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"cross_entropy_loss", {x, target}, {{"reduction", std::string("median")}}});
  Refuse(rows, {"cross_entropy_backward", {row, x, row}});
  Refuse(rows, {"cross_entropy_backward", {row, x, x, target}});
  Refuse(rows, {"cross_entropy_backward", {x, x, row, target}});
  Refuse(rows, {"cross_entropy_backward", {row, x, {{DType::kFloat64, {4}}}, target}});
  Refuse(rows, {"cross_entropy_backward", {target, x, row, target}});
  Refuse(rows, {"nll_loss", {x, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"nll_loss", {x, {{DType::kInt64, {6}}}}});
  Refuse(rows, {"nll_loss", {{{DType::kInt64, {4, 6}}}, target}});
  Refuse(rows, {"nll_loss", {x, target, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"nll_loss", {x, target}, {{"axis", int64_t{2}}}});
  Refuse(rows, {"nll_loss_backward", {x, x, target}});
  // Only the values show these errors.
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (const double bad : {6.0, -1.0, -100.0}) {
      Input wrong = Targets(dtype, {{4, 6}}, -100);
      wrong.values[2] = bad;
      const Attributes ignore{{"ignore_index", int64_t{-3}}};
      Refuse(rows, {"cross_entropy", {x, wrong}, ignore});
      Refuse(rows, {"cross_entropy_backward", {row, x, row, wrong}, ignore});
      Refuse(rows, {"cross_entropy_loss", {x, wrong}, ignore});
      const Input one{{DType::kFloat32, {}}};
      Refuse(rows, {"cross_entropy_loss_backward", {one, x, row, wrong, one}, ignore});
      const Input weight{{DType::kFloat32, {6}}};
      Refuse(rows, {"nll_loss", {x, wrong}, ignore});
      Refuse(rows, {"nll_loss", {x, wrong, weight}, ignore});
      Refuse(rows, {"nll_loss_backward", {one, x, wrong}, ignore});
      Refuse(rows, {"nll_loss_backward", {one, x, wrong, weight}, ignore});
    }
  }
}

}  // namespace

void AddLossRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const LossCase& c : kLossCases) {
      for (const LossOptions& options :
           {LossOptions{}, LossOptions{.weight = true, .index = DType::kInt32},
            LossOptions{.smoothing = 0.1},
            LossOptions{.weight = true,
            .weight_dtype = StatisticsOf(dtype),
            .smoothing = 0.3,
            .ignored = -7},
            LossOptions{.ignored = 0}, LossOptions{.smoothing = 1}}) {
        AddForward(rows, {{dtype, c.x}}, c, options);
        AddBackward(rows, {{dtype, c.x}}, c, options);
      }
      AddForward(rows, {{dtype, c.x}, Fill::kWide}, c, {});
    }
    for (const std::string reduction : {"none", "mean", "sum"}) {
      for (const LossCase& c :
           {LossCase{{5}}, {{4, 7}}, {{64, 100}}, {{2, 5, 3}, 1}, {{20, 200}, 0}}) {
        AddReduced(rows, c, dtype, {}, reduction);
        AddReduced(rows, c, dtype, {.smoothing = 0.1, .ignored = 1}, reduction);
        AddReduced(rows, c, dtype, {.weight = true, .index = DType::kInt32}, reduction);
        AddNll(rows, c, dtype, {}, reduction);
        AddNll(rows, c, dtype, {.ignored = 1}, reduction);
        AddNll(rows, c, dtype, {.weight = true, .ignored = 1, .index = DType::kInt32}, reduction);
      }
    }
    AddSpecial(rows, dtype);
  }
  for (const std::string reduction : {"none", "mean", "sum"}) {
    AddNll(rows, {{0, 5}}, DType::kFloat32, {}, reduction);
    // All targets are ignored.
    AddNll(rows, {{4, 1}}, DType::kFloat32, {.ignored = 0}, reduction);
  }
  AddElementLosses(rows);
  AddLossRefusals(rows);
}

}  // namespace tensord::conformance
