// Ops without inputs: constants and ranges.
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tensord/common/dtype_limits.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Truncates toward zero. Returns nullopt if the result doesn't fit the dtype, or for NaN. The
// result is an int, or a float if it is too large for int64.
std::optional<AttrValue> ToInteger(DType dtype, double value) {
  const double truncated = std::trunc(value);
  if (truncated >= -0x1p63 && truncated < 0x1p63) {
    const auto integer = static_cast<int64_t>(truncated);
    return FitsInteger(dtype, integer) ? std::optional<AttrValue>(integer) : std::nullopt;
  }
  const bool fits = dtype == DType::kUInt64 && truncated >= 0x1p63 && truncated < 0x1p64;
  return fits ? std::optional<AttrValue>(truncated) : std::nullopt;
}

double AsDouble(const AttrValue& scalar) {
  if (const bool* b = std::get_if<bool>(&scalar)) return *b ? 1.0 : 0.0;
  if (const int64_t* i = std::get_if<int64_t>(&scalar)) return static_cast<double>(*i);
  return std::get<double>(scalar);
}

// Infers zeros and ones. It is also the last step for constant.
absl::Status InferFilled(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ShapeAttr(ctx));
  ctx.AddOutput(ctx.attrs().Type("dtype"), std::move(shape));
  return absl::OkStatus();
}

// Brings a value into normal form (OpPlan). Returns nullopt if it doesn't fit the dtype.
std::optional<AttrValue> ConvertScalar(const AttrValue& value, DType dtype) {
  if (IsBool(dtype)) return AttrValue(AsDouble(value) != 0);
  if (IsInteger(dtype)) {
    const int64_t* integer = std::get_if<int64_t>(&value);
    if (integer == nullptr) return ToInteger(dtype, AsDouble(value));
    return FitsInteger(dtype, *integer) ? std::optional(value) : std::nullopt;
  }
  const double real = AsDouble(value);
  return FitsFloating(dtype, real) ? std::optional(AttrValue(real)) : std::nullopt;
}

absl::Status InferFull(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ShapeAttr(ctx));
  const AttrValue value = *ctx.attrs().Find("value");
  DType dtype = ctx.attrs().Type("dtype");
  if (dtype == DType::kUnspecified) {
    dtype = std::holds_alternative<bool>(value)      ? DType::kBool
            : std::holds_alternative<int64_t>(value) ? DType::kInt64
                                                     : DType::kFloat32;
  }
  std::optional<AttrValue> converted = ConvertScalar(value, dtype);
  if (!converted.has_value()) {
    return ctx.Error(absl::StrCat("value ", ForMessage(value), " doesn't fit ",
                                  DescribeRange(dtype), "; name a wider dtype"));
  }
  ctx.SetAttr("value", *std::move(converted));
  ctx.SetAttr("dtype", dtype);
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status LengthError(const InferenceContext& ctx, double length) {
  return ctx.Error(
      absl::StrCat("has about ", length, " elements, and the limit is ", kMaxElements, " (2^48)"));
}

absl::Status LastValueError(const InferenceContext& ctx, const AttrValue& value, DType dtype) {
  return ctx.Error(absl::StrCat("reaches ", ForMessage(value), ", which doesn't fit ",
                                DescribeRange(dtype), "; name a wider dtype"));
}

absl::StatusOr<int64_t> IntegerLength(const InferenceContext& ctx, DType dtype, int64_t start,
                                      int64_t stop, int64_t step) {
  if (step == 0) return ctx.Error("step must not be 0");
  using Wide = __int128;  // differences of 64-bit values need 65 bits
  const Wide span = step > 0 ? Wide{stop} - start : Wide{start} - stop;
  if (span <= 0) return 0;
  const Wide stride = step > 0 ? Wide{step} : -Wide{step};
  const Wide length = (span + stride - 1) / stride;
  if (length > kMaxElements) return LengthError(ctx, static_cast<double>(length));
  const Wide offset = (length - 1) * stride;
  if (offset > std::numeric_limits<int64_t>::max()) {
    return ctx.Error("first and last value are 2^63 or more apart");
  }
  const auto last = static_cast<int64_t>(start + (step > 0 ? offset : -offset));
  for (int64_t value : {start, last}) {
    if (!FitsInteger(dtype, value)) return LastValueError(ctx, value, dtype);
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<int64_t> RealLength(const InferenceContext& ctx, DType dtype, double start,
                                   double stop, double step) {
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step)) {
    return ctx.Error(absl::StrCat("start, stop and step must be finite, and are ", start, ", ",
                                  stop, " and ", step));
  }
  if (step == 0) return ctx.Error("step must not be 0");
  const double length = std::ceil((stop - start) / step);
  if (length <= 0) return 0;
  if (length > static_cast<double>(kMaxElements)) return LengthError(ctx, length);
  if (IsInteger(dtype)) {
    for (double value : {start, start + (length - 1) * step}) {
      if (!ToInteger(dtype, value).has_value()) return LastValueError(ctx, value, dtype);
    }
  }
  return static_cast<int64_t>(length);
}

