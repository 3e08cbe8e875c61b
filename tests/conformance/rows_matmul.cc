// Matrix products and linear layers.
#include <cmath>

#include "tensord/common/ops/elementwise.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

// If roundings are independent, the error of a sum of k products, relative to the sum of their
// magnitudes, grows with the square root of k. The rounding of the result adds one ulp.
Bound MatmulBound(DType dtype, int64_t k) {
  if (!IsFloating(dtype)) return {};
  return {.ulps = 1, .epsilons = 2 + 2 * std::sqrt(static_cast<double>(k))};
}

struct Product {
  Shape a, b;
  bool transpose_a = false;
  bool transpose_b = false;
};

int64_t Inner(const Product& p) {
  const int rank = p.a.rank();
  return rank == 1 ? p.a.dim(0) : p.a.dim(p.transpose_a ? rank - 2 : rank - 1);
}

const Product kProducts[] = {
    // vectors
    {{5}, {5}},
    {{0}, {0}},
    {{5}, {5, 3}},
    {{3, 5}, {5}},
    {{5}, {2, 5, 3}},
    {{2, 3, 5}, {5}},
    // matrices
    {{1, 1}, {1, 1}},
    {{2, 3}, {3, 4}},
    {{1, 64}, {64, 33}},
    {{33, 64}, {64, 1}},
    {{17, 1}, {1, 19}},
    {{31, 63}, {63, 65}},
    {{0, 3}, {3, 4}},
    {{2, 0}, {0, 4}},
    {{2, 3}, {3, 0}},
    {{0, 0}, {0, 0}},
    // transposes
    {{3, 2}, {3, 4}, true, false},
    {{2, 3}, {4, 3}, false, true},
    {{3, 2}, {4, 3}, true, true},
    {{63, 31}, {65, 63}, true, true},
    {{1, 40}, {50, 40}, false, true},
    {{40, 1}, {40, 50}, true, false},
    {{0, 2}, {4, 0}, true, true},
    {{3, 2}, {3}, true, false},
    {{3}, {4, 3}, false, true},
    // batches
    {{4, 2, 3}, {4, 3, 5}},
    {{4, 2, 3}, {3, 5}},
    {{2, 3}, {4, 3, 5}},
    {{4, 1, 2, 3}, {5, 3, 2}},
    {{1, 2, 3}, {6, 3, 2}},
    {{0, 2, 3}, {3, 5}},
    {{0, 2, 3}, {1, 3, 5}},
    {{2, 3, 1, 4, 5}, {1, 6, 5, 2}},
    {{2, 0, 2, 3}, {1, 3, 2}},
    {{3, 2, 0}, {3, 0, 4}},
    {{4, 3, 2}, {4, 3, 5}, true, false},
    {{4, 2, 3}, {5, 3}, false, true},
    {{3, 1, 5, 2}, {4, 6, 5}, true, true},
};

void AddProducts(Rows& rows, DType a, DType b, DType result, Fill fill) {
  for (const Product& p : kProducts) {
    Attributes attrs;
    if (p.transpose_a) attrs.Set("transpose_a", true);
    if (p.transpose_b) attrs.Set("transpose_b", true);
    rows.push_back(
        {"matmul", {{{a, p.a}, fill}, {{b, p.b}, fill}}, attrs, MatmulBound(result, Inner(p))});
  }
}

void AddLarge(Rows& rows) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                      DType::kInt32, DType::kUInt16}) {
    const Product p{{129, 257}, {257, 65}};
    rows.push_back({"matmul", {{{dtype, p.a}}, {{dtype, p.b}}}, {}, MatmulBound(dtype, 257)});
  }
  rows.push_back(
      {"matmul",
       {{{DType::kFloat32, {256, 512}}, Fill::kUnit}, {{DType::kFloat32, {300, 512}}, Fill::kUnit}},
       {{"transpose_b", true}},
       MatmulBound(DType::kFloat32, 512)});
  rows.push_back({"matmul",
                  {{{DType::kFloat32, {50, 20, 20}}}, {{DType::kFloat32, {50, 20, 20}}}},
                  {},
                  MatmulBound(DType::kFloat32, 20)});
  // Without allow_tf32, a GPU must not round the operands.
  rows.push_back({"matmul",
                  {{{DType::kFloat32, {64, 64}}}, {{DType::kFloat32, {64, 64}}}},
                  {{"allow_tf32", false}},
                  MatmulBound(DType::kFloat32, 64)});
  Row tf32{"matmul",
           {{{DType::kFloat32, {64, 64}}, Fill::kUnit}, {{DType::kFloat32, {64, 64}}, Fill::kUnit}},
           {{"allow_tf32", true}},
           MatmulBound(DType::kFloat32, 64)};
  tf32.bound.epsilons = 0x1p13;  // 10 bits of mantissa
  rows.push_back(tf32);
}

void AddSpecials(Rows& rows) {
  const double nan = std::nan(""), infinity = INFINITY;
  for (DType dtype : kFloatingDTypes) {
    rows.push_back({"matmul",
                    {{{dtype, {3, 2}}, Fill::kValues, {nan, 1, infinity, 1, 1, 2}},
                     {{dtype, {2, 2}}, Fill::kValues, {1, 0, 2, 3}}},
                    {},
                    MatmulBound(dtype, 2)});
  }
  // Products of float16 must be accumulated in float32. In float16, sums above 2048 would lose
  // ones, and terms outside its range would give infinity. In float32, each term and each partial
  // sum is exact, in any order.
  rows.push_back(
      {"matmul",
       {{{DType::kFloat16, {2, 4096}}, Fill::kTies}, {{DType::kFloat16, {4096, 2}}, Fill::kTies}},
       {},
       {.ulps = 1}});
  rows.push_back({"matmul",
                  {{{DType::kFloat16, {1, 3}}, Fill::kValues, {60000, 60000, 1}},
                   {{DType::kFloat16, {3, 1}}, Fill::kValues, {2, -2, 7}}},
                  {},
                  {.ulps = 1}});
}

