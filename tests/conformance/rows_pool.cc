// Pooling and its gradients.
#include <cmath>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Numbers = std::vector<int64_t>;

struct PoolCase {
  Shape x;
  Numbers kernel;
  Numbers stride = {};
  Numbers padding = {};
  Numbers dilation = {};
  bool ceil = false;
};

const PoolCase kPoolCases[] = {
    {{7}, {3}},
    {{1}, {1}},
    {{2, 3, 9}, {2}},
    {{2, 3, 9}, {3}, {2}, {1}},
    {{2, 3, 10}, {3}, {3}, {1}, {}, true},
    {{3, 40}, {5}, {1}, {2}},
    {{0, 3, 9}, {2}},
    {{6, 7}, {2, 2}},
    {{2, 3, 8, 9}, {3, 3}, {2, 2}, {1, 1}},
    {{2, 3, 8, 9}, {3, 2}, {1}, {1}, {}, true},
    {{1, 2, 15, 15}, {3, 3}, {2, 2}, {}, {}, true},
    {{1, 2, 33, 70}, {3, 3}, {2, 2}, {1, 1}},
    {{1, 2, 33, 70}, {3, 3}, {1, 1}, {1, 1}},
    {{3, 13, 11}, {5, 4}, {3, 4}, {2, 2}, {}, true},
    {{2, 7, 7}, {7, 7}},
    {{2, 2, 600}, {1, 3}, {1, 1}, {0, 1}},
    {{2, 2, 1100}, {2, 2}, {1, 2}, {1, 0}},
    {{2, 4, 5, 6}, {2, 2, 2}},
    {{2, 3, 4, 5, 6}, {3, 2, 3}, {2, 1, 2}, {1, 1, 0}, {}, true},
};
// Cases with a dilation, which only max_pool takes.
const PoolCase kDilatedCases[] = {
    {{2, 20}, {3}, {1}, {2}, {2}},
    {{2, 3, 9, 11}, {3, 3}, {2, 1}, {2, 1}, {2, 3}},
    {{1, 1, 1}, {1, 2}, {1}, {0, 2}, {1, 4}},  // a window without elements
    {{2, 9, 9, 9}, {2, 3, 2}, {1, 2, 2}, {1, 1, 1}, {2, 2, 3}, true},
};

Attributes Attrs(const PoolCase& c) {
  Attributes attrs{{"kernel", c.kernel}};
  if (!c.stride.empty()) attrs.Set("stride", c.stride);
  if (!c.padding.empty()) attrs.Set("padding", c.padding);
  if (!c.dilation.empty()) attrs.Set("dilation", c.dilation);
  if (c.ceil) attrs.Set("ceil_mode", true);
  return attrs;
}

Attributes WithSize(const PoolCase& c) {
  Attributes attrs = Attrs(c);
  const auto spatial = c.x.dims().last(c.kernel.size());
  attrs.Set("size", Numbers(spatial.begin(), spatial.end()));
  return attrs;
}

int64_t Taps(const PoolCase& c) {
  int64_t taps = 1;
  for (const int64_t k : c.kernel) taps *= k;
  return taps;
}

// Returns the bound of sums over windows.
Bound PoolBound(DType dtype, const PoolCase& c) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return {.ulps = 1.0, .epsilons = (narrow ? 1.0 : 2.0) + std::sqrt(static_cast<double>(Taps(c)))};
}

// Adds rows for max_pool, and for its gradient with the indices of the reference.
void AddMax(Rows& rows, DType dtype, const PoolCase& c, Fill fill) {
  Row row{"max_pool", {{{dtype, c.x}, fill}}, Attrs(c)};
  row.num_outputs = 2;
  const std::vector<Values> results = Prepare(row).expected;
  rows.push_back(std::move(row));
  const Shape& pooled = results[0].spec.shape;
  Input indices{{DType::kInt64, pooled}, Fill::kValues};
  for (const int64_t index : results[1].whole) indices.values.push_back(static_cast<double>(index));
  rows.push_back({"max_pool_backward", {{{dtype, pooled}}, indices}, WithSize(c)});
  rows.back().bound = PoolBound(dtype, c);
}

void AddAvg(Rows& rows, DType dtype, const PoolCase& c, bool count_padding, int64_t divisor) {
  Row row{"avg_pool", {{{dtype, c.x}}}, Attrs(c)};
  if (!count_padding) row.attrs.Set("count_include_pad", false);
  if (divisor != 0) row.attrs.Set("divisor", divisor);
  row.bound = PoolBound(dtype, c);
  const Shape pooled = Prepare(row).expected[0].spec.shape;
  Row backward{"avg_pool_backward", {{{dtype, pooled}}}, WithSize(c)};
  if (!count_padding) backward.attrs.Set("count_include_pad", false);
  if (divisor != 0) backward.attrs.Set("divisor", divisor);
  backward.bound = row.bound;
  rows.push_back(std::move(row));
  rows.push_back(std::move(backward));
}

