// sort, topk, searchsorted and nonzero.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

struct Along {
  Shape shape;
  int64_t axis;
};
const Along kAlongs[] = {{{}, -1},
                         {{}, 0},
                         {{1}, 0},
                         {{7}, 0},
                         {{3, 5}, 0},
                         {{3, 5}, 1},
                         {{3, 5}, -2},
                         {{1, 5}, 0},
                         {{5, 1}, -1},
                         {{100, 9}, 1},
                         {{9, 100}, 0},
                         {{4, 3, 5}, 1},
                         {{2, 3, 4, 5, 2}, 0},
                         {{2, 3, 4, 5, 2}, 1},
                         {{2, 3, 4, 5, 2}, 2},
                         {{2, 3, 4, 5, 2}, 3},
                         {{2, 3, 4, 5, 2}, 4},
                         {{0}, 0},
                         {{0, 3}, 1},
                         {{3, 0}, 1},
                         {{2, 0, 3}, 0}};
// Rows that are longer than a tile of the GPU, and than those that the CPU sorts by std::sort.
const Along kLongAlongs[] = {{{2, 5000}, 1}, {{2500, 3}, 0}, {{2, 2048}, 1}, {{1, 8193}, -1}};

int64_t Extent(const Along& along) {
  const int rank = along.shape.rank();
  if (rank == 0) return 1;
  return along.shape.dim(static_cast<int>(along.axis < 0 ? along.axis + rank : along.axis));
}

Row ValuesAndIndices(const char* op, Input input, Attributes attrs) {
  return {.op = op, .inputs = {std::move(input)}, .attrs = std::move(attrs), .num_outputs = 2};
}

// Returns rows with several NaNs, infinities, zeros of both signs and equal elements.
const std::vector<std::vector<double>>& SpecialRows() {
  const double nan = std::nan(""), inf = INFINITY;
  static const auto* const rows =
      new std::vector<std::vector<double>>{{1, nan, -inf, nan, inf, -2},
                                           {-0.0, 0.0, 1, 0.0, -0.0, -1},
                                           {nan, nan, nan, nan, nan, nan},
                                           {inf, -inf, inf, -inf, 0, -0.0},
                                           {2, 2, 2, 1, 1, 1}};
  return *rows;
}

void AddSort(Rows& rows) {
  const auto add = [&rows](Input input, int64_t axis) {
    for (bool descending : {false, true}) {
      rows.push_back(ValuesAndIndices("sort", input, {{"axis", axis}, {"descending", descending}}));
    }
  };
  for (DType dtype : kAllDTypes) {
    if (IsComplex(dtype)) continue;
    for (const Along& along : kAlongs) {
      add({{dtype, along.shape}}, along.axis);
      add({{dtype, along.shape}, Fill::kTies}, along.axis);
    }
    for (const Along& along : kLongAlongs) add({{dtype, along.shape}, Fill::kWide}, along.axis);
    add({{dtype, {3, 48}}, Fill::kSpecial}, 1);
    add({{dtype, {48, 2}}, Fill::kSpecial}, 0);
    add({{dtype, {1, 1500}}, Fill::kSpecial}, 1);
  }
  for (DType dtype : kFloatingDTypes) {
    for (const std::vector<double>& values : SpecialRows()) {
      add({{dtype, {6}}, Fill::kValues, values}, 0);
      add({{dtype, {6, 1}}, Fill::kValues, values}, 0);
    }
  }
  rows.push_back(ValuesAndIndices("sort", {{DType::kFloat32, {4, 5}}}, {}));
  add({{DType::kFloat32, {5000, 3}}}, 1);
  Refuse(rows, ValuesAndIndices("sort", {{DType::kFloat32, {2, 3}}}, {{"axis", int64_t{2}}}));
  Refuse(rows, ValuesAndIndices("sort", {{DType::kFloat32, {2, 3}}}, {{"axis", int64_t{-3}}}));
}

Attributes TopKAttrs(int64_t k, int64_t axis, bool largest) {
  return {{"k", k}, {"axis", axis}, {"largest", largest}};
}

void AddTopK(Rows& rows) {
  const auto add = [&rows](Input input, int64_t k, int64_t axis) {
    for (bool largest : {false, true}) {
      rows.push_back(ValuesAndIndices("topk", input, TopKAttrs(k, axis, largest)));
    }
  };
  for (DType dtype : kAllDTypes) {
    if (IsComplex(dtype)) continue;
    if (IsBool(dtype)) {
      Refuse(rows, ValuesAndIndices("topk", {{dtype, {3}}}, TopKAttrs(1, 0, true)));
      continue;
    }
    for (const Along& along : kAlongs) {
      const int64_t n = Extent(along);
      add({{dtype, along.shape}}, n, along.axis);
      if (along.shape.rank() == 0) continue;
      add({{dtype, along.shape}, Fill::kTies}, (n + 1) / 2, along.axis);
      add({{dtype, along.shape}}, n == 0 ? 0 : 1, along.axis);
      add({{dtype, along.shape}}, 0, along.axis);
    }
    for (const Along& along : kLongAlongs) {
      for (int64_t k : {1, 50, 1300}) add({{dtype, along.shape}, Fill::kWide}, k, along.axis);
    }
    for (int64_t k : {1, 7, 300, 1500}) add({{dtype, {1, 1500}}, Fill::kSpecial}, k, 1);
    add({{dtype, {6000}}, Fill::kTies}, 40, 0);
  }
  for (DType dtype : kFloatingDTypes) {
    for (const std::vector<double>& values : SpecialRows()) {
      for (int64_t k : {1, 3, 5}) add({{dtype, {6}}, Fill::kValues, values}, k, 0);
    }
  }
  rows.push_back(ValuesAndIndices("topk", {{DType::kFloat32, {2, 9}}},
                                  {{"k", int64_t{4}}, {"sorted", false}}));
  for (int64_t k : {6, -1}) {
    Refuse(rows, ValuesAndIndices("topk", {{DType::kFloat32, {2, 5}}}, {{"k", k}}));
  }
  Refuse(rows, ValuesAndIndices("topk", {{DType::kFloat32, {2, 5}}}, TopKAttrs(1, 2, true)));
}