void AddMatmulRefusals(Rows& rows) {
  constexpr DType kF32 = DType::kFloat32;
  RefuseSpecs(rows, "matmul", {{kF32, {2, 3}}, {kF32, {2, 3}}});
  RefuseSpecs(rows, "matmul", {{kF32, {3}}, {kF32, {4}}});
  RefuseSpecs(rows, "matmul", {{kF32, {}}, {kF32, {4}}});
  RefuseSpecs(rows, "matmul", {{kF32, {2, 2, 3}}, {kF32, {3, 3, 4}}});
  RefuseSpecs(rows, "matmul", {{kF32, {3}}, {kF32, {3, 4}}}, {{"transpose_a", true}});
  RefuseSpecs(rows, "matmul", {{kF32, {4, 3}}, {kF32, {3}}}, {{"transpose_b", true}});
  RefuseSpecs(rows, "matmul", {{DType::kBool, {2, 2}}, {DType::kBool, {2, 2}}});
  RefuseSpecs(rows, "matmul", {{DType::kInt32, {2, 2}}, {kF32, {2, 2}}});
  RefuseSpecs(rows, "matmul", {{DType::kComplex64, {2, 2}}, {DType::kComplex64, {2, 2}}});
}

void AddLinear(Rows& rows) {
  struct Layer {
    Shape x;
    int64_t out;
  };
  const Layer layers[] = {{{5}, 3},       {{2, 5}, 3},    {{2, 3, 4}, 6}, {{2, 1, 3, 2, 4}, 5},
                          {{0, 5}, 3},    {{2, 0}, 3},    {{2, 5}, 0},    {{1, 64}, 130},
                          {{65, 33}, 17}, {{7, 256}, 10}, {{40, 64}, 48}};
  std::vector<std::string> activations = {"none"};
  for (UnaryFunction function : Activations()) activations.emplace_back(FunctionName(function));
  for (DType dtype : kFloatingDTypes) {
    for (const Layer& layer : layers) {
      const int64_t in = layer.x.dim(layer.x.rank() - 1);
      Bound bound = MatmulBound(dtype, in);
      bound.ulps = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 6 : 1;
      bound.epsilons += 4;
      for (const std::string& activation : activations) {
        const Attributes attrs{{"activation", activation}};
        const Input x{{dtype, layer.x}, Fill::kUnit}, w{{dtype, {layer.out, in}}, Fill::kUnit};
        rows.push_back({"linear", {x, w, {{dtype, {layer.out}}}}, attrs, bound});
        rows.push_back({"linear", {x, w}, attrs, bound});
      }
    }
  }
  for (DType x : kFloatingDTypes) {
    for (DType w : kFloatingDTypes) {
      const bool narrow = x == w && x != DType::kFloat32 && x != DType::kFloat64;
      const bool wide = x == DType::kFloat64 || w == DType::kFloat64;
      const DType bias = narrow ? x : DType::kFloat16;
      Bound bound = MatmulBound(narrow ? x : wide ? DType::kFloat64 : DType::kFloat32, 9);
      if (x == DType::kBFloat16 && w == DType::kBFloat16) bound = MatmulBound(DType::kBFloat16, 9);
      rows.push_back({"linear", {{{x, {4, 9}}}, {{w, {3, 9}}}, {{bias, {3}}}}, {}, bound});
    }
  }
  constexpr DType kF32 = DType::kFloat32;
  RefuseSpecs(rows, "linear", {{kF32, {}}, {kF32, {3, 5}}});
  RefuseSpecs(rows, "linear", {{kF32, {2, 5}}, {kF32, {5, 3}}});
  RefuseSpecs(rows, "linear", {{kF32, {2, 5}}, {kF32, {5}}});
  RefuseSpecs(rows, "linear", {{kF32, {2, 5}}, {kF32, {3, 5}}, {kF32, {5}}});
  RefuseSpecs(rows, "linear", {{kF32, {2, 5}}, {kF32, {3, 5}}, {kF32, {1, 3}}});
  RefuseSpecs(rows, "linear", {{DType::kInt32, {2, 5}}, {DType::kInt32, {3, 5}}});
  RefuseSpecs(rows, "linear", {{kF32, {2, 5}}, {kF32, {3, 5}}},
              {{"activation", std::string("sine")}});
}

}  // namespace

void AddMatmulRows(Rows& rows) {
  for (DType dtype : kFloatingDTypes) AddProducts(rows, dtype, dtype, dtype, Fill::kPlain);
  for (DType dtype : kIntegerDTypes) AddProducts(rows, dtype, dtype, dtype, Fill::kWide);
  AddProducts(rows, DType::kFloat16, DType::kFloat32, DType::kFloat32, Fill::kUnit);
  AddProducts(rows, DType::kBFloat16, DType::kFloat64, DType::kFloat64, Fill::kUnit);
  AddProducts(rows, DType::kUInt8, DType::kInt8, DType::kInt16, Fill::kPlain);
  AddProducts(rows, DType::kUInt16, DType::kInt16, DType::kInt32, Fill::kPlain);
  AddLarge(rows);
  AddSpecials(rows);
  AddMatmulRefusals(rows);
  AddLinear(rows);
}

}  // namespace tensord::conformance
