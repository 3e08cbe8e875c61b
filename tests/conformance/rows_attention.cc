// Scaled dot product attention and its gradient.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

DType WideOf(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

struct Operands {
  Shape q, k, v;
};

struct AttentionOptions {
  std::optional<Input> mask = {};
  Attributes attrs = {};
  bool state = false;
};

Shape RowsOf(const Operands& of) { return Shape(of.q.dims().first(of.q.rank() - 1)); }
Shape OutputOf(const Operands& of) {
  Shape shape = RowsOf(of);
  shape.AppendDim(of.v.dim(of.v.rank() - 1));
  return shape;
}

Bound AttentionBound(DType dtype, const Operands& of) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const int rank = of.q.rank();
  const int64_t terms = of.q.dim(rank - 1) + of.q.dim(rank - 2) + of.k.dim(rank - 2);
  return {.ulps = narrow ? 1.0 : 2.0,
          .epsilons = 8 + std::sqrt(static_cast<double>(terms)),
          .absolute = 1e-36};
}

void AddOptional(Row& row, const AttentionOptions& options) {
  row.attrs = options.attrs;
  if (options.mask.has_value()) row.inputs.push_back(*options.mask);
  if (options.state) row.inputs.push_back({{DType::kInt64, {2}}, Fill::kValues, {7, 3}});
}

void AddBoth(Rows& rows, DType dtype, const Operands& of, const AttentionOptions& options = {}) {
  const Input q{{dtype, of.q}, Fill::kUnit}, k{{dtype, of.k}, Fill::kUnit}, v{{dtype, of.v}};
  Row forward{"sdpa", {q, k, v}};
  AddOptional(forward, options);
  forward.bound = AttentionBound(dtype, of);
  forward.num_outputs = 2;
  forward.bounds = {forward.bound, AttentionBound(WideOf(dtype), of)};
  rows.push_back(std::move(forward));

  Row backward{"sdpa_backward",
               {{{dtype, OutputOf(of)}, Fill::kUnit},
                q,
                k,
                v,
                {{dtype, OutputOf(of)}, Fill::kUnit},
                {{WideOf(dtype), RowsOf(of)}, Fill::kPositive}}};
  AddOptional(backward, options);
  backward.bound = AttentionBound(dtype, of);
  backward.num_outputs = 3;
  if (options.mask.has_value() && IsFloating(options.mask->spec.dtype)) {
    rows.push_back(backward);
    backward.attrs.Set("mask_gradient", true);
    backward.num_outputs = 4;
    backward.bounds = {backward.bound, backward.bound, backward.bound,
                       AttentionBound(options.mask->spec.dtype, of)};
  }
  rows.push_back(std::move(backward));
}

// A mask (rows, keys) of which each third row excludes all keys.
Input MaskWithEmptyRows(DType dtype, int64_t rows, int64_t keys) {
  Input input{{dtype, {rows, keys}}, Fill::kValues};
  for (int64_t i = 0; i < rows * keys; ++i) {
    const bool has = i / keys % 3 != 1;
    input.values.push_back(dtype == DType::kBool ? (has ? 1 : 0) : (has ? 0.5 : -INFINITY));
  }
  return input;
}

void AddMasks(Rows& rows, DType dtype) {
  const Operands of{{2, 4, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 6}};
  const Shape masks[] = {{},        {7},          {1, 7},       {5, 1},       {5, 7},
                         {4, 5, 7}, {2, 1, 1, 7}, {2, 1, 5, 7}, {1, 4, 5, 1}, {2, 4, 5, 7}};
  for (const Shape& mask : masks) {
    AddBoth(rows, dtype, of, {.mask = Input{{DType::kBool, mask}}});
    AddBoth(rows, dtype, of, {.mask = Input{{dtype, mask}}});
  }
  AddBoth(rows, dtype, of, {.mask = Input{{WideOf(dtype), {4, 5, 7}}}});
  AddBoth(rows, dtype, of, {.mask = MaskWithEmptyRows(DType::kBool, 5, 7)});
  AddBoth(rows, dtype, of, {.mask = MaskWithEmptyRows(dtype, 5, 7)});
  const Operands large{{2, 67, 9}, {2, 70, 9}, {2, 70, 17}};
  AddBoth(rows, dtype, large, {.mask = Input{{DType::kBool, {67, 70}}}});
  AddBoth(rows, dtype, large, {.mask = Input{{dtype, {2, 67, 70}}}});
  AddBoth(rows, dtype, large, {.mask = Input{{dtype, {1, 70}}}});
  AddBoth(rows, dtype, large, {.mask = Input{{dtype, {67, 1}}}});
}

void AddDropout(Rows& rows, DType dtype) {
  const Operands of{{2, 2, 5, 8}, {2, 1, 7, 8}, {2, 1, 7, 6}};
  const Operands large{{1, 66, 8}, {1, 70, 8}, {1, 70, 6}};
  for (const double p : {0.25, 1.0}) {
    const Attributes seeded{{"dropout_p", p}, {"seed", int64_t{5}}, {"stream", int64_t{1} << 40}};
    AddBoth(rows, dtype, of, {.attrs = seeded});
    AddBoth(rows, dtype, large, {.attrs = seeded});
    AddBoth(rows, dtype, of, {.attrs = {{"dropout_p", p}, {"causal", true}}, .state = true});
    AddBoth(rows, dtype, of,
            {.mask = Input{{DType::kBool, {5, 7}}}, .attrs = {{"dropout_p", p}}, .state = true});
  }
  AddBoth(rows, dtype, of, {.state = true});
}

