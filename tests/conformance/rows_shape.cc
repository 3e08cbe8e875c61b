// Ops that move elements: reshape, permute, slice, concat, broadcast_to.
#include <limits>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
constexpr int64_t kBegin = std::numeric_limits<int64_t>::min();

void AddReshape(Rows& rows) {
  struct Case {
    Shape from;
    Ints to;
  };
  const Case cases[] = {{{}, {}},          {{}, {1, 1}},
                        {{6}, {2, 3}},     {{2, 3}, {-1}},
                        {{2, 3}, {3, -1}}, {{4, 6}, {2, -1, 3}},
                        {{0}, {0, 5}},     {{2, 0}, {0}},
                        {{1}, {}},         {{2, 3, 4, 5, 2}, {8, -1}},
                        {{0, 3}, {-1, 3}}, {{67, 129}, {129, 67}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      rows.push_back({"reshape", {{{dtype, c.from}, Fill::kSpecial}}, {{"shape", c.to}}});
    }
  }
  for (const Ints& to : {Ints{4}, Ints{-1, -1}, Ints{-1, 4}, Ints{-2, 3}, Ints{0, -1}}) {
    Refuse(rows, {"reshape", {{{DType::kFloat32, {2, 3}}}}, {{"shape", to}}});
  }
}

void AddPermute(Rows& rows) {
  struct Case {
    Shape shape;
    Ints axes;
  };
  const Case cases[] = {{{}, {}},
                        {{5}, {0}},
                        {{2, 3}, {1, 0}},
                        {{2, 3}, {0, 1}},
                        {{2, 3}, {-1, -2}},
                        {{1, 7}, {1, 0}},
                        {{0, 3}, {1, 0}},
                        {{67, 129}, {1, 0}},
                        {{2, 3, 4}, {2, 0, 1}},
                        {{2, 3, 4}, {0, 2, 1}},
                        {{2, 3, 4}, {2, 1, 0}},
                        {{3, 1, 4}, {1, 2, 0}},
                        {{2, 3, 4, 5, 2}, {4, 2, 0, 3, 1}},
                        {{2, 3, 4, 5, 2}, {0, 1, 3, 2, 4}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      rows.push_back({"permute", {{{dtype, c.shape}, Fill::kWide}}, {{"axes", c.axes}}});
    }
  }
  rows.push_back({"permute", {{{DType::kFloat32, {1000, 1000}}}}, {{"axes", Ints{1, 0}}}});
  for (const Ints& axes : {Ints{0}, Ints{0, 0}, Ints{0, 2}, Ints{1, -1}, Ints{0, 1, 2}}) {
    Refuse(rows, {"permute", {{{DType::kFloat32, {2, 3}}}}, {{"axes", axes}}});
  }
}

void AddSlice(Rows& rows) {
  struct Case {
    Shape shape;
    Ints starts, stops, axes, steps;
  };
  const Case cases[] = {
      {{}, {}, {}, {}, {}},
      {{7}, {2}, {5}, {}, {}},
      {{7}, {-3}, {kEnd}, {}, {}},
      {{7}, {0}, {-2}, {}, {}},
      {{7}, {-100}, {100}, {}, {}},
      {{7}, {kBegin}, {kEnd}, {}, {}},
      {{7}, {5}, {2}, {}, {}},
      {{7}, {7}, {9}, {}, {}},
      {{7}, {0}, {7}, {0}, {2}},
      {{7}, {1}, {7}, {0}, {3}},
      {{7}, {1}, {kEnd}, {0}, {kEnd}},
      {{4, 6}, {1}, {3}, {}, {}},
      {{4, 6}, {1}, {3}, {-1}, {}},
      {{4, 6}, {1, 2}, {4, 6}, {}, {2, 3}},
      {{4, 6}, {2, 0}, {5, 3}, {1, 0}, {2, 1}},
      {{0, 6}, {0, 1}, {3, 4}, {}, {}},
      {{2, 3, 4, 5, 2}, {1, 1}, {3, 5}, {1, 3}, {1, 2}},
      {{2, 3, 4, 5, 2}, {0, 0, -3, 0, 1}, {1, 2, -1, kEnd, 2}, {}, {1, 1, 1, 4, 1}},
      {{67, 129}, {3, 5}, {60, 120}, {}, {1, 7}},
      {{7}, {kEnd}, {kBegin}, {0}, {-1}},
      {{7}, {5}, {1}, {0}, {-2}},
      {{7}, {-1}, {-8}, {0}, {-3}},
      {{7}, {1}, {5}, {0}, {-1}},
      {{7}, {3}, {kBegin}, {0}, {kBegin}},
      {{1}, {kEnd}, {kBegin}, {0}, {-1}},
      {{0}, {kEnd}, {kBegin}, {0}, {-1}},
      {{4, 6}, {kEnd}, {kBegin}, {1}, {-1}},
      {{4, 6}, {kEnd}, {kBegin}, {0}, {-1}},
      {{4, 6}, {kEnd, kEnd}, {kBegin, kBegin}, {}, {-1, -1}},
      {{4, 6}, {3, 1}, {0, 5}, {}, {-1, 2}},
      {{0, 6}, {kEnd, 5}, {kBegin, 1}, {}, {-1, -2}},
      {{67, 129}, {kEnd, kEnd}, {kBegin, kBegin}, {}, {-3, -1}},
      {{2, 3, 4, 5, 2},
       {kEnd, 2, kEnd, 0, kEnd},
       {kBegin, 0, kBegin, 5, kBegin},
       {},
       {-1, -1, -2, 3, -1}},
      {{300, 4}, {kEnd}, {kBegin}, {0}, {-1}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      Attributes attrs{{"starts", c.starts}, {"stops", c.stops}};
      if (!c.axes.empty()) attrs.Set("axes", c.axes);
      if (!c.steps.empty()) attrs.Set("steps", c.steps);
      rows.push_back({"slice", {{{dtype, c.shape}, Fill::kWide}}, attrs});
    }
  }
  const Input x{{DType::kFloat32, {4, 6}}};
  Refuse(rows, {"slice", {x}, {{"starts", Ints{0, 0, 0}}, {"stops", Ints{1, 1, 1}}}});
  Refuse(rows, {"slice", {x}, {{"starts", Ints{0}}, {"stops", Ints{1, 1}}}});
  for (const Attributes& more : {Attributes{{"steps", Ints{0}}}, Attributes{{"axes", Ints{2}}},
                                 Attributes{{"axes", Ints{0, 1}}}}) {
    Attributes attrs{{"starts", Ints{0}}, {"stops", Ints{2}}};
    for (const auto& [name, value] : more) attrs.Set(name, value);
    Refuse(rows, {"slice", {x}, attrs});
  }
}

