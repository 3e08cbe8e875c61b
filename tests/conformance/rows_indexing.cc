// Ops that read and write elements at indices: index, gather, index_put, scatter.
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

void Refuse(Rows& rows, Row row) {
  row.refusal = absl::StatusCode::kInvalidArgument;
  rows.push_back(std::move(row));
}

// Indices in [-size, size), of which many occur twice.
Input Indices(DType dtype, Shape shape, int64_t size) {
  Input input{{dtype, std::move(shape)}, Fill::kValues};
  const int64_t n = input.spec.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = (i * 7 + i * i / 3) % (2 * size) - size;
    input.values.push_back(static_cast<double>(value));
  }
  return input;
}

// Indices of these values.
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

}  // namespace

void AddIndexingRows(Rows& rows) { AddIndex(rows); }

}  // namespace tensord::conformance