void AddAttentionRefusals(Rows& rows) {
  const DType f32 = DType::kFloat32;
  const Input q{{f32, {2, 4, 5, 8}}}, k{{f32, {2, 2, 7, 8}}}, v{{f32, {2, 2, 7, 6}}};
  const Input o{{f32, {2, 4, 5, 6}}}, lse{{f32, {2, 4, 5}}}, mask{{f32, {5, 7}}};
  const auto refuse = [&](Row row) {
    row.refusal = absl::StatusCode::kInvalidArgument;
    rows.push_back(std::move(row));
  };
  refuse({"sdpa", {{{f32, {8}}}, {{f32, {8}}}, {{f32, {8}}}}});
  refuse(
      {"sdpa", {{{DType::kInt32, {5, 8}}}, {{DType::kInt32, {7, 8}}}, {{DType::kInt32, {7, 6}}}}});
  refuse({"sdpa", {q, {{DType::kFloat16, {2, 2, 7, 8}}}, v}});
  refuse({"sdpa", {q, {{f32, {2, 7, 8}}}, v}});
  refuse({"sdpa", {q, {{f32, {1, 2, 7, 8}}}, v}});
  refuse({"sdpa", {q, {{f32, {2, 2, 7, 9}}}, v}});
  refuse({"sdpa", {q, {{f32, {2, 3, 7, 8}}}, {{f32, {2, 3, 7, 6}}}}});
  refuse({"sdpa", {q, {{f32, {2, 0, 7, 8}}}, {{f32, {2, 0, 7, 6}}}}});
  refuse({"sdpa", {q, k, {{f32, {2, 4, 7, 6}}}}});
  refuse({"sdpa", {q, k, {{f32, {2, 2, 6, 6}}}}});
  const Input keys{{f32, {1, int64_t{1} << 21, 0}}};  // without elements
  refuse({"sdpa", {{{f32, {1, 3, 0}}}, keys, keys}});
  refuse({"sdpa", {q, k, v}, {{"scale", INFINITY}}});
  refuse({"sdpa", {q, k, v}, {{"dropout_p", 1.5}, {"seed", int64_t{1}}}});
  refuse({"sdpa", {q, k, v}, {{"dropout_p", 0.5}}});
  refuse({"sdpa", {q, k, v, mask}, {{"causal", true}}});
  refuse({"sdpa", {q, k, v, {{f32, {4, 7}}}}});
  refuse({"sdpa", {q, k, v, {{f32, {1, 2, 4, 5, 7}}}}});
  refuse({"sdpa", {q, k, v, {{DType::kInt32, {5, 7}}}}});
  refuse({"sdpa", {q, k, v, {{DType::kFloat64, {5, 7}}}}});
  refuse({"sdpa", {q, k, v, {{DType::kInt64, {3}}}}});
  refuse({"sdpa", {q, k, v, mask, mask}});
  refuse({"sdpa_backward", {o, q, k, v, o, {{DType::kFloat64, {2, 4, 5}}}}});
  refuse({"sdpa_backward", {o, q, k, v, o, {{f32, {2, 4, 5, 1}}}}});
  refuse({"sdpa_backward", {q, q, k, v, o, lse}});
  refuse({"sdpa_backward", {o, q, k, v, q, lse}});
  refuse({"sdpa_backward", {o, q, k, v, o, lse}, {{"mask_gradient", true}}});
  refuse(
      {"sdpa_backward", {o, q, k, v, o, lse, {{DType::kBool, {5, 7}}}}, {{"mask_gradient", true}}});
}

}  // namespace

void AddAttentionRows(Rows& rows) {
  const Operands kOperands[] = {
      {{3, 4}, {5, 4}, {5, 2}},
      {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}},
      {{2, 4, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 6}},
      {{1, 3, 1, 16}, {1, 3, 40, 16}, {1, 3, 40, 16}},
      {{1, 6, 1, 33}, {1, 2, 1100, 33}, {1, 2, 1100, 5}},
      {{2, 1, 67, 20}, {2, 1, 130, 20}, {2, 1, 130, 33}},
      {{130, 64}, {67, 64}, {67, 64}},
      {{1, 2, 3, 150}, {1, 2, 4, 150}, {1, 2, 4, 140}},
      {{2, 2, 2, 3, 4}, {2, 2, 1, 5, 4}, {2, 2, 1, 5, 2}},
      {{2, 0, 4}, {2, 5, 4}, {2, 5, 2}},
      {{2, 3, 4}, {2, 0, 4}, {2, 0, 2}},
      {{2, 3, 0}, {2, 5, 0}, {2, 5, 2}},
      {{2, 3, 4}, {2, 5, 4}, {2, 5, 0}},
      {{0, 3, 4}, {0, 5, 4}, {0, 5, 2}},
      {{2, 0, 3, 4}, {2, 0, 5, 4}, {2, 0, 5, 2}},
      {{2, 0, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 2}},
  };
  for (const DType dtype : kFloatingDTypes) {
    for (const Operands& of : kOperands) {
      AddBoth(rows, dtype, of);
      AddBoth(rows, dtype, of, {.attrs = {{"causal", true}}});
    }
    AddBoth(rows, dtype, kOperands[0], {.attrs = {{"scale", -0.5}}});
    AddMasks(rows, dtype);
    AddDropout(rows, dtype);
  }
  AddAttentionRefusals(rows);
}

}  // namespace tensord::conformance
