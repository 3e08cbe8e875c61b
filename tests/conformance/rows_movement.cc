// Compositions that move, mask and scatter elements.
#include <limits>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;

void AddRoll(Rows& rows) {
  struct Case {
    Shape shape;
    Ints shift, axes;
  };
  const Case cases[] = {{{}, {3}, {}},
                        {{7}, {2}, {0}},
                        {{7}, {-9}, {-1}},
                        {{4, 5}, {3}, {}},
                        {{4, 5}, {1, -2}, {0, 1}},
                        {{4, 5}, {0}, {1}},
                        {{4, 5}, {1, 1}, {1, 1}},
                        {{0, 3}, {1}, {1}},
                        {{0}, {1}, {}},
                        {{67, 129}, {30}, {1}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      rows.push_back({"roll", {{{dtype, c.shape}}}, {{"shift", c.shift}, {"axes", c.axes}}});
    }
  }
  const TensorSpec x = {DType::kFloat32, {2, 3}};
  RefuseSpecs(rows, "roll", {x}, {{"shift", Ints{1, 2}}, {"axes", Ints{0}}});
  RefuseSpecs(rows, "roll", {x}, {{"shift", Ints{1, 2}}});
  RefuseSpecs(rows, "roll", {x}, {{"shift", Ints{1}}, {"axes", Ints{2}}});
}

void AddTriangles(Rows& rows) {
  for (const char* op : {"tril", "triu"}) {
    for (DType dtype : kAllDTypes) {
      for (const Shape& shape :
           {Shape{3, 5}, Shape{2, 4, 3}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{67, 129}}) {
        for (int64_t k : {0, 1, -1, 9, -9}) {
          rows.push_back({op, {{{dtype, shape}}}, {{"k", k}}});
        }
      }
      if (!IsBool(dtype)) rows.push_back({op, {{{dtype, {8, 9}}, Fill::kSpecial}}});
    }
    RefuseSpecs(rows, op, {{DType::kFloat32, {3}}});
  }
}

void AddPad(Rows& rows) {
  struct Case {
    Shape shape;
    Ints pad;
  };
  const Case cases[] = {{{5}, {1, 2}},
                        {{3, 4}, {0, 1}},
                        {{3, 4}, {2, 0, 1, 3}},
                        {{3, 4}, {}},
                        {{3, 4}, {0, 0}},
                        {{2, 0}, {1, 1}},
                        {{2, 3, 4}, {1, 0, 0, 2}},
                        {{}, {}},
                        {{67, 129}, {3, 5, 2, 1}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      rows.push_back({"pad", {{{dtype, c.shape}}}, {{"pad", c.pad}}});
      if (IsBool(dtype)) continue;
      rows.push_back({"pad", {{{dtype, c.shape}}}, {{"pad", c.pad}, {"value", int64_t{7}}}});
    }
  }
  rows.push_back({"pad", {{{DType::kFloat16, {3}}}}, {{"pad", Ints{1, 1}}, {"value", 0.1}}});
  const TensorSpec x = {DType::kFloat32, {2, 3}};
  RefuseSpecs(rows, "pad", {x}, {{"pad", Ints{1}}});
  RefuseSpecs(rows, "pad", {x}, {{"pad", Ints{1, 1, 1, 1, 1, 1}}});
  RefuseSpecs(rows, "pad", {x}, {{"pad", Ints{-1, 1}}});
  RefuseSpecs(rows, "pad", {x}, {{"pad", Ints{1, int64_t{1} << 62}}});
  RefuseSpecs(rows, "pad", {{DType::kUInt8, {3}}}, {{"pad", Ints{1, 1}}, {"value", int64_t{300}}});
}

Input Indices(const Shape& shape, std::vector<double> values, DType dtype = DType::kInt64) {
  return {{dtype, shape}, Fill::kValues, std::move(values)};
}

void AddTakeAlongDim(Rows& rows) {
  const Attributes first = {{"axis", int64_t{0}}}, last = {{"axis", int64_t{-1}}};
  for (DType dtype : kAllDTypes) {
    rows.push_back({"take_along_dim", {{{dtype, {4}}}, Indices({3}, {3, -1, 0})}, first});
    rows.push_back({"take_along_dim", {{{dtype, {4, 5}}}, Indices({2, 1}, {3, -2})}, first});
    rows.push_back(
        {"take_along_dim", {{{dtype, {1, 5}}}, Indices({3, 2}, {0, 4, -1, 2, 1, 1})}, last});
    rows.push_back(
        {"take_along_dim", {{{dtype, {3, 5}}}, Indices({1, 2}, {0, 4}, DType::kInt32)}, last});
    rows.push_back({"take_along_dim", {{{dtype, {3, 5}}}, Indices({3, 0}, {})}, last});
    Refuse(rows, {"take_along_dim", {{{dtype, {4}}}, Indices({1}, {4})}, first});
  }
  const TensorSpec x = {DType::kFloat32, {3, 5}};
  RefuseSpecs(rows, "take_along_dim", {x, {DType::kInt64, {3}}}, last);
  RefuseSpecs(rows, "take_along_dim", {x, {DType::kInt64, {2, 5}}}, last);
  RefuseSpecs(rows, "take_along_dim", {x, {DType::kFloat32, {3, 5}}}, last);
  RefuseSpecs(rows, "take_along_dim", {x, {DType::kInt64, {3, 5}}}, {{"axis", int64_t{2}}});
}

