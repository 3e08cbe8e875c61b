#include "tensord/server/device/cuda/fused_source.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server::cuda {
namespace {

constexpr int kMaxInputs = 32;
constexpr int kMaxSteps = 512;

// Returns the name of the storage type of a real dtype in device code.
const char* StorageName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "Bool";
    case DType::kUInt8:
      return "uint8_t";
    case DType::kInt8:
      return "int8_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kFloat16:
      return "Half";
    case DType::kBFloat16:
      return "BFloat16";
    case DType::kFloat32:
      return "float";
    case DType::kInt16:
      return "int16_t";
    case DType::kUInt16:
      return "uint16_t";
    case DType::kUInt32:
      return "uint32_t";
    case DType::kUInt64:
      return "uint64_t";
    default:
      return "double";
  }
}

// Returns the functor of elementwise_math.h. `function` must not be kWhere.
std::string FunctorText(ElementwiseFunction function, DType output) {
  if (function.kind == ElementwiseFunction::Kind::kCast) {
    return absl::StrCat("CastTo<MathOf<", StorageName(output), ">>");
  }
  return std::string(function.kind == ElementwiseFunction::Kind::kUnary
                         ? FunctorName(function.unary())
                         : FunctorName(function.binary()));
}

// Returns the name of a value: "x0" is the element of the first input, "s0" the first step's
// result.
std::string ValueName(int operand) {
  return operand >= 0 ? absl::StrCat("x", operand) : absl::StrCat("s", -operand - 1);
}

// Returns the value of the op `full` as an expression of type double, int64_t or uint8_t. Hexadecimal
// digits are exact.
std::string NumberText(const AttrValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return *b ? "uint8_t{1}" : "uint8_t{0}";
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    // The least int64 has no literal.
    return absl::StrCat("static_cast<int64_t>(", static_cast<uint64_t>(*i), "u)");
  }
  const double number = std::get<double>(value);
  constexpr char kInfinity[] = "(1e300 * 1e300)";
  if (std::isnan(number)) return absl::StrCat("(", kInfinity, " - ", kInfinity, ")");
  if (std::isinf(number)) return absl::StrCat(number < 0 ? "-" : "", kInfinity);
  return absl::StrFormat("%a", number);
}

absl::StatusOr<std::string> StepText(const FusedSpec::Step& step, int number) {
  if (step.operands.empty()) {
    const char* type = StorageName(step.dtype);
    return absl::StrCat("  const ", type, " s", number, " = Apply<CastTo<MathOf<", type, ">>, ",
                        type, ">(", NumberText(*step.attrs->Find("value")), ");\n");
  }
  const std::optional<ElementwiseFunction> function = FunctionOf(*step.schema, *step.attrs);
  if (!function.has_value()) {
    return absl::UnimplementedError(absl::StrCat("cuda: ", step.schema->name, " can't be fused"));
  }
  const char* type = StorageName(step.dtype);
  std::string result = absl::StrCat("  const ", type, " s", number, " = ");
  if (function->kind == ElementwiseFunction::Kind::kWhere) {
    absl::StrAppend(&result, "Load(", ValueName(step.operands[0]), ") ? ",
                    ValueName(step.operands[1]), " : ", ValueName(step.operands[2]), ";\n");
    return result;
  }
  absl::StrAppend(&result, "Apply<", FunctorText(*function, step.dtype), ", ", type, ">(");
  for (size_t i = 0; i < step.operands.size(); ++i) {
    absl::StrAppend(&result, i == 0 ? "" : ", ", ValueName(step.operands[i]));
  }
  absl::StrAppend(&result, ");\n");
  return result;
}

// Joins the texts that `text_of` returns for each input.
template <typename TextOf>
std::string ForInputs(size_t count, const char* separator, TextOf text_of) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : separator, text_of(static_cast<int>(i)));
  }
  return text;
}

