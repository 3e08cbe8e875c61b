// Random numbers, and dropout.
#include <cmath>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;
const Ints kRandomShapes[] = {{}, {0}, {1}, {2}, {3}, {5}, {2, 0, 3}, {33, 31}, {2, 3, 4, 5, 2}};
constexpr int64_t kFar = int64_t{1} << 40;
constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;

void RefuseRandom(Rows& rows, const char* op, std::vector<Input> inputs, Attributes attrs) {
  Refuse(rows, {op, std::move(inputs), std::move(attrs)});
}

// Returns an input that holds seed and stream.
Input State(double seed, double stream) {
  return {{DType::kInt64, {2}}, Fill::kValues, {seed, stream}};
}

struct SeedAndStream {
  int64_t seed, stream;
};
constexpr SeedAndStream kNumbers[] = {{0, 0},  {42, 0},  {-1, 0},    {kFar, 0},
                                      {42, 1}, {42, -1}, {-5, kFar}, {kMin, kMax}};

// Returns the bound. uniform must give equal bits on all devices, because each step of the
// computation is rounded once.
Bound RandomBound(const std::string& op, DType dtype) {
  if (op == "uniform") return {.any_zero_sign = true};
  Bound bound = Ulps(dtype, 2);
  bound.epsilons = 8;  // the reference's own angle has an error of 4, too
  return bound;
}

void AddFloating(Rows& rows, const std::string& op) {
  for (DType dtype : kFloatingDTypes) {
    const Bound bound = RandomBound(op, dtype);
    for (const auto& [seed, stream] : kNumbers) {
      for (const Ints& shape : kRandomShapes) {
        Attributes attrs{{"shape", shape}, {"seed", seed}, {"dtype", dtype}};
        if (stream != 0) attrs.Set("stream", stream);
        rows.push_back({op, {}, attrs, bound});
      }
    }
    for (const Ints& shape : kRandomShapes) {
      rows.push_back({op, {State(-42, 7)}, {{"shape", shape}, {"dtype", dtype}}, bound});
    }
    rows.push_back({op,
                    {State(7, -kFar)},
                    {{"shape", Ints{9}}, {"dtype", dtype}, {"seed", int64_t{0}}},
                    bound});
  }
}

void AddParameters(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    Attributes range{{"shape", Ints{999}}, {"seed", int64_t{3}}, {"dtype", dtype}};
    range.Set("low", -2.5);
    range.Set("high", int64_t{7});
    rows.push_back({"uniform", {}, range, RandomBound("uniform", dtype)});
    Attributes moments{{"shape", Ints{999}}, {"seed", int64_t{3}}, {"dtype", dtype}};
    moments.Set("mean", 10.0);
    moments.Set("stddev", 0.25);
    rows.push_back({"normal", {}, moments, RandomBound("normal", dtype)});
    moments.Set("stddev", 0.0);
    rows.push_back({"normal", {}, moments, RandomBound("normal", dtype)});
  }
}

void AddRandint(Rows& rows) {
  struct Range {
    int64_t low, high;
  };
  for (DType dtype : kIntegerDTypes) {
    for (const auto& [seed, stream] : kNumbers) {
      for (const Ints& shape : kRandomShapes) {
        rows.push_back({"randint",
                        {},
                        {{"shape", shape},
                         {"seed", seed},
                         {"stream", stream},
                         {"high", int64_t{100}},
                         {"dtype", dtype}}});
      }
    }
    for (const auto& [low, high] : {Range{0, 1}, Range{5, 128}, Range{0, 128}}) {
      rows.push_back({"randint",
                      {State(3, 4)},
                      {{"shape", Ints{999}}, {"low", low}, {"high", high}, {"dtype", dtype}}});
    }
  }
  for (const auto& [low, high] :
       {Range{-3, 4}, Range{kMin, kMax}, Range{kMax - 1, kMax}, Range{kMin, 0}, Range{-kFar, kFar},
        Range{0, int64_t{1} << 32}, Range{0, (int64_t{1} << 32) + 1}}) {
    rows.push_back({"randint",
                    {},
                    {{"shape", Ints{999}}, {"seed", int64_t{8}}, {"low", low}, {"high", high}}});
  }
  const auto refuse = [&](Attributes attrs) {
    attrs.Set("shape", Ints{3});
    attrs.Set("seed", int64_t{1});
    RefuseRandom(rows, "randint", {}, attrs);
  };
  refuse({});
  refuse({{"high", int64_t{0}}});
  refuse({{"low", int64_t{4}}, {"high", int64_t{4}}});
  refuse({{"high", 4.0}});
  refuse({{"high", int64_t{4}}, {"dtype", DType::kBool}});
  refuse({{"high", int64_t{4}}, {"dtype", DType::kFloat32}});
  refuse({{"high", int64_t{257}}, {"dtype", DType::kUInt8}});
  refuse({{"low", int64_t{-1}}, {"high", int64_t{4}}, {"dtype", DType::kUInt8}});
}

