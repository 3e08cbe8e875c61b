// Reductions and softmax.
#include <cmath>

#include "tensord/tests/conformance/reduction_cases.h"

namespace tensord::conformance {
namespace {

int64_t ReducedElements(const ReductionCase& c) {
  if (c.axes.empty()) return c.shape.num_elements();
  int64_t n = 1;
  for (int64_t axis : c.axes) n *= c.shape.dim(axis < 0 ? axis + c.shape.rank() : axis);
  return n;
}

void AddSums(Rows& rows) {
  for (const char* op : {"sum", "mean"}) {
    const bool is_mean = std::string(op) == "mean";
    for (DType dtype : kAllDTypes) {
      if (IsComplex(dtype) || (is_mean && !IsFloating(dtype))) {
        Refuse(rows, {op, {{{dtype, {3}}}}});
        continue;
      }
      for (bool keepdims : {false, true}) {
        for (const ReductionCase& c : kReductionCases) {
          rows.push_back(
              {op, {{{dtype, c.shape}}}, With(c, keepdims), SumBound(dtype, ReducedElements(c))});
        }
        for (const ReductionCase& c : kEmptyReductionCases)
          rows.push_back({op, {{{dtype, c.shape}}}, With(c, keepdims)});
      }
      rows.push_back(
          {op, {{{dtype, {5, 321}}, Fill::kWide}}, {{"axes", Axes{1}}}, SumBound(dtype, 321)});
      rows.push_back(
          {op, {{{dtype, {4, 32}}, Fill::kSpecial}}, {{"axes", Axes{0}}}, SumBound(dtype, 4)});
    }
    rows.push_back(
        {op, {{{DType::kFloat32, {1000, 1000}}}}, {}, SumBound(DType::kFloat32, 1000000)});
    rows.push_back({op,
                    {{{DType::kFloat32, {1000, 1000}}}},
                    {{"axes", Axes{0}}},
                    SumBound(DType::kFloat32, 1000)});
    // The elements must be accumulated in float32. The sum overflows float16, but the mean doesn't.
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      rows.push_back({op, {{{dtype, {20000}}, Fill::kPositive}}, {}, {.ulps = 1}});
    }
  }
}

void AddLogSumExp(Rows& rows) {
  const auto bound_of = [](DType dtype, int64_t n) {
    Bound bound = Ulps(IsFloating(dtype) ? dtype : DType::kFloat32, 2);
    bound.epsilons = 4 + std::sqrt(static_cast<double>(n));
    return bound;
  };
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                      DType::kInt32, DType::kBool}) {
    for (const ReductionCase& c : AllReductionCases()) {
      for (bool keepdims : {false, true}) {
        const Bound bound = bound_of(dtype, ReducedElements(c));
        rows.push_back({"logsumexp", {{{dtype, c.shape}}}, With(c, keepdims), bound});
      }
    }
    if (!IsFloating(dtype)) continue;
    const Bound bound = bound_of(dtype, 321);
    rows.push_back({"logsumexp", {{{dtype, {5, 321}}, Fill::kWide}}, {{"axes", Axes{1}}}, bound});
    rows.push_back(
        {"logsumexp",
         {{{dtype, {5, 2}},
           Fill::kValues,
           {kInfinity, 1, -kInfinity, 1, -kInfinity, -kInfinity, kInfinity, kInfinity, kNan, 1}}},
         {{"axes", Axes{1}}},
         bound});
  }
  Refuse(rows, {"logsumexp", {{{DType::kComplex64, {3}}}}});
}

void AddExtremes(Rows& rows) {
  for (const char* op : {"max", "min", "argmax", "argmin"}) {
    const Bound bound{.any_zero_sign = true};
    for (DType dtype : kComplexDTypes) Refuse(rows, {op, {{{dtype, {3}}}}});
    for (DType dtype : kRealDTypes) {
      for (bool keepdims : {false, true}) {
        for (const ReductionCase& c : kReductionCases) {
          const Fill fill = keepdims ? Fill::kTies : Fill::kPlain;
          rows.push_back({op, {{{dtype, c.shape}, fill}}, With(c, keepdims), bound});
        }
      }
      for (const ReductionCase& c : kEmptyReductionCases)
        Refuse(rows, {op, {{{dtype, c.shape}}}, With(c, false)});
      for (const Axes& axes : {Axes{0}, Axes{1}, Axes{0, 1}}) {
        rows.push_back({op, {{{dtype, {16, 31}}, Fill::kSpecial}}, {{"axes", axes}}, bound});
        rows.push_back({op, {{{dtype, {20, 40}}, Fill::kWide}}, {{"axes", axes}}, bound});
      }
    }
    // Equal elements and several NaNs, of which the first counts; only infinities of one sign.
    const double nan = std::nan(""), inf = INFINITY;
    for (const std::vector<double>& values : {std::vector<double>{1, nan, 3, nan},
                                              {nan, nan, 1, 2},
                                              {-inf, -inf, -inf, -inf},
                                              {inf, 1, inf, 2},
                                              {2, 2, 2, 2},
                                              {-0.0, 0.0, -0.0, 0.0}}) {
      for (DType dtype : kFloatingDTypes) {
        rows.push_back({op, {{{dtype, {4}}, Fill::kValues, values}}, {}, bound});
        rows.push_back(
            {op, {{{dtype, {4, 1}}, Fill::kValues, values}}, {{"axes", Axes{0}}}, bound});
      }
    }
    rows.push_back({op, {{{DType::kFloat32, {1000, 1000}}}}, {{"axes", Axes{1}}}, bound});
    rows.push_back({op, {{{DType::kFloat32, {1000, 1000}}}}, {}, bound});
  }
}

