// Activations that are compositions, and the gradients of activations.
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

const Shape kActivationShapes[] = {{}, {0}, {7}, {3, 5}, {67, 129}};

struct ActivationCase {
  const char* name;
  bool has_value = true;  // the table has rows for the op `name`
  std::vector<Attributes> attrs = {{}};
  bool floating_only = true;
  bool has_gradient = true;  // the table has rows for the op `name`_backward
};

std::vector<ActivationCase> Cases() {
  const double alpha = 1.6732632423543772, scale = 1.0507009873554805;
  const std::vector<Attributes> shrinkage = {{}, {{"lambd", 1.25}}};
  return {
      {.name = "sigmoid", .has_value = false},
      {.name = "tanh", .has_value = false},
      {.name = "silu", .has_value = false},
      {.name = "gelu", .has_value = false, .attrs = {{}, {{"approximate", std::string("tanh")}}}},
      {.name = "softplus", .attrs = {{}, {{"beta", 2.5}, {"threshold", 3.0}}}},
      {.name = "mish"},
      {.name = "log_sigmoid"},
      {.name = "elu",
       .attrs = {{}, {{"alpha", alpha}, {"scale", scale}}, {{"alpha", 2.0}, {"input_scale", 0.5}}}},
      {.name = "leaky_relu", .attrs = {{}, {{"negative_slope", 0.0}}, {{"negative_slope", 1.5}}}},
      {.name = "hardtanh", .attrs = {{}, {{"min", 0.0}, {"max", 6.0}}}, .floating_only = false},
      {.name = "hardsigmoid"},
      {.name = "hardswish"},
      {.name = "softshrink", .attrs = shrinkage, .has_gradient = false},
      {.name = "hardshrink", .attrs = shrinkage, .has_gradient = false},
      {.name = "shrink", .has_value = false, .attrs = shrinkage},
      {.name = "logit", .attrs = {{}, {{"eps", 0.125}}}},
  };
}

Bound ActivationBound(DType dtype) {
  Bound bound = Ulps(dtype, 2);
  bound.epsilons = 6;
  // The difference quotient's own error.
  bound.absolute = 1e-13;
  return bound;
}

void AddRows(Rows& rows, const std::string& name, const Attributes& attrs) {
  for (DType dtype : kFloatingDTypes) {
    for (const Shape& shape : kActivationShapes) {
      rows.push_back({name, {{{dtype, shape}}}, attrs, ActivationBound(dtype)});
    }
    rows.push_back({name, {{{dtype, {333}}, Fill::kUnit}}, attrs, ActivationBound(dtype)});
    rows.push_back({name, {{{dtype, {77}}, Fill::kPositive}}, attrs, ActivationBound(dtype)});
  }
  rows.push_back(
      {name, {{{DType::kFloat32, {600, 1000}}}}, attrs, ActivationBound(DType::kFloat32)});
}

void AddGradientRows(Rows& rows, const std::string& name, const Attributes& attrs) {
  for (DType dtype : kFloatingDTypes) {
    for (const Shape& shape : kActivationShapes) {
      rows.push_back(
          {name, {{{dtype, shape}, Fill::kUnit}, {{dtype, shape}}}, attrs, ActivationBound(dtype)});
    }
    rows.push_back({name, {{{dtype, {4, 9}}}, {{dtype, {9}}}}, attrs, ActivationBound(dtype)});
    rows.push_back({name, {{{dtype, {1}}}, {{dtype, {5, 33}}}}, attrs, ActivationBound(dtype)});
  }
  rows.push_back({name,
                  {{{DType::kFloat32, {8}}}, {{DType::kFloat64, {8}}}},
                  attrs,
                  ActivationBound(DType::kFloat32)});
}

void AddPrelu(Rows& rows, DType dtype) {
  for (const Shape& weight : {Shape{}, Shape{1}, Shape{5}, Shape{3, 1}}) {
    const Input x{{dtype, {3, 5}}}, w{{dtype, weight}, Fill::kUnit};
    rows.push_back({"prelu", {x, w}, {}, ActivationBound(dtype)});
    rows.push_back({.op = "prelu_backward",
                    .inputs = {{{dtype, {3, 5}}, Fill::kUnit}, x, w},
                    .bound = ActivationBound(dtype),
                    .num_outputs = 2});
  }
}

