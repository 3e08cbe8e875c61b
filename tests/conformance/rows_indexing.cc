// Ops that read and write elements at indices: index, gather, index_put, scatter.
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

// Returns indices in [-size, size), of which many occur twice.
Input Indices(DType dtype, Shape shape, int64_t size) {
  Input input{{dtype, std::move(shape)}, Fill::kValues};
  const int64_t n = input.spec.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = (i * 7 + i * i / 3) % (2 * size) - size;
    input.values.push_back(static_cast<double>(value));
  }
  return input;
}

// Returns a tensor of these indices.
Input IndicesOf(DType dtype, std::vector<double> values) {
  const auto n = static_cast<int64_t>(values.size());
  return {{dtype, {n}}, Fill::kValues, std::move(values)};
}

Attributes Axis(int64_t axis) { return {{"axis", axis}}; }

void AddIndex(Rows& rows) {
  struct Case {
    Shape x;
    std::vector<Shape> indices;
    int64_t axis = 0;
  };
  const Case cases[] = {{{10}, {{}}},
                        {{10}, {{7}}},
                        {{10}, {{2, 3}}},
                        {{10}, {{0}}},
                        {{10}, {{2, 0}}},
                        {{0}, {{0}}},
                        {{0, 4}, {{0, 2}}},
                        {{5, 0}, {{3}}},
                        {{5, 6}, {{4}}},
                        {{5, 6}, {{4}}, 1},
                        {{5, 6}, {{4}}, -1},
                        {{5, 6}, {{4}, {4}}},
                        {{5, 6}, {{3, 1}, {4}}},
                        {{5, 6}, {{}, {4}}},
                        {{3, 4, 5}, {{2, 1}, {1, 3}}, 1},
                        {{3, 4, 5}, {{6}, {1}, {6}}},
                        {{2, 3, 4, 5, 2}, {{2, 2}}, 2},
                        {{2, 3, 4, 5, 2}, {{3}, {2, 1}, {2, 3}}, 1},
                        {{9, 3}, {{5}}},
                        {{40, 768}, {{33}}},
                        {{300, 17}, {{1000}}}};
  for (const DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      Row row{"index", {{{dtype, c.x}, Fill::kSpecial}}, Axis(c.axis)};
      const int64_t axis = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
      for (size_t i = 0; i < c.indices.size(); ++i) {
        const DType index_dtype = (rows.size() + i) % 2 == 0 ? DType::kInt64 : DType::kInt32;
        const int64_t size = c.x.dim(static_cast<int>(axis + static_cast<int64_t>(i)));
        row.inputs.push_back(Indices(index_dtype, c.indices[i], size));
      }
      rows.push_back(std::move(row));
    }
  }
  const Input x{{DType::kFloat32, {4, 6}}};
  const Input i = Indices(DType::kInt64, {3}, 4);
  Refuse(rows, {"index", {{{DType::kFloat32, {}}}, i}});
  Refuse(rows, {"index", {x, {{DType::kFloat32, {3}}}}});
  Refuse(rows, {"index", {x, {{DType::kBool, {3}}}}});
  Refuse(rows, {"index", {x, i}, Axis(2)});
  Refuse(rows, {"index", {x, i, i}, Axis(1)});
  Refuse(rows, {"index", {x, i, Indices(DType::kInt64, {2}, 6)}});
  Refuse(rows, {"index", {{{DType::kFloat32, {0, 6}}}, i}});
  // Only the values show these errors.
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Refuse(rows, {"index", {x, IndicesOf(dtype, {0, 4})}});
    Refuse(rows, {"index", {x, IndicesOf(dtype, {-5, 0})}});
    Refuse(rows, {"index", {x, IndicesOf(dtype, {0, 1}), IndicesOf(dtype, {0, 6})}});
  }
}

// Returns the values that an op writes.
Input UpdateValues(DType dtype, Shape shape, Fill fill) {
  return {{dtype, std::move(shape)}, fill};
}