void AddSpecialPools(Rows& rows, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  const std::vector<double> x = {nan, 1,   2,    3,   nan, 5,   -inf, -inf, -inf, -inf, -inf, -inf,
                                 inf, inf, -0.0, 0.0, 1,   nan, 2,    nan,  1,    7,    7,    7};
  for (const PoolCase& c : {PoolCase{{4, 6}, {2, 3}}, PoolCase{{4, 6}, {3, 3}, {1}, {1}},
                            PoolCase{{2, 12}, {4}, {3}, {2}}}) {
    Row row{"max_pool", {{{dtype, c.x}, Fill::kValues, x}}, Attrs(c)};
    row.num_outputs = 2;
    rows.push_back(std::move(row));
    rows.push_back({"avg_pool", {{{dtype, c.x}, Fill::kValues, x}}, Attrs(c)});
    rows.back().bound = PoolBound(dtype, c);
  }
}

void RefusePool(Rows& rows, const char* op, std::vector<Input> inputs, Attributes attrs) {
  Refuse(rows, {op, std::move(inputs), std::move(attrs)});
}

void AddPoolRefusals(Rows& rows) {
  const Input x{{DType::kFloat32, {2, 5, 6}}};
  for (const char* op : {"max_pool", "avg_pool"}) {
    RefusePool(rows, op, {x}, {});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{1, 1, 1, 1}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{0, 2}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{int64_t{1} << 40}}});
    RefusePool(rows, op, {x},
               {{"kernel", Numbers{1 << 30, 1 << 30}}, {"padding", Numbers{1 << 29}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{2, 2}}, {"stride", Numbers{0}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{2, 2}}, {"stride", Numbers{1, 1, 1}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{2, 2}}, {"padding", Numbers{2}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{2, 2}}, {"padding", Numbers{-1}}});
    RefusePool(rows, op, {x}, {{"kernel", Numbers{6, 2}}});
    RefusePool(rows, op, {{{DType::kInt32, {2, 5, 6}}}}, {{"kernel", Numbers{2, 2}}});
    RefusePool(rows, op, {{{DType::kFloat32, {5}}}}, {{"kernel", Numbers{2, 2}}});
    RefusePool(rows, op, {{{DType::kFloat32, {2, 0}}}}, {{"kernel", Numbers{1}}});
  }
  RefusePool(rows, "avg_pool", {x}, {{"kernel", Numbers{2}}, {"dilation", Numbers{2}}});
  RefusePool(rows, "max_pool", {x}, {{"kernel", Numbers{2}}, {"dilation", Numbers{0}}});
  const Input g{{DType::kFloat32, {2, 5, 3}}}, indices{{DType::kInt64, {2, 5, 3}}};
  const Attributes two{{"kernel", Numbers{2}}, {"size", Numbers{6}}};
  RefusePool(rows, "avg_pool_backward", {g}, {{"kernel", Numbers{2}}});
  RefusePool(rows, "avg_pool_backward", {g}, {{"kernel", Numbers{2}}, {"size", Numbers{8}}});
  RefusePool(rows, "avg_pool_backward", {g}, {{"kernel", Numbers{2}}, {"size", Numbers{5, 6}}});
  RefusePool(rows, "avg_pool_backward", {g}, {{"kernel", Numbers{2}}, {"size", Numbers{-6}}});
  RefusePool(rows, "max_pool_backward", {g, {{DType::kInt32, {2, 5, 3}}}}, two);
  RefusePool(rows, "max_pool_backward", {g, {{DType::kInt64, {2, 5, 2}}}}, two);
}

}  // namespace

void AddPoolRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const PoolCase& c : kPoolCases) {
      AddMax(rows, dtype, c, Fill::kPlain);
      AddMax(rows, dtype, c, Fill::kTies);
      AddAvg(rows, dtype, c, false, 0);
      for (const int64_t divisor : {0, 3, -3}) AddAvg(rows, dtype, c, true, divisor);
    }
    for (const PoolCase& c : kDilatedCases) AddMax(rows, dtype, c, Fill::kPlain);
    AddSpecialPools(rows, dtype);
  }
  AddPoolRefusals(rows);
}

}  // namespace tensord::conformance