void AddGlu(Rows& rows, DType dtype) {
  struct Case {
    Shape x;
    int64_t axis;
  };
  for (const Case& c :
       {Case{{4}, 0}, Case{{3, 6}, -1}, Case{{2, 4, 5}, 1}, Case{{4, 0}, 0}, Case{{33, 130}, 1}}) {
    Shape result = c.x;
    const int axis = static_cast<int>(c.axis < 0 ? c.axis + c.x.rank() : c.axis);
    result.set_dim(axis, c.x.dim(axis) / 2);
    const Attributes attrs{{"axis", c.axis}};
    rows.push_back({"glu", {{{dtype, c.x}}}, attrs, ActivationBound(dtype)});
    rows.push_back({"glu_backward",
                    {{{dtype, result}, Fill::kUnit}, {{dtype, c.x}}},
                    attrs,
                    ActivationBound(dtype)});
  }
}

}  // namespace

void AddActivationRows(Rows& rows) {
  for (const ActivationCase& each : Cases()) {
    const std::string name = each.name, backward = name + "_backward";
    for (const Attributes& attrs : each.attrs) {
      if (each.has_value) AddRows(rows, name, attrs);
      if (each.has_gradient) AddGradientRows(rows, backward, attrs);
    }
    for (DType dtype : {DType::kInt32, DType::kBool}) {
      if (!each.floating_only) continue;
      if (each.has_value) Refuse(rows, {name, {{{dtype, {3}}}}});
      if (each.has_gradient) Refuse(rows, {backward, {{{dtype, {3}}}, {{dtype, {3}}}}});
    }
    if (!each.has_gradient) continue;
    Refuse(rows, {backward, {{{DType::kFloat32, {3}}}, {{DType::kFloat32, {4}}}}});
  }
  AddRows(rows, "threshold", {{"threshold", 0.5}, {"value", 20.0}});
  AddGradientRows(rows, "threshold_backward", {{"threshold", 0.5}});
  AddGradientRows(rows, "elu_backward", {{"by_result", true}});
  // 16-bit elements beside a limit that their dtype can't represent.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Input x{{dtype, {4}}, Fill::kValues, {0.099609375, 0.10009765625, 0.10107421875, -0.1}};
    rows.push_back({"threshold", {x}, {{"threshold", 0.1}, {"value", 2.0}}});
    rows.push_back(
        {"threshold_backward", {{{dtype, {4}}, Fill::kPositive}, x}, {{"threshold", 0.1}}});
    rows.push_back(
        {"hardtanh_backward", {{{dtype, {4}}, Fill::kPositive}, x}, {{"min", -0.1}, {"max", 0.1}}});
  }
  for (const DType dtype : kFloatingDTypes) {
    const Input x{{dtype, {8}}, Fill::kValues, {0.0, -0.0, 0.0625, 0.125, 0.5, 0.875, 1, kNan}};
    for (const Attributes& attrs : {Attributes{}, Attributes{{"eps", 0.125}}}) {
      rows.push_back({"logit", {x}, attrs, ActivationBound(dtype)});
      rows.push_back(
          {"logit_backward", {{{dtype, {8}}, Fill::kPositive}, x}, attrs, ActivationBound(dtype)});
    }
    AddPrelu(rows, dtype);
    AddGlu(rows, dtype);
  }
  rows.push_back({"glu_backward",
                  {{{DType::kFloat64, {2}}, Fill::kUnit}, {{DType::kFloat32, {4}}}},
                  {},
                  ActivationBound(DType::kFloat32)});
  rows.push_back({.op = "prelu_backward",
                  .inputs = {{{DType::kFloat32, {3, 4}}},
                             {{DType::kFloat32, {3, 1}}},
                             {{DType::kFloat32, {4}}}},
                  .bound = ActivationBound(DType::kFloat32),
                  .num_outputs = 2});
  Refuse(rows, {"prelu_backward",
                {{{DType::kFloat32, {4}}}, {{DType::kFloat32, {3, 1}}}, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"prelu", {{{DType::kInt32, {3}}}, {{DType::kInt32, {3}}}}});
  Refuse(rows, {"prelu", {{{DType::kFloat32, {3}}}, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"glu", {{{DType::kFloat32, {2, 3}}}}});
  Refuse(rows, {"glu", {{{DType::kFloat32, {}}}}});
  Refuse(rows, {"glu", {{{DType::kFloat32, {2, 3}}}}, {{"axis", int64_t{2}}}});
  Refuse(rows, {"glu", {{{DType::kInt32, {4}}}}});
  Refuse(rows, {"glu_backward", {{{DType::kFloat32, {4}}}, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"threshold", {{{DType::kFloat32, {3}}}}});
  Refuse(rows, {"gelu_backward",
                {{{DType::kFloat32, {3}}}, {{DType::kFloat32, {3}}}},
                {{"approximate", std::string("sine")}}});
}

}  // namespace tensord::conformance