void AddNorms(Rows& rows) {
  const double inf = INFINITY;
  for (DType dtype : kFloatingDTypes) {
    for (double ord : {2.0, 1.0, inf, -inf, 0.0, 3.0, 0.5, -1.0, 2.5}) {
      for (const ReductionCase& c : kReductionCases) {
        Bound bound = Ulps(dtype, 8);
        bound.epsilons = 2 + std::sqrt(static_cast<double>(ReducedElements(c)));
        // The relative error of |x|^p grows with p, and that of its root with 1/p.
        if (ord == 0.5 || ord == 2.5) bound.epsilons *= 4;
        Attributes attrs = With(c, ord == 2);
        attrs.Set("ord", ord);
        rows.push_back({"norm", {{{dtype, c.shape}}}, attrs, bound});
      }
      for (const ReductionCase& c : kEmptyReductionCases) {
        Attributes attrs = With(c, false);
        attrs.Set("ord", ord);
        if (ord >= 0 && !std::isinf(ord)) {
          rows.push_back({"norm", {{{dtype, c.shape}}}, attrs});
        } else {
          Refuse(rows, {"norm", {{{dtype, c.shape}}}, attrs});
        }
      }
      Bound bound = Ulps(dtype, 8);
      for (const std::vector<double>& values : {std::vector<double>{1, std::nan(""), 2},
                                                {inf, 1, -inf},
                                                {0.0, -0.0, 0.0},
                                                {3, -4, 0}}) {
        rows.push_back({"norm", {{{dtype, {3}}, Fill::kValues, values}}, {{"ord", ord}}, bound});
      }
    }
    rows.push_back({"norm", {{{dtype, {5, 4}}}}, {{"ord", int64_t{1}}}, Ulps(dtype, 8)});
  }
  rows.push_back({"norm", {{{DType::kFloat32, {1000, 1000}}}}, {}, {.epsilons = 100}});
  // The squares of these elements are past float32's range.
  for (double value : {1e20, 1e-30}) {
    const std::vector<double> values = {value, -2 * value, value};
    rows.push_back(
        {"norm", {{{DType::kFloat32, {3}}, Fill::kValues, values}}, {}, {.epsilons = 8}});
  }
  for (DType dtype : kIntegerDTypes) Refuse(rows, {"norm", {{{dtype, {3}}}}});
  Refuse(rows, {"norm", {{{DType::kBool, {3}}}}});
  for (DType dtype : kComplexDTypes) Refuse(rows, {"norm", {{{dtype, {3}}}}});
}

void AddSoftmax(Rows& rows) {
  struct Along {
    Shape shape;
    int64_t axis;
  };
  const Along alongs[] = {{{}, 0},        {{}, -1},
                          {{1}, 0},       {{7}, 0},
                          {{3, 5}, 0},    {{3, 5}, 1},
                          {{3, 5}, -2},   {{67, 129}, -1},
                          {{67, 129}, 0}, {{2, 3, 4}, 1},
                          {{2, 0}, 1},    {{2, 0}, 0},
                          {{0, 3}, -1},   {{2, 3, 4, 5, 2}, 2},
                          {{5, 1}, 1},    {{1, 4097}, 1}};
  const double inf = INFINITY;
  for (const char* op : {"softmax", "log_softmax"}) {
    for (DType dtype : kFloatingDTypes) {
      Bound bound = Ulps(dtype, 4);
      bound.epsilons = 8;
      bound.absolute = dtype == DType::kFloat64 ? 1e-300 : 1e-37;
      for (const Along& along : alongs) {
        bound.epsilons = 8 + std::sqrt(static_cast<double>(along.shape.num_elements()));
        const Attributes attrs{{"axis", along.axis}};
        rows.push_back({op, {{{dtype, along.shape}}}, attrs, bound});
        rows.push_back({op, {{{dtype, along.shape}, Fill::kWide}}, attrs, bound});
      }
      rows.push_back({op, {{{dtype, {3, 9}}}}, {}, bound});
      for (const std::vector<double>& values : {std::vector<double>{-inf, -inf, -inf},
                                                {inf, 1, 2},
                                                {-inf, 1, 2},
                                                {1, std::nan(""), 2},
                                                {1000, 1000, 1000},
                                                {60000, -60000, 0},
                                                {-1000, -1001, -1002}}) {
        rows.push_back({op, {{{dtype, {3}}, Fill::kValues, values}}, {}, bound});
        rows.push_back(
            {op, {{{dtype, {3, 1}}, Fill::kValues, values}}, {{"axis", int64_t{0}}}, bound});
      }
    }
    for (DType dtype : {DType::kInt32, DType::kUInt64, DType::kComplex64}) {
      Refuse(rows, {op, {{{dtype, {3}}}}});
    }
    Refuse(rows, {op, {{{DType::kFloat32, {3}}}}, {{"axis", int64_t{1}}}});
  }
}

}  // namespace

void AddReductionRows(Rows& rows) {
  AddSums(rows);
  AddLogSumExp(rows);
  AddExtremes(rows);
  AddNorms(rows);
  AddSoftmax(rows);
  for (const char* op : {"sum", "mean", "max", "argmin", "norm", "logsumexp"}) {
    Refuse(rows, {op, {{{DType::kFloat32, {2, 3}}}}, {{"axes", Axes{2}}}});
    Refuse(rows, {op, {{{DType::kFloat32, {2, 3}}}}, {{"axes", Axes{-3}}}});
    Refuse(rows, {op, {{{DType::kFloat32, {2, 3}}}}, {{"axes", Axes{1, -1}}}});
  }
}

}  // namespace tensord::conformance
