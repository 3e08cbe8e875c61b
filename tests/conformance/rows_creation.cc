// Ops without inputs.
#include <cmath>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Ints = std::vector<int64_t>;
const Ints kCreationShapes[] = {{}, {0}, {1}, {7}, {3, 5}, {2, 0, 3}, {67, 129}, {2, 3, 4, 5, 2}};

void RefuseCreation(Rows& rows, const char* op, Attributes attrs) {
  Refuse(rows, {op, {}, std::move(attrs)});
}

void AddFilled(Rows& rows) {
  for (const char* op : {"zeros", "ones"}) {
    for (const Ints& shape : kCreationShapes) {
      rows.push_back({op, {}, {{"shape", shape}}});
      for (DType dtype : kAllDTypes) rows.push_back({op, {}, {{"shape", shape}, {"dtype", dtype}}});
    }
    RefuseCreation(rows, op, {{"shape", Ints{-1}}});
    RefuseCreation(rows, op, {{"shape", Ints{int64_t{1} << 40, int64_t{1} << 40}}});
    RefuseCreation(rows, op, {{"shape", Ints(33, 1)}});
    RefuseCreation(rows, op, {});
  }
  for (const AttrValue& value : {AttrValue(2.5), AttrValue(int64_t{7}), AttrValue(true),
                                 AttrValue(-0.0), AttrValue(int64_t{0}), AttrValue(100.0)}) {
    for (const Ints& shape : {Ints{}, Ints{0}, Ints{13, 5}}) {
      rows.push_back({"full", {}, {{"shape", shape}, {"value", value}}});
      for (DType dtype : kAllDTypes) {
        rows.push_back({"full", {}, {{"shape", shape}, {"value", value}, {"dtype", dtype}}});
      }
    }
  }
  for (DType dtype : kFloatingDTypes) {
    for (double value : {std::nan(""), double{INFINITY}, -double{INFINITY}, 1e-3, 0.1}) {
      rows.push_back({"full", {}, {{"shape", Ints{5}}, {"value", value}, {"dtype", dtype}}});
    }
  }
  rows.push_back({"full", {}, {{"shape", Ints{3}}, {"value", INT64_MAX}}});
  rows.push_back({"full", {}, {{"shape", Ints{3}}, {"value", INT64_MIN}}});
  for (const AttrValue& value : {AttrValue(INT64_MAX), AttrValue(0x1p63), AttrValue(1e19)}) {
    for (DType dtype : {DType::kUInt64, DType::kFloat64}) {
      rows.push_back({"full", {}, {{"shape", Ints{3}}, {"value", value}, {"dtype", dtype}}});
    }
  }
  for (const auto& [dtype, value] :
       {std::pair(DType::kInt8, AttrValue(int64_t{300})),
        std::pair(DType::kUInt8, AttrValue(int64_t{-1})), std::pair(DType::kInt32, AttrValue(3e9)),
        std::pair(DType::kInt64, AttrValue(std::nan(""))),
        std::pair(DType::kUInt64, AttrValue(int64_t{-1})),
        std::pair(DType::kUInt64, AttrValue(0x1p64)),
        std::pair(DType::kInt16, AttrValue(int64_t{1} << 15)),
        std::pair(DType::kUInt32, AttrValue(0x1p32))}) {
    RefuseCreation(rows, "full", {{"shape", Ints{3}}, {"value", value}, {"dtype", dtype}});
  }
  RefuseCreation(rows, "full", {{"shape", Ints{3}}});
}

void AddRanges(Rows& rows) {
  struct Range {
    AttrValue start, stop, step;
  };
  const auto whole = [](int64_t start, int64_t stop, int64_t step) {
    return Range{start, stop, step};
  };
  const auto real = [](double start, double stop, double step) { return Range{start, stop, step}; };
  for (const Range& r : {whole(0, 5, 1), whole(2, 11, 3), whole(5, 0, -1), whole(5, 0, -2),
                         whole(0, 0, 1), whole(3, 1, 1), whole(0, 100, 7), real(0, 1, 0.1),
                         real(1, 0, -0.25), real(0.5, 5.5, 1), real(0, 0, 0.5)}) {
    const Attributes attrs{{"start", r.start}, {"stop", r.stop}, {"step", r.step}};
    rows.push_back({"arange", {}, attrs});
    for (DType dtype : kAllDTypes) {
      Attributes typed = attrs;
      typed.Set("dtype", dtype);
      rows.push_back({"arange", {}, typed});
      if (IsBool(dtype) || IsComplex(dtype)) {
        rows.back().refusal = absl::StatusCode::kInvalidArgument;
      }
    }
  }
  rows.push_back({"arange", {}, {{"stop", int64_t{9}}}});
  rows.push_back({"arange", {}, {{"stop", 2.5}}});
  rows.push_back({"arange", {}, {{"stop", int64_t{100000}}}});
  rows.push_back({"arange", {}, {{"start", int64_t{2}}, {"stop", 4.5}}});
  rows.push_back({"arange", {}, {{"start", INT64_MAX - 3}, {"stop", INT64_MAX}}});
  RefuseCreation(rows, "arange", {{"stop", int64_t{5}}, {"step", int64_t{0}}});
  RefuseCreation(rows, "arange", {{"stop", 5.0}, {"step", 0.0}});
  RefuseCreation(rows, "arange", {{"stop", double{INFINITY}}});
  RefuseCreation(rows, "arange", {{"stop", int64_t{1} << 50}});
  RefuseCreation(rows, "arange", {{"stop", int64_t{300}}, {"dtype", DType::kUInt8}});
  RefuseCreation(rows, "arange", {});
}