// Returns the bound. Sums and products round once for each value. 16-bit floats are rounded once
// more at the end.
Bound IndexingBound(DType dtype, const std::string& reduce) {
  if (!IsFloating(dtype) || reduce == "none" || reduce == "max" || reduce == "min") return {};
  return {.ulps = dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? 1.0 : 0.0,
          .epsilons = 64};
}

void AddGather(Rows& rows) {
  struct Case {
    Shape x, indices;
    int64_t axis = 0;
  };
  const Case cases[] = {{{}, {}},
                        {{9}, {9}},
                        {{9}, {23}},
                        {{9}, {0}},
                        {{0}, {0}},
                        {{3, 0}, {5, 0}},
                        {{4, 6}, {7, 6}},
                        {{4, 6}, {7, 3}},
                        {{4, 6}, {4, 9}, 1},
                        {{4, 6}, {2, 9}, -1},
                        {{3, 4, 5}, {3, 8, 5}, 1},
                        {{3, 4, 5}, {2, 8, 3}, 1},
                        {{3, 4, 5}, {0, 8, 3}, 1},
                        {{2, 3, 4, 5, 2}, {2, 3, 7, 5, 2}, 2},
                        {{2, 3, 4, 5, 2}, {1, 3, 4, 4, 2}, 3},
                        {{33, 129}, {70, 129}},
                        {{33, 129}, {33, 70}, 1}};
  for (const DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      const int64_t axis = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
      const int64_t size = c.x.rank() == 0 ? 1 : c.x.dim(static_cast<int>(axis));
      const DType index_dtype = rows.size() % 2 == 0 ? DType::kInt64 : DType::kInt32;
      rows.push_back({"gather",
                      {{{dtype, c.x}, Fill::kSpecial}, Indices(index_dtype, c.indices, size)},
                      Axis(c.axis)});
    }
  }
  const Input x{{DType::kFloat32, {4, 6}}};
  Refuse(rows, {"gather", {x, {{DType::kFloat32, {4, 6}}}}});
  Refuse(rows, {"gather", {x, Indices(DType::kInt64, {4}, 4)}});
  Refuse(rows, {"gather", {x, Indices(DType::kInt64, {4, 7}, 4)}});
  Refuse(rows, {"gather", {x, Indices(DType::kInt64, {4, 6}, 4)}, Axis(2)});
  Refuse(rows, {"gather", {{{DType::kFloat32, {0, 6}}}, Indices(DType::kInt64, {1, 6}, 4)}});
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Input bad = Indices(dtype, {4, 6}, 4);
    bad.values[9] = 4;
    Refuse(rows, {"gather", {x, bad}});
    bad.values[9] = -5;
    Refuse(rows, {"gather", {x, bad}});
  }
}

// An index out of range is refused even if there are no elements to read or write.
void AddRefusalsOfEmptyResults(Rows& rows) {
  const Input no_columns{{DType::kFloat32, {4, 0}}}, no_groups{{DType::kFloat32, {0, 4}}};
  const Input scalar{{DType::kFloat32, {}}};
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const Input bad = IndicesOf(dtype, {0, 4}), good = IndicesOf(dtype, {0, -4});
    Refuse(rows, {"index", {no_columns, bad}});
    Refuse(rows, {"index", {no_groups, bad}, Axis(1)});
    Refuse(rows, {"index", {{{DType::kFloat32, {4, 4, 0}}}, good, bad}});
    Refuse(rows, {"index_put", {no_columns, bad, scalar}});
    Refuse(rows, {"index_put", {no_groups, bad, scalar}, Axis(1)});
    rows.push_back({"index", {no_groups, good}, Axis(1)});
    rows.push_back({"index_put", {no_groups, good, scalar}, Axis(1)});
  }
}