// In normal form, start, stop and step are ints if all three were given as ints and the dtype is an
// integer dtype. Otherwise they are floats.
absl::Status InferArange(InferenceContext& ctx) {
  constexpr const char* kNames[] = {"start", "stop", "step"};
  AttrValue values[3];
  bool all_ints = true;
  for (int i = 0; i < 3; ++i) {
    values[i] = *ctx.attrs().Find(kNames[i]);
    all_ints = all_ints && std::holds_alternative<int64_t>(values[i]);
    if (std::holds_alternative<bool>(values[i])) {
      return ctx.Error(absl::StrCat(kNames[i], " must be an int or a float, not a bool"));
    }
  }
  DType dtype = ctx.attrs().Type("dtype");
  if (dtype == DType::kUnspecified) dtype = all_ints ? DType::kInt64 : DType::kFloat32;
  TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, dtype));
  int64_t length = 0;
  if (all_ints && IsInteger(dtype)) {
    TENSORD_ASSIGN_OR_RETURN(
        length, IntegerLength(ctx, dtype, std::get<int64_t>(values[0]),
                              std::get<int64_t>(values[1]), std::get<int64_t>(values[2])));
  } else {
    for (int i = 0; i < 3; ++i) ctx.SetAttr(kNames[i], AsDouble(values[i]));
    TENSORD_ASSIGN_OR_RETURN(length, RealLength(ctx, dtype, AsDouble(values[0]),
                                                AsDouble(values[1]), AsDouble(values[2])));
  }
  ctx.SetAttr("dtype", dtype);
  ctx.AddOutput(dtype, {length});
  return absl::OkStatus();
}

absl::Status InferEye(InferenceContext& ctx) {
  const int64_t rows = ctx.attrs().Int("rows");
  int64_t columns = ctx.attrs().Int("cols");
  if (columns == -1) columns = rows;
  if (rows < 0 || columns < 0) {
    return ctx.Error(
        absl::StrCat("rows and cols must not be negative, and are ", rows, " and ", columns));
  }
  ctx.SetAttr("cols", columns);
  ctx.AddOutput(ctx.attrs().Type("dtype"), {rows, columns});
  return absl::OkStatus();
}

absl::Status InferConstant(InferenceContext& ctx) {
  TENSORD_ASSIGN_OR_RETURN(Shape shape, ShapeAttr(ctx));
  const TensorSpec spec{ctx.attrs().Type("dtype"), std::move(shape)};
  const auto size_bytes = static_cast<int64_t>(ctx.attrs().Data("data").size());
  if (size_bytes != spec.size_bytes()) {
    return ctx.Error(absl::StrCat(spec.ToString(), " takes ", spec.size_bytes(),
                                  " bytes and data has ", size_bytes));
  }
  return InferFilled(ctx);
}

// An op whose result may be complex.
OpSchema WithComplex(OpSchema schema) {
  schema.takes_complex = true;
  return schema;
}

OpSchema Creation(const char* name, const char* doc, std::vector<AttrDef> attrs,
                  absl::Status (*infer)(InferenceContext&), OpCost cost = OpCost::kCompute) {
  return {name, "() -> shape", doc, 0, 0, std::move(attrs), infer, cost};
}

AttrDef ShapeDef() { return RequiredAttr("shape", AttrType::kInts, "shape of the result"); }

AttrDef DTypeDef() {
  return OptionalAttr("dtype", AttrType::kDType, DType::kFloat32, "dtype of the result");
}

}  // namespace

void AppendCreationOps(std::vector<OpSchema>& ops) {
  ops.push_back(WithComplex(Creation("zeros", "A tensor of zeros.", {ShapeDef(), DTypeDef()},
                                     InferFilled, OpCost::kCopy)));
  ops.push_back(WithComplex(
      Creation("ones", "A tensor of ones.", {ShapeDef(), DTypeDef()}, InferFilled, OpCost::kCopy)));
  ops.push_back(WithComplex(Creation(
      "full", "A tensor of one value; an integer dtype truncates a fraction toward zero.",
      {ShapeDef(), RequiredAttr("value", AttrType::kScalar, "the value, within the dtype's range"),
       OptionalAttr("dtype", AttrType::kDType, DType::kUnspecified,
                    "unspecified: float32, int64 or bool, by the value's type")},
      InferFull, OpCost::kCopy)));
  ops.push_back(Creation(
      "arange", "start, start + step, start + 2*step, … below stop.",
      {OptionalAttr("start", AttrType::kScalar, int64_t{0}, "first value, int or float"),
       RequiredAttr("stop", AttrType::kScalar, "the end, excluded, int or float"),
       OptionalAttr("step", AttrType::kScalar, int64_t{1}, "difference of neighbours, not 0"),
       OptionalAttr("dtype", AttrType::kDType, DType::kUnspecified,
                    "unspecified: int64 if all three are ints, otherwise float32")},
      InferArange));
  ops.push_back(WithComplex(Creation(
      "eye", "One at [i, i + k] for each i, zero elsewhere.",
      {RequiredAttr("rows", AttrType::kInt, "number of rows"),
       OptionalAttr("cols", AttrType::kInt, int64_t{-1}, "number of columns; -1: the same as rows"),
       OptionalAttr("k", AttrType::kInt, int64_t{0},
                    "the diagonal: above the main diagonal if positive, below if negative"),
       DTypeDef()},
      InferEye)));
  ops.push_back(WithComplex(
      Creation("constant", "Elements given as bytes, row-major and little-endian.",
               {ShapeDef(), RequiredAttr("dtype", AttrType::kDType, "dtype of the elements"),
                RequiredAttr("data", AttrType::kBytes,
                             "the elements' bytes, exactly as many as shape and dtype need")},
               InferConstant)));
}

}  // namespace tensord
