// Binary elementwise ops, comparisons and where.
#include "tensord/tests/conformance/elementwise_cases.h"

namespace tensord::conformance {
namespace {

struct Pair {
  Shape a, b;
};
const Pair kPairs[] = {{{}, {}},
                       {{3}, {}},
                       {{}, {4}},
                       {{0}, {1}},
                       {{0, 3}, {1, 3}},
                       {{2, 3}, {0, 1, 1}},
                       {{1}, {7}},
                       {{4, 1}, {1, 5}},
                       {{3, 1, 5}, {4, 1}},
                       {{2, 3}, {3}},
                       {{2, 3}, {2, 1}},
                       {{1, 1}, {3, 2}},
                       {{33, 65}, {33, 65}},
                       {{67, 129}, {129}},
                       {{67, 129}, {67, 1}},
                       {{2, 1, 3, 1, 2}, {1, 4, 1, 5, 2}},
                       {{2, 3, 4, 5, 2}, {2, 3, 4, 5, 2}}};

struct DTypePair {
  DType a, b;
};
// Different dtypes of one kind, which are promoted.
const DTypePair kPromoted[] = {
    {DType::kFloat16, DType::kFloat32},  {DType::kFloat32, DType::kFloat64},
    {DType::kBFloat16, DType::kFloat16}, {DType::kBFloat16, DType::kFloat32},
    {DType::kFloat64, DType::kFloat16},  {DType::kBFloat16, DType::kFloat64},
    {DType::kUInt8, DType::kInt8},       {DType::kInt8, DType::kInt32},
    {DType::kInt64, DType::kInt32},      {DType::kUInt8, DType::kInt64},
    {DType::kUInt8, DType::kInt32},      {DType::kInt8, DType::kInt64},
    {DType::kUInt8, DType::kInt16},      {DType::kUInt8, DType::kUInt16},
    {DType::kUInt8, DType::kUInt64},     {DType::kInt8, DType::kInt16},
    {DType::kInt8, DType::kUInt16},      {DType::kInt8, DType::kUInt32},
    {DType::kInt16, DType::kUInt16},     {DType::kInt16, DType::kUInt32},
    {DType::kInt16, DType::kInt64},      {DType::kUInt16, DType::kInt32},
    {DType::kUInt16, DType::kUInt32},    {DType::kUInt16, DType::kUInt64},
    {DType::kUInt32, DType::kInt32},     {DType::kUInt32, DType::kInt64},
    {DType::kUInt32, DType::kUInt64}};
// Dtypes that are refused: of different kinds, uint64 with a signed integer, and complex dtypes.
const DTypePair kRefused[] = {
    {DType::kBool, DType::kInt32},       {DType::kInt64, DType::kFloat32},
    {DType::kFloat16, DType::kUInt8},    {DType::kFloat64, DType::kBool},
    {DType::kInt8, DType::kBFloat16},    {DType::kInt16, DType::kFloat32},
    {DType::kUInt64, DType::kBool},      {DType::kUInt64, DType::kInt8},
    {DType::kUInt64, DType::kInt64},     {DType::kComplex64, DType::kComplex128},
    {DType::kComplex64, DType::kFloat32}};

struct BinaryCase {
  const char* op;
  // It is null for a comparison, which accepts every dtype except the complex ones.
  const ArithmeticCase* arithmetic = nullptr;

  bool Accepts(DType dtype) const {
    return arithmetic == nullptr ? !IsComplex(dtype) : arithmetic->Accepts(dtype);
  }
};

std::vector<BinaryCase> BinaryCases() {
  std::vector<BinaryCase> cases;
  for (const ArithmeticCase& op : ArithmeticCases()) cases.push_back({op.op, &op});
  for (const ComparisonCase& op : ComparisonCases()) cases.push_back({op.op});
  return cases;
}

Bound BinaryBound(const BinaryCase& op, DType dtype) {
  if (op.arithmetic == nullptr) return {};
  Bound bound = Ulps(dtype, op.arithmetic->ulps);
  bound.epsilons = op.arithmetic->epsilons;
  bound.any_zero_sign = op.arithmetic->any_zero_sign;
  return bound;
}

DType Wider(DType a, DType b) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    if (a == dtype || b == dtype) return dtype;
  }
  return a == b ? a : DType::kFloat32;
}

void Add(Rows& rows, const BinaryCase& op, const Input& a, const Input& b) {
  rows.push_back({op.op, {a, b}, {}, BinaryBound(op, Wider(a.spec.dtype, b.spec.dtype))});
}

void RefusePair(Rows& rows, const char* op, DType a, DType b, const Shape& shape_a = {3},
                const Shape& shape_b = {3}) {
  Refuse(rows, {op, {{{a, shape_a}}, {{b, shape_b}}}});
}

// Adds rows that combine each special value with every other.
void AddSpecials(Rows& rows, const BinaryCase& op, DType dtype) {
  Add(rows, op, {{dtype, {48, 1}}, Fill::kSpecial}, {{dtype, {48}}, Fill::kSpecial});
  Add(rows, op, {{dtype, {48}}, Fill::kSpecial}, {{dtype, {}}, Fill::kSpecial});
}

