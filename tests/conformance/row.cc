#include "tensord/tests/conformance/row.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensord/tests/conformance/reference.h"

namespace tensord::conformance {
namespace {

constexpr const char* kFillNames[] = {"plain",   "unit", "positive", "wide",
                                      "special", "ties", "values"};

std::string ToString(const AttrValue& value) {
  struct Visitor {
    std::string operator()(bool b) { return b ? "true" : "false"; }
    std::string operator()(int64_t i) { return absl::StrCat(i); }
    std::string operator()(double f) { return absl::StrFormat("%g", f); }
    std::string operator()(const std::string& s) { return s; }
    std::string operator()(const std::vector<int64_t>& v) {
      return absl::StrCat("[", absl::StrJoin(v, ","), "]");
    }
    std::string operator()(DType dtype) { return std::string(DTypeName(dtype)); }
    std::string operator()(const Bytes& b) { return absl::StrCat(b.data.size(), " bytes"); }
  };
  return std::visit(Visitor(), value);
}

std::string Position(const Shape& shape, int64_t i) {
  std::vector<int64_t> index(shape.rank());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = i % shape.dim(axis);
    i /= shape.dim(axis);
  }
  return absl::StrCat("[", absl::StrJoin(index, ","), "]");
}

// Returns whether the error of an element is within the bound.
bool Agrees(const Bound& bound, DType dtype, double want, double got, double scale) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (bound.exact()) {
    return want == got && (bound.any_zero_sign || std::signbit(want) == std::signbit(got));
  }
  if (want == got) return true;
  if (std::isinf(want)) return false;
  const double tolerance = bound.ulps * UlpOf(dtype, want) +
                           bound.epsilons * ComputeEpsilon(dtype) * scale + bound.absolute;
  if (std::isinf(got)) {
    return bound.may_overflow && std::signbit(want) == std::signbit(got) &&
           std::fabs(want) + tolerance >= LargestOf(dtype);
  }
  return std::fabs(want - got) <= tolerance;
}

// Returns whether the op may copy the bytes of a bool, including bytes other than 0 and 1.
bool KeepsBytes(const std::string& op) {
  constexpr const char* kAliases[] = {"conj", "floor", "ceil", "trunc", "round", "bitcast"};
  for (const char* alias : kAliases) {
    if (op == alias) return true;
  }
  constexpr const char* kMoves[] = {"index",   "gather",     "index_put",
                                    "scatter", "as_strided", "as_strided_scatter"};
  for (const char* move : kMoves) {
    if (op == move) return true;
  }
  return op == "reshape" || op == "permute" || op == "slice" || op == "concat" ||
         op == "broadcast_to" || op == "constant" || op == "cast" || op == "where";
}

}  // namespace

Bound Ulps(DType dtype, double ulps) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return {.ulps = narrow && ulps > 0 ? 1 : ulps};
}

std::string Row::Name() const {
  std::string name = op;
  for (const Input& input : inputs) {
    absl::StrAppend(&name, " ", input.spec.ToString(), ":",
                    kFillNames[static_cast<int>(input.fill)]);
  }
  for (const auto& [attr, value] : attrs) absl::StrAppend(&name, " ", attr, "=", ToString(value));
  return name;
}

Prepared Prepare(const Row& row) {
  Prepared prepared;
  std::vector<Values> widened;
  for (const Input& input : row.inputs) {
    prepared.inputs.push_back(MakeInput(input, 1000 + prepared.inputs.size()));
    widened.push_back(Widen(prepared.inputs.back()));
  }
  if (row.refusal == absl::StatusCode::kOk) {
    prepared.expected = Reference(row.op, row.attrs, widened);
  }
  return prepared;
}