void AddConcat(Rows& rows) {
  struct Case {
    std::vector<Shape> shapes;
    int64_t axis;
  };
  const Case cases[] = {{{{3}}, 0},
                        {{{3}, {4}}, 0},
                        {{{0}, {4}}, 0},
                        {{{2, 3}, {1, 3}}, 0},
                        {{{2, 3}, {2, 4}, {2, 1}}, 1},
                        {{{2, 3}, {2, 4}}, -1},
                        {{{2, 0}, {2, 0}}, 1},
                        {{{2, 3, 4}, {2, 5, 4}}, 1},
                        {{{2, 1, 2, 3, 2}, {2, 1, 2, 1, 2}}, 3},
                        {{{33, 65}, {33, 64}}, 1},
                        {{{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}}, 0}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      Row row{"concat", {}, {{"axis", c.axis}}};
      for (const Shape& shape : c.shapes) row.inputs.push_back({{dtype, shape}, Fill::kWide});
      rows.push_back(row);
    }
  }
  for (const auto& [a, b] :
       {std::pair(DType::kFloat16, DType::kFloat32), std::pair(DType::kUInt8, DType::kInt8),
        std::pair(DType::kInt64, DType::kInt32), std::pair(DType::kBFloat16, DType::kFloat16),
        std::pair(DType::kInt16, DType::kUInt16), std::pair(DType::kUInt32, DType::kUInt64)}) {
    rows.push_back({"concat", {{{a, {2, 3}}}, {{b, {2, 2}}}}, {{"axis", int64_t{1}}}});
    rows.push_back({"concat", {{{b, {2, 3}}}, {{a, {4, 3}}}}});
  }
  constexpr DType kF32 = DType::kFloat32;
  Refuse(rows, {"concat", {{{kF32, {2, 3}}}, {{kF32, {2, 4}}}}});
  Refuse(rows, {"concat", {{{kF32, {2, 3}}}, {{kF32, {3}}}}});
  Refuse(rows, {"concat", {{{kF32, {2}}}, {{kF32, {3}}}}, {{"axis", int64_t{1}}}});
  Refuse(rows, {"concat", {{{kF32, {}}}, {{kF32, {}}}}});
  Refuse(rows, {"concat", {{{kF32, {2}}}, {{DType::kInt32, {2}}}}});
  Refuse(rows, {"concat", {{{DType::kUInt64, {2}}}, {{DType::kInt64, {2}}}}});
  Refuse(rows, {"concat", {{{DType::kComplex64, {2}}}, {{DType::kComplex128, {2}}}}});
}

void AddBroadcastTo(Rows& rows) {
  struct Case {
    Shape from;
    Ints to;
  };
  const Case cases[] = {{{}, {}},
                        {{}, {3}},
                        {{}, {2, 0}},
                        {{1}, {5}},
                        {{3}, {2, 3}},
                        {{3, 1}, {3, 4}},
                        {{2, 3}, {2, 3}},
                        {{1, 3}, {4, 3}},
                        {{1}, {0}},
                        {{2, 1, 2}, {3, 2, 5, 2}},
                        {{1, 65}, {33, 65}},
                        {{33, 1}, {33, 65}},
                        {{1, 1, 4, 1, 2}, {2, 3, 4, 2, 2}}};
  for (DType dtype : kAllDTypes) {
    for (const Case& c : cases) {
      rows.push_back({"broadcast_to", {{{dtype, c.from}, Fill::kWide}}, {{"shape", c.to}}});
    }
  }
  for (const Ints& to : {Ints{}, Ints{2}, Ints{3, 1}, Ints{-1, 3}, Ints{0}}) {
    Refuse(rows, {"broadcast_to", {{{DType::kFloat32, {2, 3}}}}, {{"shape", to}}});
  }
}

}  // namespace

void AddShapeRows(Rows& rows) {
  AddReshape(rows);
  AddPermute(rows);
  AddSlice(rows);
  AddConcat(rows);
  AddBroadcastTo(rows);
}

}  // namespace tensord::conformance
