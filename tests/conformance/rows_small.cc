// Elementwise compositions, sums with a factor, and steps of optimizers.
#include <string>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

const Shape kSmallShapes[] = {{}, {0}, {7}, {3, 5}, {67, 129}};

// One operand.
struct UnaryComposition {
  const char* op;
  double ulps = 0;
  bool takes_floats = true;
  bool takes_bool = true;
  bool converts = false;  // integers and bool to float32
};
constexpr UnaryComposition kUnaryCompositions[] = {{.op = "square"},
                                                   {.op = "reciprocal", .converts = true},
                                                   {.op = "exp2", .ulps = 2, .converts = true},
                                                   {.op = "frac", .takes_bool = false},
                                                   {.op = "sgn"},
                                                   {.op = "signbit"},
                                                   {.op = "isnan"},
                                                   {.op = "isinf"},
                                                   {.op = "isposinf"},
                                                   {.op = "isneginf"},
                                                   {.op = "isfinite"},
                                                   {.op = "logical_not"},
                                                   {.op = "bitwise_not", .takes_floats = false},
                                                   {.op = "nan_to_num"}};

void AddUnaryComposition(Rows& rows, const UnaryComposition& of) {
  const auto add = [&](DType dtype, const Shape& shape, Fill fill, const Attributes& attrs = {}) {
    const bool rounds = IsFloating(dtype) || of.converts;
    Bound bound = rounds && of.ulps > 0 ? Ulps(IsFloating(dtype) ? dtype : DType::kFloat32, of.ulps)
                                        : Bound{};
    // sgn and frac of -0 may be +0.
    bound.any_zero_sign = true;
    rows.push_back({of.op, {{{dtype, shape}, fill}}, attrs, bound});
  };
  for (DType dtype : kFloatingDTypes) {
    if (!of.takes_floats) {
      Refuse(rows, {of.op, {{{dtype, {3}}}}});
      continue;
    }
    for (const Shape& shape : kSmallShapes) add(dtype, shape, Fill::kPlain);
    add(dtype, {48}, Fill::kSpecial);
    if (of.op == std::string("nan_to_num")) {
      add(dtype, {48}, Fill::kSpecial, {{"nan", 1.5}, {"posinf", 7.0}, {"neginf", -3.0}});
      add(dtype, {48}, Fill::kSpecial, {{"posinf", kInfinity}});
    }
  }
  for (DType dtype : kIntegerDTypes) {
    add(dtype, {3, 5}, Fill::kPlain);
    // float32 has 24 bits, so large integers are rounded before exp2, which overflows.
    add(dtype, {64}, of.ulps > 0 ? Fill::kUnit : Fill::kSpecial);
  }
  if (of.takes_bool) {
    add(DType::kBool, {64}, Fill::kPlain);
  } else {
    Refuse(rows, {of.op, {{{DType::kBool, {3}}}}});
  }
  Refuse(rows, {of.op, {{{DType::kComplex64, {3}}}}});
}

// Two operands of one dtype. An integer divisor isn't 0.
void AddBinaryComposition(Rows& rows, const char* op, bool divides, bool takes_bool) {
  Bound bound;
  bound.any_zero_sign = true;
  for (DType dtype : kFloatingDTypes) {
    rows.push_back({op, {{{dtype, {3, 5}}}, {{dtype, {5}}}}, {}, bound});
    rows.push_back({op, {{{dtype, {67, 129}}}, {{dtype, {67, 129}}}}, {}, bound});
    rows.push_back({op, {{{dtype, {7, 1}}}, {{dtype, {1, 9}}}}, {}, bound});
    rows.push_back({op, {{{dtype, {4}}}, {{dtype, {}}}}, {}, bound});
    rows.push_back({op, {{{dtype, {}}}, {{dtype, {0}}}}, {}, bound});
    rows.push_back(
        {op, {{{dtype, {48, 1}}, Fill::kSpecial}, {{dtype, {48}}, Fill::kSpecial}}, {}, bound});
  }
  const Fill divisor = divides ? Fill::kPositive : Fill::kPlain;
  for (DType dtype : kIntegerDTypes) {
    rows.push_back({op, {{{dtype, {64}}}, {{dtype, {64}}, divisor}}});
    rows.push_back({op, {{{dtype, {64}}, Fill::kSpecial}, {{dtype, {}}, divisor}}});
    if (!divides || MinOf(dtype) == 0) continue;
    const std::vector<double> values = {7, -7, 6, -6, 0, 5}, negative = {-2, -2, -3, -3, -4, -1};
    rows.push_back(
        {op, {{{dtype, {6}}, Fill::kValues, values}, {{dtype, {6}}, Fill::kValues, negative}}});
  }
  if (takes_bool) rows.push_back({op, {{{DType::kBool, {16}}}, {{DType::kBool, {16}}}}});
  rows.push_back({op, {{{DType::kFloat32, {9}}}, {{DType::kFloat64, {9}}}}, {}, bound});
  rows.push_back({op, {{{DType::kInt8, {9}}, Fill::kUnit}, {{DType::kInt64, {9}}, divisor}}});
  RefuseSpecs(rows, op, {{DType::kFloat32, {3}}, {DType::kFloat32, {4}}});
  RefuseSpecs(rows, op, {{DType::kComplex64, {3}}, {DType::kComplex64, {3}}});
}