namespace {

std::optional<std::string> MismatchOfOutput(const Row& row, const Bound& bound,
                                            const Values& expected, const HostTensor& got) {
  if (got.spec != expected.spec) {
    return absl::StrCat("is ", got.spec.ToString(), ", not ", expected.spec.ToString());
  }
  if (static_cast<int64_t>(got.bytes.size()) != got.spec.size_bytes()) {
    return absl::StrCat("has ", got.bytes.size(), " bytes");
  }
  if (IsBool(got.spec.dtype) && !KeepsBytes(row.op)) {
    for (uint8_t byte : got.bytes) {
      if (byte > 1) return absl::StrCat("has a bool of byte ", byte);
    }
  }
  const Values values = Widen(got);
  int64_t wrong = 0;
  std::string first;
  for (int64_t i = 0; i < values.size(); ++i) {
    if (!values.floating()) {
      if (values.whole[i] == expected.whole[i]) continue;
      if (wrong++ > 0) continue;
      first = absl::StrCat(values.whole[i], " and not ", expected.whole[i]);
    } else {
      const DType dtype = values.spec.dtype;
      const double want = RoundTo(dtype, expected.real[i]);
      const double scale = expected.scale.empty() ? std::fabs(want) : std::fabs(expected.scale[i]);
      if (IsComplex(dtype) &&
          !Agrees({}, dtype, RoundTo(dtype, expected.imaginary[i]), values.imaginary[i], 0)) {
        if (wrong++ == 0) first = absl::StrCat("at ", i, " the imaginary part differs");
        continue;
      }
      if (Agrees(bound, dtype, want, values.real[i], scale)) continue;
      if (wrong++ > 0) continue;
      first = absl::StrFormat("%.17g and not %.17g, %g ulp off", values.real[i], want,
                              (values.real[i] - want) / UlpOf(dtype, want));
    }
    first = absl::StrCat("at ", Position(values.spec.shape, i), " it is ", first);
  }
  if (wrong == 0) return std::nullopt;
  return absl::StrCat(wrong, " of ", values.size(), " elements are wrong; ", first);
}

}  // namespace

std::optional<std::string> Mismatch(const Row& row, const std::vector<Values>& expected,
                                    const std::vector<HostTensor>& got) {
  if (got.size() != expected.size()) {
    return absl::StrCat("has ", got.size(), " outputs, not ", expected.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const Bound& bound = i < row.bounds.size() ? row.bounds[i] : row.bound;
    const std::optional<std::string> mismatch = MismatchOfOutput(row, bound, expected[i], got[i]);
    if (!mismatch.has_value()) continue;
    return got.size() == 1 ? *mismatch : absl::StrCat("output ", i, ": ", *mismatch);
  }
  return std::nullopt;
}

void Refuse(Rows& rows, Row row) {
  row.refusal = absl::StatusCode::kInvalidArgument;
  rows.push_back(std::move(row));
}

void RefuseSpecs(Rows& rows, const char* op, const std::vector<TensorSpec>& specs,
                 Attributes attrs) {
  Row row{op, {}, std::move(attrs)};
  for (const TensorSpec& spec : specs) row.inputs.push_back({spec});
  Refuse(rows, std::move(row));
}

const Rows& AllRows() {
  static const Rows* const rows = [] {
    auto* made = new Rows;
    AddUnaryRows(*made);
    AddActivationRows(*made);
    AddBinaryRows(*made);
    AddIndexingRows(*made);
    AddAttentionRows(*made);
    AddLossRows(*made);
    AddGroupNormRows(*made);
    AddRecurrentRows(*made);
    AddSmallRows(*made);
    AddSpecialRows(*made);
    AddMatmulRows(*made);
    AddMovementRows(*made);
    AddNetworkRows(*made);
    AddBatchNormRows(*made);
    AddOptimizerRows(*made);
    AddConvRows(*made);
    AddPoolRows(*made);
    AddReductionRows(*made);
    AddVarMeanRows(*made);
    AddProdRows(*made);
    AddCountRows(*made);
    AddScanRows(*made);
    AddShapeRows(*made);
    AddStridedRows(*made);
    AddCreationRows(*made);
    AddSortRows(*made);
    AddRandomRows(*made);
    return made;
  }();
  return *rows;
}

}  // namespace tensord::conformance