void AddOp(Rows& rows, const BinaryCase& op) {
  const bool is_pow = std::string(op.op) == "pow";
  for (DType dtype : kAllDTypes) {
    if (!op.Accepts(dtype)) {
      RefusePair(rows, op.op, dtype, dtype);
      continue;
    }
    // The power of a negative base is NaN, unless the exponent is an integer. The rows with kTies
    // have integer exponents.
    const Fill left = is_pow && IsFloating(dtype) ? Fill::kPositive : Fill::kPlain;
    for (const Pair& pair : kPairs) {
      Add(rows, op, {{dtype, pair.a}, left},
          {{dtype, pair.b}, is_pow ? Fill::kUnit : Fill::kPlain});
    }
    Add(rows, op, {{dtype, {13, 17}}, Fill::kTies}, {{dtype, {13, 17}}, Fill::kTies});
    Add(rows, op, {{dtype, {333}}, Fill::kUnit}, {{dtype, {333}}, Fill::kPositive});
    if (!is_pow || !IsFloating(dtype)) {
      Add(rows, op, {{dtype, {333}}, Fill::kWide}, {{dtype, {333}}, Fill::kWide});
    }
    AddSpecials(rows, op, dtype);
  }
  for (const DTypePair& dtypes : kPromoted) {
    if (!op.Accepts(dtypes.a)) {
      RefusePair(rows, op.op, dtypes.a, dtypes.b);
      continue;
    }
    for (const Pair& pair : {Pair{{5, 7}, {5, 7}}, Pair{{4, 1}, {3}}, Pair{{}, {6}}}) {
      Add(rows, op, {{dtypes.a, pair.a}, Fill::kPositive}, {{dtypes.b, pair.b}, Fill::kUnit});
      Add(rows, op, {{dtypes.b, pair.a}, Fill::kPositive}, {{dtypes.a, pair.b}, Fill::kUnit});
    }
  }
  for (const DTypePair& dtypes : kRefused) {
    RefusePair(rows, op.op, dtypes.a, dtypes.b);
    RefusePair(rows, op.op, dtypes.b, dtypes.a);
  }
  RefusePair(rows, op.op, DType::kFloat32, DType::kFloat32, {3}, {4});
  RefusePair(rows, op.op, DType::kFloat32, DType::kFloat32, {2, 3}, {2});
  RefusePair(rows, op.op, DType::kFloat32, DType::kFloat32, {0}, {2});
}

void AddWhere(Rows& rows) {
  struct Shapes {
    Shape condition, x, y;
  };
  const Shapes shapes[] = {{{}, {}, {}},
                           {{4}, {}, {}},
                           {{}, {5}, {5}},
                           {{3, 1}, {1, 4}, {}},
                           {{2, 3}, {2, 3}, {2, 3}},
                           {{0}, {1}, {}},
                           {{5, 1, 1}, {3, 1}, {2}},
                           {{67, 129}, {129}, {67, 1}},
                           {{2, 1, 2, 1, 3}, {4, 1, 2, 1}, {1}}};
  for (DType dtype : kAllDTypes) {
    for (const Shapes& s : shapes) {
      rows.push_back({"where", {{{DType::kBool, s.condition}}, {{dtype, s.x}}, {{dtype, s.y}}}});
    }
    rows.push_back({"where",
                    {{{DType::kBool, {40, 1}}, Fill::kSpecial},
                     {{dtype, {32}}, Fill::kSpecial},
                     {{dtype, {40, 32}}, Fill::kSpecial}}});
  }
  for (const DTypePair& dtypes : kPromoted) {
    rows.push_back({"where", {{{DType::kBool, {4, 5}}}, {{dtypes.a, {5}}}, {{dtypes.b, {4, 1}}}}});
  }
  for (const auto& [condition, x, y] :
       {std::tuple(DType::kInt32, DType::kInt32, DType::kInt32),
        std::tuple(DType::kBool, DType::kInt32, DType::kFloat32),
        std::tuple(DType::kBool, DType::kUInt64, DType::kInt64),
        std::tuple(DType::kBool, DType::kComplex64, DType::kFloat32),
        std::tuple(DType::kComplex64, DType::kInt8, DType::kInt8)}) {
    rows.push_back({"where", {{{condition, {3}}}, {{x, {3}}}, {{y, {3}}}}});
    rows.back().refusal = absl::StatusCode::kInvalidArgument;
  }
}

}  // namespace

void AddBinaryRows(Rows& rows) {
  for (const BinaryCase& op : BinaryCases()) AddOp(rows, op);
  for (const char* op : {"add", "lt"}) {
    rows.push_back({op, {{{DType::kFloat32, {1000, 1000}}}, {{DType::kFloat32, {1000}}}}});
    rows.push_back({op, {{{DType::kInt64, {300, 1}}}, {{DType::kInt64, {1, 300}}}}});
  }
  AddWhere(rows);
}

}  // namespace tensord::conformance