void AddLogical(Rows& rows) {
  for (const char* op : {"logical_and", "logical_or", "logical_xor"}) {
    for (DType dtype : kAllDTypes) {
      if (IsComplex(dtype)) continue;
      rows.push_back({op, {{{dtype, {9, 1}}, Fill::kUnit}, {{dtype, {64}}, Fill::kSpecial}}});
      rows.push_back({op, {{{dtype, {64}}, Fill::kUnit}, {{DType::kBool, {}}}}});
      rows.push_back(
          {op, {{{DType::kFloat32, {64}}, Fill::kSpecial}, {{dtype, {64}}, Fill::kUnit}}});
    }
    rows.push_back({op, {{{DType::kBool, {0}}}, {{DType::kBool, {1}}}}});
    RefuseSpecs(rows, op, {{DType::kBool, {3}}, {DType::kBool, {4}}});
  }
}

void AddClamp(Rows& rows) {
  Bound bound;
  bound.any_zero_sign = true;
  for (DType dtype : kAllDTypes) {
    if (IsComplex(dtype)) {
      RefuseSpecs(rows, "clamp", {{dtype, {3}}, {dtype, {}}, {dtype, {}}});
      continue;
    }
    const Input low = {{dtype, {}}, Fill::kValues, {IsBool(dtype) ? 0.0 : 1}};
    const Input high = {{dtype, {}}, Fill::kValues, {IsBool(dtype) ? 1.0 : 3}};
    for (const Shape& shape : kSmallShapes) {
      rows.push_back({"clamp", {{{dtype, shape}}, low, high}, {}, bound});
    }
    rows.push_back({"clamp", {{{dtype, {48}}, Fill::kSpecial}, low, high}, {}, bound});
    rows.push_back({"clamp", {{{dtype, {48}}}, high, low}, {}, bound});  // the maximum wins
    rows.push_back(
        {"clamp",
         {{{dtype, {33}}}, {{dtype, {7, 1}}, Fill::kSpecial}, {{dtype, {7, 33}}, Fill::kSpecial}},
         {},
         bound});
  }
  RefuseSpecs(rows, "clamp", {{DType::kInt32, {3}}, {DType::kFloat32, {}}, {DType::kFloat32, {}}});
}

Bound SumBound(DType dtype) {
  Bound bound = Ulps(dtype, 1);
  bound.epsilons = 3;
  bound.may_overflow = true;
  return bound;
}

// The dtype of a factor: 16-bit tensors take it in float32.
DType FactorDType(DType dtype) { return IsFloating(dtype) ? StatisticsOf(dtype) : dtype; }

