// Group normalization and its gradient.
#include <cmath>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

struct GroupCase {
  Shape x;
  int64_t groups;
};

const GroupCase kGroupCases[] = {{{2, 6}, 3},       {{3, 4, 5}, 2},       {{1, 1, 1, 2}, 1},
                                 {{2, 8, 7, 9}, 4}, {{2, 3, 2, 3, 4}, 3}, {{0, 4, 2}, 2},
                                 {{2, 4, 0}, 2},    {{2, 64, 20}, 1},     {{4, 32, 16, 16}, 32}};

Bound GroupNormBound(DType dtype, int64_t count) {
  Bound bound = Ulps(dtype, 2);
  bound.epsilons = 8 + std::sqrt(static_cast<double>(count));
  return bound;
}

void AddGroupNorm(Rows& rows, const GroupCase& c, DType dtype, DType parameters, int inputs) {
  const int64_t channels = c.x.dim(1);
  const int64_t size = c.x.dim(0) == 0 ? 0 : c.x.num_elements() / c.x.dim(0) / c.groups;
  Row forward{"group_norm", {{{dtype, c.x}}}, {{"groups", c.groups}}};
  for (int i = 1; i < inputs; ++i) forward.inputs.push_back({{parameters, {channels}}});
  forward.num_outputs = 3;
  forward.bound = GroupNormBound(StatisticsOf(dtype), size);
  forward.bounds = {GroupNormBound(dtype, size)};
  rows.push_back(std::move(forward));

  const Shape statistics = {c.x.dim(0), c.groups};
  Row backward{"group_norm_backward",
               {{{dtype, c.x}},
                {{dtype, c.x}},
                {{StatisticsOf(dtype), statistics}, Fill::kUnit},
                {{StatisticsOf(dtype), statistics}, Fill::kPositive}},
               {{"groups", c.groups}}};
  if (inputs > 1) backward.inputs.push_back({{parameters, {channels}}});
  backward.num_outputs = 3;
  backward.bound = GroupNormBound(inputs > 1 ? parameters : dtype, c.x.num_elements() / channels);
  backward.bounds = {GroupNormBound(dtype, size)};
  rows.push_back(std::move(backward));
}

}  // namespace

void AddGroupNormRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const GroupCase& c : kGroupCases) {
      for (int inputs = 1; inputs <= 3; ++inputs) AddGroupNorm(rows, c, dtype, dtype, inputs);
      AddGroupNorm(rows, c, dtype, StatisticsOf(dtype), 3);
    }
  }
  const auto f32 = [](const Shape& shape) { return Input{{DType::kFloat32, shape}}; };
  const auto refuse = [&](const char* op, std::vector<Input> inputs, int64_t groups) {
    Refuse(rows, {op, std::move(inputs), {{"groups", groups}}});
  };
  refuse("group_norm", {f32({6})}, 3);
  refuse("group_norm", {f32({2, 6})}, 4);
  refuse("group_norm", {f32({2, 6})}, 0);
  refuse("group_norm", {f32({2, 6}), f32({5})}, 3);
  refuse("group_norm", {{{DType::kInt32, {2, 6}}}}, 3);
  refuse("group_norm_backward", {f32({6, 2}), f32({2, 6}), f32({2, 3}), f32({2, 3})}, 3);
  refuse("group_norm_backward", {f32({2, 6}), f32({2, 6}), f32({2, 3}), f32({3})}, 3);
  for (const std::vector<int64_t>& gradients : {std::vector<int64_t>{3}, {1, 0}, {0, 0}}) {
    refuse("group_norm_backward", {f32({2, 6}), f32({2, 6}), f32({2, 3}), f32({2, 3})}, 3);
    rows.back().attrs.Set("gradients", gradients);
  }
  Row of_bias{"group_norm_backward",
              {f32({2, 6}), f32({2, 6}), f32({2, 3}), f32({2, 3})},
              {{"groups", int64_t{3}}, {"gradients", std::vector<int64_t>{0, 2}}}};
  of_bias.num_outputs = 2;
  of_bias.bound = GroupNormBound(DType::kFloat32, 4);
  rows.push_back(std::move(of_bias));
}

}  // namespace tensord::conformance