void AddIndexPut(Rows& rows) {
  struct Case {
    Shape x;
    std::vector<Shape> indices;
    Shape values;
    int64_t axis = 0;
  };
  const Case cases[] = {{{10}, {{}}, {}},
                        {{10}, {{7}}, {7}},
                        {{10}, {{25}}, {25}},
                        {{10}, {{7}}, {}},
                        {{10}, {{2, 3}}, {2, 3}},
                        {{10}, {{0}}, {0}},
                        {{0, 4}, {{0}}, {0, 4}},
                        {{5, 0}, {{3}}, {3, 0}},
                        {{5, 6}, {{4}}, {4, 6}},
                        {{5, 6}, {{4}}, {}},
                        {{5, 6}, {{4}}, {5, 4}, 1},
                        {{5, 6}, {{40}}, {5, 40}, -1},
                        {{5, 6}, {{4}, {4}}, {4}},
                        {{5, 6}, {{3, 1}, {4}}, {3, 4}},
                        {{3, 4, 5}, {{2, 1}, {1, 3}}, {3, 2, 3}, 1},
                        {{2, 3, 4, 5, 2}, {{2, 2}}, {2, 3, 2, 2, 5, 2}, 2},
                        {{7, 1100}, {{30}}, {30, 1100}},
                        {{3, 5, 300}, {{9}}, {3, 9, 300}, 1}};
  for (const DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      for (const char* reduce : {"none", "add"}) {
        if (IsComplex(dtype) && reduce[0] != 'n') continue;
        const bool add = reduce[0] == 'a';
        Row row{"index_put", {{{dtype, c.x}, add ? Fill::kUnit : Fill::kSpecial}}, Axis(c.axis)};
        row.attrs.Set("reduce", std::string(reduce));
        const int64_t axis = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
        for (size_t i = 0; i < c.indices.size(); ++i) {
          const DType index_dtype = (rows.size() / 2 + i) % 2 == 0 ? DType::kInt64 : DType::kInt32;
          const int64_t size = c.x.dim(static_cast<int>(axis + static_cast<int64_t>(i)));
          row.inputs.push_back(Indices(index_dtype, c.indices[i], size));
        }
        row.inputs.push_back(UpdateValues(dtype, c.values, add ? Fill::kPlain : Fill::kSpecial));
        row.bound = IndexingBound(dtype, reduce);
        rows.push_back(std::move(row));
      }
    }
  }
  const Input x{{DType::kFloat32, {4, 6}}};
  const Input i = Indices(DType::kInt64, {3}, 4);
  const Input values{{DType::kFloat32, {3, 6}}};
  Refuse(rows, {"index_put", {x, i}});
  Refuse(rows, {"index_put", {x, i, {{DType::kFloat32, {3}}}}});
  Refuse(rows, {"index_put", {x, i, {{DType::kFloat64, {3, 6}}}}});
  Refuse(rows, {"index_put", {x, {{DType::kFloat32, {3}}}, values}});
  Refuse(rows, {"index_put", {x, i, values}, {{"reduce", std::string("mul")}}});
  Refuse(rows, {"index_put", {{{DType::kFloat32, {0, 6}}}, i, values}});
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Refuse(rows, {"index_put", {x, IndicesOf(dtype, {0, 1, 4}), values}});
    Refuse(rows, {"index_put", {x, IndicesOf(dtype, {0, -5, 0}), values}});
    Refuse(rows,
           {"index_put",
            {x, IndicesOf(dtype, {0, 1}), IndicesOf(dtype, {0, 6}), {{DType::kFloat32, {2}}}}});
  }
}