void AddLerp(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    const DType wide = FactorDType(dtype);
    for (double weight : {0.0, 0.25, 0.5, 0.9, 1.0, -0.75, 2.5}) {
      const Input number = {{wide, {}}, Fill::kValues, {weight}};
      rows.push_back(
          {"lerp", {{{dtype, {67, 129}}}, {{dtype, {67, 129}}}, number}, {}, SumBound(dtype)});
      rows.push_back({"lerp", {{{dtype, {3, 1}}}, {{dtype, {4}}}, number}, {}, SumBound(dtype)});
      rows.push_back({"lerp", {{{dtype, {}}}, {{dtype, {0}}}, number}, {}, SumBound(dtype)});
    }
    // The ends are exact.
    rows.push_back(
        {"lerp", {{{dtype, {333}}}, {{dtype, {333}}}, {{wide, {}}, Fill::kValues, {0}}}});
    rows.push_back(
        {"lerp", {{{dtype, {333}}}, {{dtype, {333}}}, {{wide, {}}, Fill::kValues, {1}}}});
    rows.push_back(
        {"lerp", {{{dtype, {3, 5}}}, {{dtype, {5}}}, {{dtype, {3, 1}}}}, {}, SumBound(dtype)});
  }
  RefuseSpecs(rows, "lerp", {{DType::kInt32, {3}}, {DType::kInt32, {3}}, {DType::kFloat32, {}}});
}

void AddScaledSums(Rows& rows, const char* op, size_t num_tensors, bool factor_is_optional,
                   bool takes_integers) {
  const auto inputs = [&](DType dtype, const std::vector<Shape>& shapes, Fill fill) {
    std::vector<Input> made;
    for (size_t i = 0; i < num_tensors; ++i) {
      made.push_back({{dtype, shapes[i]}, i + 1 == num_tensors ? fill : Fill::kPlain});
    }
    return made;
  };
  const std::vector<Shape> large(3, {67, 129}), scalars(3, Shape{}), mixed = {{4, 1}, {5}, {1, 5}};
  const auto add = [&](DType dtype, const std::vector<Shape>& shapes, std::vector<double> factor) {
    Row row = {op, inputs(dtype, shapes, Fill::kPositive), {}, SumBound(dtype)};
    if (!IsFloating(dtype)) row.bound = {};
    if (!factor.empty()) {
      row.inputs.push_back({{FactorDType(dtype), {}}, Fill::kValues, std::move(factor)});
    }
    rows.push_back(std::move(row));
  };
  for (DType dtype : kFloatingDTypes) {
    for (const auto& shapes : {large, scalars, mixed}) {
      add(dtype, shapes, {-0.3});
      if (factor_is_optional) add(dtype, shapes, {});
    }
  }
  for (DType dtype : kIntegerDTypes) {
    if (!takes_integers) break;
    for (const auto& shapes : {large, scalars, mixed}) add(dtype, shapes, {3});
    if (factor_is_optional) add(dtype, large, {});
    // A factor of integers must be an integer.
    std::vector<TensorSpec> specs(num_tensors, {dtype, {3}});
    specs.push_back({DType::kFloat32, {}});
    RefuseSpecs(rows, op, specs);
  }
  if (!takes_integers) {
    std::vector<TensorSpec> specs(num_tensors, {DType::kInt64, {3}});
    specs.push_back({DType::kInt64, {}});
    RefuseSpecs(rows, op, specs);
  }
}

void AddDropoutBackward(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    for (double p : {0.0, 0.3, 1.0}) {
      rows.push_back({"dropout_backward",
                      {{{dtype, {67, 129}}}, {{DType::kBool, {67, 129}}}},
                      {{"p", p}},
                      Ulps(dtype, 1)});
    }
    for (const Shape& shape : {Shape{}, Shape{0}}) {
      rows.push_back({"dropout_backward",
                      {{{dtype, shape}}, {{DType::kBool, shape}}},
                      {{"p", 0.5}},
                      Ulps(dtype, 1)});
    }
  }
  RefuseSpecs(rows, "dropout_backward", {{DType::kInt32, {3}}, {DType::kBool, {3}}}, {{"p", 0.5}});
  RefuseSpecs(rows, "dropout_backward", {{DType::kFloat32, {3}}, {DType::kBool, {3}}},
              {{"p", 1.5}});
}

