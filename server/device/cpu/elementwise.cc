#include "tensord/server/device/cpu/elementwise.h"

#include <string.h>

#include <algorithm>

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {
namespace {

// A block of float32 or int32 elements.
struct Block {
  alignas(64) char bytes[kBlockElements * 4];
};

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Returns the dtype through which a conversion without a loop of its own goes. At least one of the
// two dtypes has 16 bits.
DType ViaDType(DType from, DType to) {
  return IsHalf(from) || IsHalf(to) ? DType::kFloat32 : DType::kInt32;
}

// Returns whether the elements of both dtypes are the same bits.
bool SharesBits(DType from, DType to) {
  return from == to || (IsInteger(from) && IsInteger(to) && SizeOf(from) == SizeOf(to));
}

// Functions of libm are slower, so fewer elements justify another thread.
double GrainOf(UnaryFunction function) {
  return CostOf(function) == ElementwiseCost::kLibm ? kGrainElements / 4 : kGrainElements;
}

double GrainOf(BinaryFunction function, DType dtype) {
  if (CostOf(function) != ElementwiseCost::kLibm) return kGrainElements;
  if (function == BinaryFunction::kPow && !IsFloating(dtype)) return kGrainElements / 32;
  // fmod() takes up to a microsecond if the operands' exponents are far apart.
  if (function == BinaryFunction::kRemainder || function == BinaryFunction::kFloorDivide) {
    return kGrainElements / 32;
  }
  return kGrainElements / 8;
}

}  // namespace

bool ElementwiseLoop::SetUnary(const Loops& loops, UnaryFunction function, DType dtype) {
  form_ = Is16Bit(dtype) ? Form::kUnary16 : Form::kUnary;
  unary_ = loops.unary[static_cast<int>(function)][Index(ComputeDType(dtype))];
  overwritable_ = 1;
  grain_ = GrainOf(function);
  if (Is16Bit(dtype)) SetConversions(loops, dtype, ComputeDType(dtype), dtype);
  return unary_ != nullptr;
}

bool ElementwiseLoop::SetBinary(const Loops& loops, BinaryFunction function, DType dtype) {
  const BinaryLoop(&by_dtype)[kDTypeCount] = loops.binary[static_cast<int>(function)];
  const bool widens = Is16Bit(dtype) && by_dtype[Index(dtype)] == nullptr;
  form_ = widens ? Form::kBinary16 : Form::kBinary;
  inputs_ = 2;
  binary_ = by_dtype[Index(widens ? ComputeDType(dtype) : dtype)];
  overwritable_ = IsComparison(function) && SizeOf(dtype) != 1 ? 0 : 3;
  grain_ = GrainOf(function, dtype);
  if (widens) {
    SetConversions(loops, dtype, ComputeDType(dtype), dtype);
    if (IsComparison(function)) narrow_ = nullptr;
  }
  return binary_ != nullptr;
}

void ElementwiseLoop::SetCast(const Loops& loops, DType from, DType to) {
  cast_ = loops.cast[Index(from)][Index(to)];
  form_ = SharesBits(from, to) ? Form::kCopy : cast_ != nullptr ? Form::kCast : Form::kCast16;
  from_size_ = static_cast<uint8_t>(SizeOf(from));
  to_size_ = static_cast<uint8_t>(SizeOf(to));
  grain_ = kGrainElements;
  if (form_ == Form::kCast16) SetConversions(loops, from, ViaDType(from, to), to);
}

void ElementwiseLoop::SetConversions(const Loops& loops, DType from, DType via, DType to) {
  widen_ = loops.cast[Index(from)][Index(via)];
  narrow_ = loops.cast[Index(via)][Index(to)];
}

std::optional<ElementwiseLoop> ElementwiseLoop::Find(const Loops& loops, const OpSchema& schema,
                                                     const Attributes& attrs,
                                                     absl::Span<const DType> inputs, DType output) {
  const std::optional<ElementwiseFunction> function = FunctionOf(schema, attrs);
  if (!function.has_value()) return std::nullopt;
  return Find(loops, *function, inputs, output);
}

std::optional<ElementwiseLoop> ElementwiseLoop::Find(const Loops& loops,
                                                     ElementwiseFunction function,
                                                     absl::Span<const DType> inputs, DType output) {
  ElementwiseLoop loop;
  for (const DType dtype : inputs) {
    if (!IsValid(dtype)) return std::nullopt;
  }
  if (!IsValid(output)) return std::nullopt;
  const auto all_are = [inputs](size_t count, DType dtype) {
    return inputs.size() == count &&
           std::all_of(inputs.begin(), inputs.end(), [dtype](DType d) { return d == dtype; });
  };
  switch (function.kind) {
    case ElementwiseFunction::Kind::kUnary:
      if (!all_are(1, output) || !loop.SetUnary(loops, function.unary(), output)) {
        return std::nullopt;
      }
      return loop;
    case ElementwiseFunction::Kind::kBinary: {
      const BinaryFunction binary = function.binary();
      if (inputs.size() != 2 || !all_are(2, inputs[0])) return std::nullopt;
      if (output != (IsComparison(binary) ? DType::kBool : inputs[0])) return std::nullopt;
      if (!loop.SetBinary(loops, binary, inputs[0])) return std::nullopt;
      return loop;
    }
    case ElementwiseFunction::Kind::kWhere:
      if (inputs.size() != 3 || inputs[0] != DType::kBool) return std::nullopt;
      if (inputs[1] != output || inputs[2] != output) return std::nullopt;
      loop.form_ = Form::kWhere;
      loop.inputs_ = 3;
      loop.where_ = loops.where[SizeIndex(SizeOf(output))];
      loop.overwritable_ = SizeOf(output) == 1 ? 7 : 6;
      loop.grain_ = kGrainElements;
      return loop;
    case ElementwiseFunction::Kind::kCast:
      if (inputs.size() != 1) return std::nullopt;
      if (inputs[0] != output && (IsComplex(inputs[0]) || IsComplex(output))) return std::nullopt;
      loop.SetCast(loops, inputs[0], output);
      return loop;
  }
  return std::nullopt;
}

void ElementwiseLoop::RunOther(const void* const* x, const int* step, void* y, int64_t n) const {
  switch (form_) {
    case Form::kUnary:
    case Form::kBinary:
      break;  // in Run()
    case Form::kWhere:
      return where_(x[0], step[0], x[1], step[1], x[2], step[2], y, n);
    case Form::kCast:
      return cast_(x[0], y, n);
    case Form::kCopy:
      memcpy(y, x[0], n * to_size_);
      return;
    case Form::kUnary16:
      return RunUnary16(x[0], y, n);
    case Form::kBinary16:
      return RunBinary16(x, step, y, n);
    case Form::kCast16:
      return RunCast16(x[0], y, n);
  }
}

void ElementwiseLoop::RunUnary16(const void* x, void* y, int64_t n) const {
  Block block;
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(kBlockElements, n - i);
    widen_(Advance(x, i * 2), block.bytes, count);
    unary_(block.bytes, block.bytes, count);
    narrow_(block.bytes, Advance(y, i * 2), count);
  }
}