void AddScatter(Rows& rows) {
  struct Case {
    Shape x, indices, values;
    int64_t axis = 0;
  };
  const Case cases[] = {{{}, {}, {}},
                        {{9}, {9}, {9}},
                        {{9}, {40}, {40}},
                        {{9}, {8}, {11}},
                        {{9}, {8}, {}},
                        {{9}, {0}, {3}},
                        {{0}, {0}, {0}},
                        {{3, 0}, {5, 0}, {5, 0}},
                        {{4, 6}, {7, 6}, {7, 6}},
                        {{4, 6}, {7, 3}, {8, 5}},
                        {{4, 6}, {4, 9}, {4, 9}, 1},
                        {{4, 6}, {2, 9}, {2, 9}, -1},
                        {{3, 4, 5}, {3, 8, 5}, {3, 8, 5}, 1},
                        {{3, 4, 5}, {2, 8, 3}, {3, 8, 4}, 1},
                        {{3, 4, 5}, {3, 8, 3}, {}, 1},
                        {{2, 3, 4, 5, 2}, {2, 3, 7, 5, 2}, {2, 3, 7, 5, 2}, 2},
                        {{2, 3, 4, 5, 2}, {1, 3, 4, 9, 2}, {2, 3, 5, 9, 2}, 3},
                        {{33, 129}, {70, 129}, {70, 129}},
                        {{33, 129}, {33, 300}, {33, 300}, 1}};
  for (const DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      for (const char* reduce : {"none", "add", "mul", "max", "min"}) {
        if (IsComplex(dtype) && reduce[0] != 'n') continue;
        const bool mul = reduce == std::string("mul");
        const bool exact = !mul && reduce != std::string("add");
        const int64_t axis = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
        const int64_t size = c.x.rank() == 0 ? 1 : c.x.dim(static_cast<int>(axis));
        const DType index_dtype = rows.size() % 2 == 0 ? DType::kInt64 : DType::kInt32;
        Row row{"scatter",
                {{{dtype, c.x}, exact ? Fill::kSpecial : Fill::kUnit},
                 Indices(index_dtype, c.indices, size),
                 UpdateValues(dtype, c.values,
                              exact ? Fill::kSpecial
                              : mul ? Fill::kUnit
                                    : Fill::kPlain)},
                Axis(c.axis)};
        row.attrs.Set("reduce", std::string(reduce));
        row.bound = IndexingBound(dtype, reduce);
        // Of +0 and -0, either one may be the larger.
        if (exact && reduce != std::string("none")) row.bound.any_zero_sign = true;
        rows.push_back(std::move(row));
      }
    }
  }
  const Input x{{DType::kFloat32, {4, 6}}};
  const Input i = Indices(DType::kInt64, {4, 6}, 4);
  Refuse(rows, {"scatter", {x, i, {{DType::kFloat32, {3, 6}}}}});
  Refuse(rows, {"scatter", {x, i, {{DType::kFloat32, {24}}}}});
  Refuse(rows, {"scatter", {x, i, {{DType::kFloat16, {4, 6}}}}});
  Refuse(rows, {"scatter", {x, {{DType::kBool, {4, 6}}}, x}});
  Refuse(rows, {"scatter", {x, Indices(DType::kInt64, {4, 7}, 4), x}});
  Refuse(rows, {"scatter", {x, i, x}, {{"reduce", std::string("mean")}}});
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Input bad = Indices(dtype, {4, 6}, 4);
    bad.values[9] = 4;
    Refuse(rows, {"scatter", {x, bad, x}});
    bad.values[9] = -5;
    Refuse(rows, {"scatter", {x, bad, x}, {{"reduce", std::string("add")}}});
  }
}

// With from_end = false, negative indices are refused.
void AddWithoutNegativeIndices(Rows& rows) {
  const Attributes attrs = {{"from_end", false}};
  const Input x{{DType::kFloat32, {6}}}, one{{DType::kFloat32, {}}};
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const Input good = IndicesOf(dtype, {5, 0, 3}), bad = IndicesOf(dtype, {5, 0, -1});
    for (const char* op : {"index", "gather"}) {
      rows.push_back({op, {x, good}, attrs});
      Refuse(rows, {op, {x, bad}, attrs});
    }
    for (const char* op : {"index_put", "scatter"}) {
      rows.push_back({op, {x, good, one}, attrs});
      Refuse(rows, {op, {x, bad, one}, attrs});
    }
  }
}

}  // namespace

void AddIndexingRows(Rows& rows) {
  AddIndex(rows);
  AddGather(rows);
  AddIndexPut(rows);
  AddRefusalsOfEmptyResults(rows);
  AddScatter(rows);
  AddWithoutNegativeIndices(rows);
}

}  // namespace tensord::conformance