void AddSgd(Rows& rows) {
  const std::vector<Attributes> variants = {
      {},
      {{"weight_decay", 0.1}, {"maximize", true}},
      {{"momentum", 0.9}},
      {{"momentum", 0.9}, {"dampening", 0.25}, {"weight_decay", 0.1}},
      {{"momentum", 0.9}, {"nesterov", true}}};
  for (DType dtype : kFloatingDTypes) {
    for (const Attributes& attrs : variants) {
      const bool has_momentum = attrs.Find("momentum") != nullptr;
      for (const bool has_buffer : {false, true}) {
        if (has_buffer && !has_momentum) continue;
        for (const Shape& shape : kSmallShapes) {
          Row row = {
              "sgd_step",
              {{{dtype, shape}}, {{dtype, shape}}, {{DType::kFloat32, {}}, Fill::kValues, {0.125}}},
              attrs,
              SumBound(dtype)};
          if (has_buffer) row.inputs.push_back({{dtype, shape}});
          row.num_outputs = has_momentum ? 2 : 1;
          // The step reads the rounded buffer, which may be rounded the other way.
          if (has_momentum) row.bound.ulps = 2;
          rows.push_back(std::move(row));
        }
      }
    }
  }
  const TensorSpec p = {DType::kFloat32, {3}}, lr = {DType::kFloat32, {}};
  RefuseSpecs(rows, "sgd_step", {p, p, lr}, {{"nesterov", true}});
  RefuseSpecs(rows, "sgd_step", {p, p, lr, p});
  RefuseSpecs(rows, "sgd_step", {p, p, p});
  RefuseSpecs(rows, "sgd_step", {p, {DType::kFloat32, {4}}, lr});
  RefuseSpecs(rows, "sgd_step", {p, {DType::kFloat32, {2, 3}}, lr});
}

void AddAdagrad(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    for (const Attributes& attrs : std::vector<Attributes>{
             {},
             {{"lr_decay", 0.25}},
             {{"weight_decay", 0.1}, {"maximize", true}, {"eps", 1e-3}, {"lr_decay", 0.01}}}) {
      for (const Shape& shape : kSmallShapes) {
        rows.push_back({"adagrad_step",
                        {{{dtype, shape}},
                         {{dtype, shape}},
                         {{dtype, shape}, Fill::kPositive},
                         {{DType::kFloat32, {}}, Fill::kValues, {3}},
                         {{DType::kFloat64, {}}, Fill::kValues, {0.125}}},
                        attrs,
                        SumBound(dtype)});
        rows.back().num_outputs = 2;
      }
    }
  }
  const TensorSpec p = {DType::kFloat32, {3}}, number = {DType::kFloat32, {}};
  RefuseSpecs(rows, "adagrad_step", {p, p, p, p, number});
  RefuseSpecs(rows, "adagrad_step", {p, p, p, number});
  RefuseSpecs(rows, "adagrad_step", {p, {DType::kFloat32, {4}}, p, number, number});
  RefuseSpecs(rows, "adagrad_step", {p, {DType::kFloat32, {2, 3}}, p, number, number});
  RefuseSpecs(rows, "adagrad_step", {p, p, {DType::kInt32, {3}}, number, number});
}

}  // namespace

void AddSmallRows(Rows& rows) {
  for (const UnaryComposition& of : kUnaryCompositions) AddUnaryComposition(rows, of);
  AddLogical(rows);
  AddBinaryComposition(rows, "fmod", /*divides=*/true, /*takes_bool=*/false);
  AddBinaryComposition(rows, "trunc_divide", /*divides=*/true, /*takes_bool=*/false);
  AddBinaryComposition(rows, "fmax", /*divides=*/false, /*takes_bool=*/true);
  AddBinaryComposition(rows, "fmin", /*divides=*/false, /*takes_bool=*/true);
  AddClamp(rows);
  AddLerp(rows);
  AddScaledSums(rows, "add_scaled", 2, /*factor_is_optional=*/false, /*takes_integers=*/true);
  AddScaledSums(rows, "addcmul", 3, /*factor_is_optional=*/true, /*takes_integers=*/true);
  AddScaledSums(rows, "addcdiv", 3, /*factor_is_optional=*/true, /*takes_integers=*/false);
  AddDropoutBackward(rows);
  AddSgd(rows);
  AddAdagrad(rows);
}

}  // namespace tensord::conformance