// $0 the kernel's parameters for the inputs, $1 Element()'s parameters, $2 its steps, $3 its
// result, $4 the output's type, $5 the width of a pack, $6 the loads of single elements, $7 the
// loads of packs, $8 Element()'s arguments in the loop over packs, $9 its arguments in the loop
// over elements.
constexpr char kKernel[] = R"(#include "tensord/server/device/cuda/kernels/storage.cuh"

using namespace tensord;
using namespace tensord::server;
using namespace tensord::server::cuda;

using Out = $4;
constexpr int kWidth = $5;

__device__ inline Out Element($1) {
$2  return $3;
}

extern "C" __global__ void tensord_fused($0, Out* out, int64_t size, int64_t packs) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
$6  for (int64_t i = first; i < packs; i += step) {
$7    Pack<Out, kWidth> y;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) y.value[j] = Element($8);
    reinterpret_cast<Pack<Out, kWidth>*>(out)[i] = y;
  }
  for (int64_t i = packs * kWidth + first; i < size; i += step) out[i] = Element($9);
}
)";

absl::Status Check(const FusedSpec& spec) {
  if (spec.inputs.empty() || spec.inputs.size() > kMaxInputs || spec.steps.empty() ||
      spec.steps.size() > kMaxSteps) {
    return absl::UnimplementedError(absl::StrCat("cuda: no fused kernel of ", spec.inputs.size(),
                                                 " inputs and ", spec.steps.size(), " steps"));
  }
  for (const TensorSpec& input : spec.inputs) {
    if (input.num_elements() != spec.output->num_elements() && input.num_elements() != 1) {
      return absl::UnimplementedError("cuda: a fused kernel's inputs don't broadcast by axes");
    }
  }
  for (const FusedSpec::Step& step : spec.steps) {
    if (IsComplex(step.dtype)) {
      return absl::UnimplementedError("cuda: complex elements have no fused kernels");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FusedSource> MakeFusedSource(const FusedSpec& spec) {
  TENSORD_RETURN_IF_ERROR(Check(spec));
  const size_t inputs = spec.inputs.size();
  FusedSource source;
  std::string singles, loads, steps;
  int64_t widest = SizeOf(spec.output->dtype);
  for (size_t i = 0; i < inputs; ++i) {
    const bool single = spec.inputs[i].num_elements() != spec.output->num_elements();
    const char* type = StorageName(spec.inputs[i].dtype);
    source.single.push_back(single);
    if (single) {
      absl::StrAppend(&singles, "  const ", type, " u", i, " = *i", i, ";\n");
    } else {
      widest = std::max(widest, SizeOf(spec.inputs[i].dtype));
      absl::StrAppend(&loads, "    const auto p", i, " = reinterpret_cast<const Pack<", type,
                      ", kWidth>*>(i", i, ")[i];\n");
    }
  }
  for (size_t i = 0; i < spec.steps.size(); ++i) {
    TENSORD_ASSIGN_OR_RETURN(const std::string step, StepText(spec.steps[i], static_cast<int>(i)));
    absl::StrAppend(&steps, step);
  }
  const auto typed = [&spec](const char* form) {
    return [&spec, form](int i) {
      return absl::Substitute(form, StorageName(spec.inputs[i].dtype), i);
    };
  };
  const auto element = [&source](const char* of_many) {
    return [&source, of_many](int i) {
      return absl::Substitute(source.single[i] ? "u$0" : of_many, i);
    };
  };
  source.pack_width = static_cast<int>(16 / widest);
  source.text = absl::Substitute(
      kKernel, ForInputs(inputs, ", ", typed("const $0* i$1")),
      ForInputs(inputs, ", ", typed("$0 x$1")), steps, absl::StrCat("s", spec.steps.size() - 1),
      StorageName(spec.output->dtype), source.pack_width, singles, loads,
      ForInputs(inputs, ", ", element("p$0.value[j]")), ForInputs(inputs, ", ", element("i$0[i]")));
  return source;
}

}  // namespace tensord::server::cuda