// Adds a row for dropout with a mask, which is the second output.
void AddWithMask(Rows& rows, std::vector<Input> inputs, Attributes attrs) {
  attrs.Set("mask", true);
  rows.push_back({"dropout", std::move(inputs), std::move(attrs)});
  rows.back().bounds = {Ulps(rows.back().inputs[0].spec.dtype, 2), {}};
  rows.back().num_outputs = 2;
}

// Adds rows for dropout. The kept elements are divided by 1 - p, and the quotient is rounded.
void AddDropout(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    for (const Ints& shape : kRandomShapes) {
      const Input x{{dtype, Shape(shape)}};
      for (double p : {0.0, 0.1, 0.5, 1.0}) {
        const Attributes attrs{{"p", p}, {"seed", int64_t{9}}, {"stream", int64_t{2}}};
        rows.push_back({"dropout", {x}, attrs, Ulps(dtype, 2)});
        rows.push_back({"dropout", {x, State(-4, 5)}, {{"p", p}}, Ulps(dtype, 2)});
        AddWithMask(rows, {x}, attrs);
        AddWithMask(rows, {x, State(-4, 5)}, {{"p", p}});
      }
    }
    const Input special{{dtype, {500}}, Fill::kSpecial};
    for (double p : {0.0, 0.25, 1e-9, 1.0 - 1e-9, 1.0}) {
      rows.push_back({"dropout", {special}, {{"p", p}, {"seed", int64_t{1}}}, Ulps(dtype, 2)});
    }
    rows.push_back({"dropout", {{{dtype, {67, 129}}}}, {{"seed", kMin}}, Ulps(dtype, 2)});
  }
  const Input x{{DType::kFloat32, {4}}};
  for (double p : {-0.1, 1.1, double{INFINITY}, std::nan("")}) {
    RefuseRandom(rows, "dropout", {x}, {{"p", p}, {"seed", int64_t{1}}});
  }
  RefuseRandom(rows, "dropout", {x}, {});
  RefuseRandom(rows, "dropout", {x, {{DType::kInt64, {3}}}}, {});
  RefuseRandom(rows, "dropout", {x, {{DType::kInt32, {2}}}}, {});
  RefuseRandom(rows, "dropout", {x, State(1, 2)}, {{"seed", int64_t{1}}});
  RefuseRandom(rows, "dropout", {{{DType::kInt32, {4}}}}, {{"seed", int64_t{1}}});
  RefuseRandom(rows, "dropout", {{{DType::kBool, {4}}}}, {{"seed", int64_t{1}}});
}

void AddRandomRefusals(Rows& rows) {
  const Ints three{3};
  for (const char* op : {"uniform", "normal"}) {
    RefuseRandom(rows, op, {}, {{"shape", three}});
    RefuseRandom(rows, op, {}, {{"shape", three}, {"seed", int64_t{1}}, {"dtype", DType::kInt32}});
    RefuseRandom(rows, op, {}, {{"shape", Ints{-3}}, {"seed", int64_t{1}}});
    RefuseRandom(rows, op, {State(1, 2)}, {{"shape", three}, {"seed", int64_t{1}}});
    RefuseRandom(rows, op, {State(1, 2)}, {{"shape", three}, {"stream", int64_t{1}}});
    RefuseRandom(rows, op, {{{DType::kInt64, {1}}}}, {{"shape", three}});
    RefuseRandom(rows, op, {{{DType::kInt64, {1, 2}}}}, {{"shape", three}});
    RefuseRandom(rows, op, {{{DType::kFloat32, {2}}}}, {{"shape", three}});
  }
  RefuseRandom(rows, "uniform", {},
               {{"shape", three}, {"seed", int64_t{1}}, {"low", 2.0}, {"high", 1.0}});
  RefuseRandom(rows, "normal", {}, {{"shape", three}, {"seed", int64_t{1}}, {"stddev", -1.0}});
}

}  // namespace

void AddRandomRows(Rows& rows) {
  AddFloating(rows, "uniform");
  AddFloating(rows, "normal");
  AddParameters(rows);
  AddRandint(rows);
  AddDropout(rows);
  AddRandomRefusals(rows);
}

}  // namespace tensord::conformance