void AddLinspace(Rows& rows) {
  struct Range {
    AttrValue start, stop;
    int64_t count;
    bool endpoint = true;
  };
  // The values of integer dtypes are exact: steps are multiples of powers of 2.
  for (const Range& r : {Range{0.0, 8.0, 5}, Range{int64_t{3}, int64_t{100}, 1}, Range{2.0, 9.0, 0},
                         Range{int64_t{100}, int64_t{0}, 401}, Range{0.0, 7.0, 28, false},
                         Range{1.9, 5.9, 9}, Range{6.0, 0.0, 1, false}}) {
    const Attributes attrs{
        {"start", r.start}, {"stop", r.stop}, {"count", r.count}, {"endpoint", r.endpoint}};
    for (DType dtype : kAllDTypes) {
      Row row{"linspace", {}, attrs, IsFloating(dtype) ? Bound{.ulps = 1, .epsilons = 2} : Bound{}};
      row.attrs.Set("dtype", dtype);
      if (IsBool(dtype) || IsComplex(dtype)) row.refusal = absl::StatusCode::kInvalidArgument;
      rows.push_back(std::move(row));
    }
  }
  for (DType dtype : kFloatingDTypes) {
    for (const Range& r : {Range{-0.1, 0.7, 50}, Range{-1.0, 1.0, 1000}, Range{1e4, -1e4, 9}}) {
      rows.push_back({"linspace",
                      {},
                      {{"start", r.start}, {"stop", r.stop}, {"count", r.count}, {"dtype", dtype}},
                      {.ulps = 1, .epsilons = 2}});
    }
  }
  const auto refuse = [&](AttrValue start, int64_t count, DType dtype) {
    RefuseCreation(
        rows, "linspace",
        {{"start", std::move(start)}, {"stop", 2.0}, {"count", count}, {"dtype", dtype}});
  };
  refuse(1.0, -1, DType::kFloat32);
  refuse(1.0, INT64_MIN, DType::kFloat32);
  refuse(1.0, INT64_MAX, DType::kFloat32);
  refuse(300.0, 3, DType::kInt8);
  refuse(-1.0, 3, DType::kUInt64);
  RefuseCreation(rows, "linspace", {{"start", 1.0}, {"stop", 2.0}});
}

void AddEye(Rows& rows) {
  for (DType dtype : kAllDTypes) {
    for (int64_t n : {0, 1, 5, 33}) {
      rows.push_back({"eye", {}, {{"rows", n}, {"dtype", dtype}}});
      rows.push_back({"eye", {}, {{"rows", n}, {"cols", int64_t{7}}, {"dtype", dtype}}});
    }
  }
  for (DType dtype : {DType::kFloat32, DType::kInt8, DType::kFloat64, DType::kBool}) {
    for (int64_t k : {int64_t{1}, int64_t{-1}, int64_t{3}, int64_t{-4}, int64_t{5}, int64_t{-5},
                      INT64_MAX, INT64_MIN}) {
      for (int64_t cols : {0, 1, 4, 7}) {
        rows.push_back(
            {"eye", {}, {{"rows", int64_t{5}}, {"cols", cols}, {"k", k}, {"dtype", dtype}}});
      }
      rows.push_back({"eye", {}, {{"rows", int64_t{0}}, {"k", k}, {"dtype", dtype}}});
    }
  }
  rows.push_back({"eye", {}, {{"rows", int64_t{9}}, {"cols", int64_t{2}}}});
  rows.push_back({"eye", {}, {{"rows", int64_t{4}}, {"cols", int64_t{0}}}});
  RefuseCreation(rows, "eye", {{"rows", int64_t{-1}}});
  RefuseCreation(rows, "eye", {{"rows", int64_t{3}}, {"cols", int64_t{-2}}});
}

void AddConstants(Rows& rows) {
  for (DType dtype : kAllDTypes) {
    for (const Ints& shape : kCreationShapes) {
      const HostTensor data = MakeInput({{dtype, Shape(shape)}, Fill::kWide}, 5);
      rows.push_back({"constant",
                      {},
                      {{"shape", shape},
                       {"dtype", dtype},
                       {"data", Bytes{std::string(data.bytes.begin(), data.bytes.end())}}}});
    }
  }
  for (size_t size : {0, 7, 9}) {
    RefuseCreation(
        rows, "constant",
        {{"shape", Ints{2}}, {"dtype", DType::kFloat32}, {"data", Bytes{std::string(size, 'x')}}});
  }
}

}  // namespace

void AddCreationRows(Rows& rows) {
  AddFilled(rows);
  AddRanges(rows);
  AddLinspace(rows);
  AddEye(rows);
  AddConstants(rows);
}

}  // namespace tensord::conformance