void ElementwiseLoop::RunBinary16(const void* const* x, const int* step, void* y, int64_t n) const {
  Block a, b, result;
  if (step[0] == 0) widen_(x[0], a.bytes, 1);
  if (step[1] == 0) widen_(x[1], b.bytes, 1);
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(kBlockElements, n - i);
    if (step[0] != 0) widen_(Advance(x[0], i * 2), a.bytes, count);
    if (step[1] != 0) widen_(Advance(x[1], i * 2), b.bytes, count);
    if (narrow_ == nullptr) {
      binary_(a.bytes, step[0], b.bytes, step[1], Advance(y, i), count);
    } else {
      binary_(a.bytes, step[0], b.bytes, step[1], result.bytes, count);
      narrow_(result.bytes, Advance(y, i * 2), count);
    }
  }
}

void ElementwiseLoop::RunCast16(const void* x, void* y, int64_t n) const {
  Block block;
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(kBlockElements, n - i);
    widen_(Advance(x, i * from_size_), block.bytes, count);
    narrow_(block.bytes, Advance(y, i * to_size_), count);
  }
}

void Convert(const Loops& loops, DType from, const void* x, DType to, void* y, int64_t n) {
  // A cast reads only inputs[0]. inputs[1] avoids a warning of GCC 14, which assumes that a binary
  // op may run here.
  const void* const inputs[] = {x, x};
  constexpr int kSteps[] = {1, 1};
  if (n > 0) {
    ElementwiseLoop::Find(loops, ElementwiseFunction{ElementwiseFunction::Kind::kCast}, {from}, to)
        ->Run(inputs, kSteps, y, n);
  }
}

void ConvertNumber(const Loops& loops, const AttrValue& value, DType to, void* y) {
  if (const bool* b = std::get_if<bool>(&value)) {
    const uint8_t byte = *b ? 1 : 0;
    Convert(loops, DType::kBool, &byte, to, y, 1);
  } else if (const int64_t* i = std::get_if<int64_t>(&value)) {
    Convert(loops, DType::kInt64, i, to, y, 1);
  } else if (const double* d = std::get_if<double>(&value)) {
    Convert(loops, DType::kFloat64, d, to, y, 1);
  }
}

void ConvertInParallel(const Context& ctx, DType from, const void* x, DType to, void* y,
                       int64_t n) {
  ctx.team.For(
      n, kGrainElements,
      [&](int64_t begin, int64_t end) {
        Convert(ctx.loops, from, Advance(x, begin * SizeOf(from)), to,
                Advance(y, begin * SizeOf(to)), end - begin);
      },
      kBlockElements);
}

}  // namespace tensord::server::cpu