// Returns the values as elements of a dtype, in the same order. Replaces values that an integer
// dtype can't hold by values that it can.
std::vector<double> Ordered(DType dtype, const std::vector<double>& values) {
  if (IsFloating(dtype)) return values;
  std::vector<double> whole;
  for (double value : values) {
    if (!std::isfinite(value)) value = std::isnan(value) || value > 0 ? 100 : -100;
    whole.push_back(MinOf(dtype) < 0 ? value : value + 100);
  }
  return whole;
}

void AddSearchSorted(Rows& rows) {
  const double nan = std::nan(""), inf = INFINITY;
  const std::vector<double> sorted = {-inf, -3, -3, -1, -0.0, 0.0, 2, 2, 2, 7, inf, nan};
  const std::vector<double> x = {-inf, -4, -3, -2, -1, -0.0, 0.0, 1, 2, 5, 7, 8, inf, nan, nan, -3};
  for (DType dtype : kAllDTypes) {
    if (IsComplex(dtype)) continue;
    if (IsBool(dtype)) {
      Refuse(rows, {"searchsorted", {{{dtype, {3}}}, {{dtype, {2}}}}});
      continue;
    }
    const Input ordered{{dtype, {12}}, Fill::kValues, Ordered(dtype, sorted)};
    for (bool right : {false, true}) {
      const Attributes attrs{{"right", right}};
      for (const Shape& shape : {Shape{16}, Shape{4, 4}, Shape{2, 1, 2, 2, 2}}) {
        rows.push_back(
            {"searchsorted", {ordered, {{dtype, shape}, Fill::kValues, Ordered(dtype, x)}}, attrs});
      }
      rows.push_back({"searchsorted", {ordered, {{dtype, {}}}}, attrs});
      rows.push_back({"searchsorted", {ordered, {{dtype, {0, 2}}}}, attrs});
      rows.push_back({"searchsorted", {{{dtype, {0}}}, {{dtype, {3}}}}, attrs});
      // Rows of their own, and rows without elements.
      rows.push_back({"searchsorted",
                      {{{dtype, {2, 6}}, Fill::kValues, Ordered(dtype, sorted)},
                       {{dtype, {2, 8}}, Fill::kValues, Ordered(dtype, x)}},
                      attrs});
      rows.push_back({"searchsorted",
                      {{{dtype, {2, 1, 2, 3}}, Fill::kValues, Ordered(dtype, sorted)},
                       {{dtype, {2, 1, 2, 4}}, Fill::kValues, Ordered(dtype, x)}},
                      attrs});
      rows.push_back({"searchsorted", {{{dtype, {3, 0}}}, {{dtype, {3, 2}}}}, attrs});
      rows.push_back({"searchsorted", {{{dtype, {3, 2}}}, {{dtype, {3, 0}}}}, attrs});
    }
  }
  rows.push_back({"searchsorted",
                  {{{DType::kInt32, {4}}, Fill::kValues, {-1, 0, 3, 9}},
                   {{DType::kInt64, {5}}, Fill::kWide}}});
  Refuse(rows, {"searchsorted", {{{DType::kFloat32, {}}}, {{DType::kFloat32, {2}}}}});
  Refuse(rows, {"searchsorted", {{{DType::kFloat32, {2, 3}}}, {{DType::kFloat32, {3, 3}}}}});
  Refuse(rows, {"searchsorted", {{{DType::kFloat32, {3}}}, {{DType::kInt32, {3}}}}});
}

void AddNonzero(Rows& rows) {
  const auto add = [&rows](Input input, int64_t size) {
    rows.push_back({"nonzero", {std::move(input)}, {{"size", size}}});
  };
  for (DType dtype : kAllDTypes) {
    if (IsComplex(dtype)) continue;
    for (const Along& along : kAlongs) {
      const int64_t n = along.shape.num_elements();
      for (int64_t size : {int64_t{0}, int64_t{1}, n / 2, n, n + 3}) {
        add({{dtype, along.shape}, Fill::kTies}, size);
      }
    }
    add({{dtype, {5, 1, 20}}, Fill::kSpecial}, 100);
    add({{dtype, {70, 90}}, Fill::kTies}, 5000);
    add({{dtype, {70, 90}}, Fill::kTies}, 300);
    add({{dtype, {9000}}, Fill::kPositive}, 9000);
  }
  for (int64_t size : {int64_t{-1}, int64_t{1} << 60}) {
    Refuse(rows, {"nonzero", {{{DType::kFloat32, {4}}}}, {{"size", size}}});
  }
}

}  // namespace

void AddSortRows(Rows& rows) {
  AddSort(rows);
  AddTopK(rows);
  AddSearchSorted(rows);
  AddNonzero(rows);
}

}  // namespace tensord::conformance