void AddOneHot(Rows& rows) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    rows.push_back({"one_hot", {Indices({4}, {0, 2, -1, 1}, dtype)}, {{"classes", int64_t{3}}}});
    rows.push_back({"one_hot", {Indices({}, {5}, dtype)}, {{"classes", int64_t{9}}}});
    rows.push_back({"one_hot", {Indices({2, 0}, {}, dtype)}, {{"classes", int64_t{2}}}});
    Refuse(rows, {"one_hot", {Indices({2}, {0, 3}, dtype)}, {{"classes", int64_t{3}}}});
  }
  RefuseSpecs(rows, "one_hot", {{DType::kInt64, {2}}}, {{"classes", int64_t{0}}});
  RefuseSpecs(rows, "one_hot", {{DType::kFloat32, {2}}}, {{"classes", int64_t{3}}});
}

void AddEmbeddingBackward(Rows& rows) {
  const std::vector<Attributes> variants = {
      {},
      {{"padding_idx", Ints{1}}},
      {{"padding_idx", Ints{-1}}, {"scale_grad_by_freq", true}},
      {{"scale_grad_by_freq", true}}};
  for (DType dtype : kFloatingDTypes) {
    // 16-bit sums are rounded at each step.
    Bound bound = Ulps(dtype, 1);
    bound.epsilons = dtype == DType::kFloat16 ? 2e4 : dtype == DType::kBFloat16 ? 2e5 : 4;
    for (Attributes attrs : variants) {
      attrs.Set("rows", int64_t{4});
      rows.push_back({"embedding_backward",
                      {{{dtype, {6, 5}}}, Indices({6}, {0, 1, 1, 3, -1, 1})},
                      attrs,
                      bound});
      rows.push_back({"embedding_backward",
                      {{{dtype, {2, 3, 33}}}, Indices({2, 3}, {3, 3, 3, 0, -4, 2}, DType::kInt32)},
                      attrs,
                      bound});
      rows.push_back({"embedding_backward", {{{dtype, {0, 5}}}, Indices({0}, {})}, attrs, bound});
      rows.push_back({"embedding_backward", {{{dtype, {3, 0}}}, Indices({3}, {0, 1, 2})}, attrs});
      Refuse(rows, {"embedding_backward", {{{dtype, {2, 5}}}, Indices({2}, {0, 4})}, attrs});
    }
  }
  const TensorSpec g = {DType::kFloat32, {2, 3}}, i = {DType::kInt64, {2}};
  const auto refuse = [&](const TensorSpec& gradient, Attributes attrs) {
    RefuseSpecs(rows, "embedding_backward", {gradient, i}, std::move(attrs));
  };
  refuse(g, {{"rows", int64_t{-1}}});
  refuse({DType::kFloat32, {2}}, {{"rows", int64_t{4}}});
  refuse(g, {{"rows", int64_t{4}}, {"padding_idx", Ints{4}}});
  refuse(g, {{"rows", int64_t{4}}, {"padding_idx", Ints{0, 1}}});
}

// The scatter of a slice into x, and the gradient of the slice.
void AddScatter(Rows& rows, const char* op, const char* gradient, const Shape& shape,
                const Shape& slice, const Attributes& attrs) {
  Attributes with_shape = attrs;
  with_shape.Set("shape", Ints(shape.dims().begin(), shape.dims().end()));
  for (DType dtype : kAllDTypes) {
    rows.push_back({op, {{{dtype, shape}}, {{dtype, slice}, Fill::kUnit}}, attrs});
    rows.push_back({gradient, {{{dtype, slice}}}, with_shape});
  }
  RefuseSpecs(rows, op, {{DType::kFloat32, shape}, {DType::kFloat64, slice}}, attrs);
  RefuseSpecs(rows, op, {{DType::kFloat32, shape}, {DType::kFloat32, {11}}}, attrs);
  RefuseSpecs(rows, gradient, {{DType::kFloat32, {11}}}, with_shape);
}

void AddScatters(Rows& rows) {
  const auto element = [&](const Shape& shape, const Shape& slice, int64_t axis, int64_t index) {
    AddScatter(rows, "select_scatter", "select_backward", shape, slice,
               {{"axis", axis}, {"index", index}});
  };
  element({5}, {}, 0, 3);
  element({4, 5}, {5}, 0, -1);
  element({4, 5}, {4}, -1, 2);
  element({2, 3, 4}, {2, 4}, 1, 0);
  const auto range = [&](const Shape& shape, const Shape& slice, Attributes attrs) {
    AddScatter(rows, "slice_scatter", "slice_backward", shape, slice, attrs);
  };
  range({7}, {7}, {});
  range({7}, {3}, {{"start", int64_t{1}}, {"stop", int64_t{7}}, {"step", int64_t{2}}});
  range({4, 5}, {4, 2}, {{"axis", int64_t{-1}}, {"start", int64_t{-2}}});
  range({4, 5}, {1, 5}, {{"start", int64_t{2}}, {"stop", int64_t{3}}, {"step", int64_t{9}}});
  range({4, 5}, {0, 5}, {{"start", int64_t{3}}, {"stop", int64_t{1}}});
  const TensorSpec x = {DType::kFloat32, {4, 5}}, src = {DType::kFloat32, {5}};
  RefuseSpecs(rows, "select_scatter", {x, src}, {{"axis", int64_t{0}}, {"index", int64_t{4}}});
  RefuseSpecs(rows, "select_scatter", {x, src}, {{"axis", int64_t{2}}, {"index", int64_t{0}}});
  RefuseSpecs(rows, "slice_scatter", {x, x}, {{"step", int64_t{0}}});
  RefuseSpecs(rows, "slice_backward", {x}, {{"shape", Ints{-4, 5}}});
}

}  // namespace

void AddMovementRows(Rows& rows) {
  AddRoll(rows);
  AddTriangles(rows);
  AddPad(rows);
  AddTakeAlongDim(rows);
  AddOneHot(rows);
  AddEmbeddingBackward(rows);
  AddScatters(rows);
}

}  // namespace tensord::conformance
