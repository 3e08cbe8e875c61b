// Views with any shape, strides and dtype: as_strided, as_strided_scatter, bitcast.
#include <limits>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

struct View {
  Shape x;
  Ints shape, strides;
  int64_t offset = 0;
};

Attributes AttrsOf(const View& view) {
  return {{"shape", view.shape}, {"strides", view.strides}, {"offset", view.offset}};
}

// Returns views whose elements are distinct.
const std::vector<View>& DistinctViews() {
  static const auto* const views =
      new std::vector<View>{{{}, {}, {}},
                            {{7}, {}, {}, 6},
                            {{7}, {7}, {1}},
                            {{7}, {7}, {-1}, 6},
                            {{7}, {3}, {2}, 1},
                            {{7}, {0}, {5}, 90},
                            {{0}, {0, 3}, {1, 1}},
                            {{4, 6}, {24}, {1}},
                            {{4, 6}, {6, 4}, {1, 6}},
                            {{4, 6}, {4}, {7}},
                            {{4, 6}, {2, 3}, {6, 1}, 7},
                            {{4, 6}, {1, 4}, {kHuge, 6}, 5},
                            {{4, 6}, {2, 2}, {-12, -1}, 20},
                            {{2, 3, 4, 5, 2}, {2, 5, 3, 2, 4}, {120, 2, 40, 1, 10}},
                            {{2, 3, 4, 5, 2}, {2, 2, 2}, {-1, 50, 7}, 30},
                            {{64, 48}, {48, 64}, {1, 48}},
                            {{64, 48}, {64, 48}, {48, 1}},
                            {{300, 70}, {100, 35}, {210, -2}, 68}};
  return *views;
}

// Returns views that have elements several times, so they can only be read.
const std::vector<View>& RepeatingViews() {
  static const auto* const views = new std::vector<View>{{{7}, {3, 4}, {0, 1}},
                                                         {{7}, {5, 3}, {1, 1}},
                                                         {{7}, {4}, {0}, 3},
                                                         {{4, 6}, {5, 2, 4}, {0, 12, 1}, 2},
                                                         {{1}, {100, 100}, {0, 0}}};
  return *views;
}

// Returns views that both ops refuse for an input of shape [4, 6].
const std::vector<View>& InvalidViews() {
  static const auto* const views = new std::vector<View>{
      {{4, 6}, {25}, {1}},          {{4, 6}, {2}, {24}},       {{4, 6}, {2}, {-1}},
      {{4, 6}, {1}, {1}, 24},       {{4, 6}, {1}, {1}, -1},    {{4, 6}, {2, 2}, {1}},
      {{4, 6}, {2}, {1, 1}},        {{4, 6}, {-2}, {1}},       {{4, 6}, {2}, {kHuge}},
      {{4, 6}, {3}, {kLowest}, 0},  {{4, 6}, {2}, {1}, kHuge}, {{4, 6}, {2, 2}, {kHuge, kLowest}},
      {{4, 6}, {kHuge, 2}, {0, 1}}, {{4, 6}, {}, {}, kLowest}, {{4, 6}, {}, {}, 24}};
  return *views;
}

Row ReadRow(DType dtype, const View& view) {
  return {"as_strided", {{{dtype, view.x}, Fill::kSpecial}}, AttrsOf(view)};
}

Row WriteRow(DType dtype, const View& view) {
  return {"as_strided_scatter",
          {{{dtype, view.x}, Fill::kSpecial}, {{dtype, Shape(view.shape)}, Fill::kWide}},
          AttrsOf(view)};
}

void AddViews(Rows& rows) {
  for (const DType dtype : kAllDTypes) {
    for (const View& view : DistinctViews()) {
      rows.push_back(ReadRow(dtype, view));
      rows.push_back(WriteRow(dtype, view));
    }
    for (const View& view : RepeatingViews()) rows.push_back(ReadRow(dtype, view));
  }
  for (const View& view : RepeatingViews()) Refuse(rows, WriteRow(DType::kFloat32, view));
  const Input x{{DType::kFloat32, {4, 6}}};
  for (const View& view : InvalidViews()) {
    Refuse(rows, ReadRow(DType::kFloat32, view));
    Refuse(rows, {"as_strided_scatter", {x, {{DType::kFloat32, {2}}}}, AttrsOf(view)});
  }
  const Attributes two = AttrsOf({{4, 6}, {2}, {1}});
  Refuse(rows, {"as_strided_scatter", {x, {{DType::kFloat32, {3}}}}, two});
  Refuse(rows, {"as_strided_scatter", {x, {{DType::kInt32, {2}}}}, two});
}

void AddBitcast(Rows& rows) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      for (const Shape& shape : {Shape{16}, Shape{2, 16}, Shape{3, 0}, Shape{2, 1, 3, 1, 16}}) {
        rows.push_back({"bitcast", {{{from, shape}, Fill::kWide}}, {{"dtype", to}}});
      }
      Row scalar{"bitcast", {{{from, {}}, Fill::kWide}}, {{"dtype", to}}};
      if (SizeOf(from) != SizeOf(to)) {
        Refuse(rows, std::move(scalar));
      } else {
        rows.push_back(std::move(scalar));
      }
    }
  }
  Refuse(rows, {"bitcast", {{{DType::kInt8, {8, 3}}}}, {{"dtype", DType::kFloat32}}});
  Refuse(rows, {"bitcast", {{{DType::kFloat32, {2, 1}}}}, {{"dtype", DType::kFloat64}}});
}

}  // namespace

void AddStridedRows(Rows& rows) {
  AddViews(rows);
  AddBitcast(rows);
}

}  // namespace tensord::conformance
