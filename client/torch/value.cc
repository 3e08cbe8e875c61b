#include "value.h"

#include <c10/util/SmallVector.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>

#include "guarded.h"

namespace torch_tensord {
namespace {

constexpr size_t kMaxPreparedOps = 8192;
constexpr size_t kMaxOutputs = 8;

TensordNumber ToNumber(const at::Scalar& number) {
  TensordNumber result = {};
  if (number.isBoolean()) {
    result.kind = TENSORD_NUMBER_BOOL;
    result.value.i = number.toBool() ? 1 : 0;
  } else if (number.isFloatingPoint()) {
    result.kind = TENSORD_NUMBER_FLOAT64;
    result.value.f = number.toDouble();
  } else {
    if (number.isComplex()) ToServerDType(number.type());  // throws
    if (number.type() == at::kUInt64) {
      result.kind = TENSORD_NUMBER_UINT64;
      result.value.u = number.toUInt64();
      return result;
    }
    result.kind = TENSORD_NUMBER_INT64;
    result.value.i = number.toLong();
  }
  return result;
}

// Returns the bits of the integer that PyTorch's cast to an integer dtype gives.
uint64_t Wrapped(const at::Scalar& number, at::ScalarType dtype) {
  uint64_t bits;
  if (number.isFloatingPoint()) {
    // Outside of int64's range, the processor's instruction gives the smallest integer.
    constexpr double kLimit = 9223372036854775808.0;
    const double value = number.toDouble();
    const bool fits = value >= -kLimit && value < kLimit;
    bits = static_cast<uint64_t>(fits ? static_cast<int64_t>(value)
                                      : std::numeric_limits<int64_t>::min());
  } else {
    bits =
        number.type() == at::kUInt64 ? number.toUInt64() : static_cast<uint64_t>(number.toLong());
  }
  const size_t unused = 64 - 8 * c10::elementSize(dtype);
  if (!c10::isSignedType(dtype)) return bits << unused >> unused;
  return static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
}

double Largest(at::ScalarType dtype) {
  if (dtype == at::kHalf) return 65504;
  if (dtype == at::kDouble) return std::numeric_limits<double>::max();
  return std::numeric_limits<float>::max();
}

// An op with attributes, which lives while a thread uses it.
struct Prepared {
  explicit Prepared(TensordOp* made) : op(made) {}
  Prepared(const Prepared&) = delete;
  ~Prepared() { Api().release_op(op); }
  TensordOp* const op;
};

using PreparedOps = Guarded<std::unordered_map<std::string, std::shared_ptr<Prepared>>>;
PreparedOps& prepared_ops() {
  static auto* const holder = new PreparedOps;
  return *holder;
}

using Key = c10::SmallVector<char, 256>;

void AppendBytes(Key& key, const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  key.append(bytes, bytes + size);
}

void WriteKey(Key& key, const char* name, Attrs attrs) {
  AppendBytes(key, name, std::strlen(name));
  for (const Attr& each : attrs) {
    const TensordAttr& attr = each.attr;
    key.push_back('\0');
    AppendBytes(key, attr.name, std::strlen(attr.name));
    key.push_back(static_cast<char>(attr.type));
    switch (attr.type) {
      case TENSORD_ATTR_INTS:
        AppendBytes(key, &attr.num_ints, sizeof(attr.num_ints));
        AppendBytes(key, attr.ints, attr.num_ints * sizeof(int64_t));
        break;
      case TENSORD_ATTR_STRING:
        AppendBytes(key, attr.text, std::strlen(attr.text));
        break;
      case TENSORD_ATTR_DTYPE:
        AppendBytes(key, &attr.dtype, sizeof(attr.dtype));
        break;
      default:
        AppendBytes(key, &attr.number.kind, sizeof(attr.number.kind));
        AppendBytes(key, &attr.number.value, sizeof(attr.number.value));
    }
  }
}

// The key of an op in the cache of a thread. In place of texts, it has their addresses: a text is a
// constant, so texts at the same address are equal. This takes less time than a Key.
using Words = c10::SmallVector<uint64_t, 48>;

uint64_t AddressWord(const char* text) { return reinterpret_cast<uintptr_t>(text); }

void WriteWords(Words& words, const char* name, Attrs attrs) {
  words.push_back(AddressWord(name));
  for (const Attr& each : attrs) {
    const TensordAttr& attr = each.attr;
    words.push_back(AddressWord(attr.name));
    words.push_back(static_cast<uint64_t>(attr.type));
    switch (attr.type) {
      case TENSORD_ATTR_INTS:
        words.push_back(attr.num_ints);
        words.append(attr.ints, attr.ints + attr.num_ints);
        break;
      case TENSORD_ATTR_STRING:
        words.push_back(AddressWord(attr.text));
        break;
      case TENSORD_ATTR_DTYPE:
        words.push_back(static_cast<uint64_t>(attr.dtype));
        break;
      default:
        words.push_back(static_cast<uint64_t>(attr.number.kind));
        words.push_back(attr.number.value.u);
    }
  }
}

size_t HashOf(const Words& words) {
  uint64_t hash = words.size();
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;  // 2^64 divided by the golden ratio
    hash ^= hash >> 32;
  }
  return hash;
}

// A cache of a thread, so that an op that is repeated needs no lock.
struct Recent {
  Words words;
  std::shared_ptr<Prepared> op;
};
constexpr size_t kRecentOps = 256;

std::shared_ptr<Prepared> FindOrPrepare(std::string key, const char* name, Attrs attrs) {
  {
    const auto known = prepared_ops().Lock();
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
  }
  c10::SmallVector<TensordAttr, 8> given;
  for (const Attr& each : attrs) given.push_back(each.attr);
  TensordOp* op = nullptr;
  TensordError* error = nullptr;
  const int code = Api().prepare(name, given.data(), given.size(), &op, &error);
  constexpr int kNotFound = 5;
  if (code == kNotFound) {
    Api().release_error(error);
    C10_THROW_ERROR(NotImplementedError,
                    c10::str("this version of the package tensord has no op ", name));
  }
  Check(code, error, name);
  auto made = std::make_shared<Prepared>(op);
  const auto known = prepared_ops().Lock();
  if (known->size() >= kMaxPreparedOps) known->clear();
  known->emplace(std::move(key), made);
  return made;
}

// The result is valid until this thread prepares another op.
const TensordOp* PrepareOp(const char* name, Attrs attrs) {
  thread_local std::unique_ptr<Recent[]> recent(new Recent[kRecentOps]);
  Words words;
  WriteWords(words, name, attrs);
  Recent& entry = recent[HashOf(words) % kRecentOps];
  if (C10_UNLIKELY(entry.op == nullptr || entry.words != words)) {
    Key key;
    WriteKey(key, name, attrs);
    entry.op = FindOrPrepare(std::string(key.data(), key.size()), name, attrs);
    entry.words = words;
  }
  return entry.op->op;
}

// Throws the error of a push. If the inputs are on several devices, throws PyTorch's error for
// that.
void ThrowPushError(int code, TensordError* error, const char* name, c10::ArrayRef<In> inputs) {
  constexpr int kInvalidArgument = 3;
  c10::DeviceIndex first = -1;
  for (const In& input : inputs) {
    if (code != kInvalidArgument || input.is_number()) continue;
    const c10::DeviceIndex device = DeviceOf(input.input.tensor);
    if (first < 0) first = device;
    if (device < 0 || device == first) continue;
    Api().release_error(error);
    ThrowOtherDevice(name, {at::kPrivateUse1, first}, {at::kPrivateUse1, device});
  }
  ThrowError(code, error, name);
}

}  // namespace

void ThrowOtherDevice(const char* name, at::Device wanted, at::Device found) {
  TORCH_CHECK(false, name, name[0] == '\0' ? "" : ": ",
              "Expected all tensors to be on the same device, but found at least two devices, ",
              wanted, " and ", found, "! For the tensor on ", found, ", copy it with x.to('",
              wanted, "')");
}

In::In(const at::Scalar& number, at::ScalarType dtype) : input{nullptr, ToServerDType(dtype), {}} {
  if (number.isComplex()) ToServerDType(number.type());  // throws
  if (at::isFloatingType(dtype)) {
    double value = number.toDouble();
    if (std::isfinite(value) && std::abs(value) > Largest(dtype)) {
      value = std::copysign(std::numeric_limits<double>::infinity(), value);
    }
    input.number.kind = TENSORD_NUMBER_FLOAT64;
    input.number.value.f = value;
  } else if (dtype == at::kBool) {
    input.number.kind = TENSORD_NUMBER_BOOL;
    input.number.value.i = number.toBool() ? 1 : 0;
  } else {
    input.number.kind = dtype == at::kUInt64 ? TENSORD_NUMBER_UINT64 : TENSORD_NUMBER_INT64;
    input.number.value.u = Wrapped(number, dtype);
  }
}

In Checked(const at::Scalar& number, at::ScalarType dtype) {
  if (number.isComplex()) return In(number, dtype);  // throws
  switch (dtype) {
#define TENSORD_CHECK(type, name)         \
  case at::ScalarType::name:              \
    static_cast<void>(number.to<type>()); \
    break;
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, TENSORD_CHECK)
    TENSORD_CHECK(uint16_t, UInt16)
    TENSORD_CHECK(uint32_t, UInt32)
    TENSORD_CHECK(uint64_t, UInt64)
#undef TENSORD_CHECK
    default:
      break;
  }
  return In(number, dtype);
}

bool IsExact(const In& number, at::ScalarType dtype) {
  const double value = number.input.number.value.f;
  if (std::isnan(value)) return true;
  if (dtype == at::kHalf) return static_cast<double>(c10::Half(static_cast<float>(value))) == value;
  if (dtype != at::kBFloat16) return true;
  return static_cast<double>(c10::BFloat16(static_cast<float>(value))) == value;
}

const TensordOp* ServerOp::Prepare() {
  TensordOp* made = nullptr;
  TensordError* error = nullptr;
  Check(Api().prepare(name_, nullptr, 0, &made, &error), error, name_);
  const TensordOp* expected = nullptr;
  if (op_.compare_exchange_strong(expected, made)) return made;
  Api().release_op(made);
  return expected;
}

Attr::Attr(const char* name, int64_t value) {
  attr.name = name;
  attr.number = ToNumber(value);
}
Attr::Attr(const char* name, double value) {
  attr.name = name;
  attr.number = ToNumber(value);
}
Attr::Attr(const char* name, const at::Scalar& value) {
  attr.name = name;
  attr.number = ToNumber(value);
}
Attr::Attr(const char* name, at::IntArrayRef value) {
  attr.name = name;
  attr.type = TENSORD_ATTR_INTS;
  attr.ints = value.data();
  attr.num_ints = value.size();
}
Attr::Attr(const char* name, const char* value) {
  attr.name = name;
  attr.type = TENSORD_ATTR_STRING;
  attr.text = value;
}
Attr::Attr(const char* name, at::ScalarType value) {
  attr.name = name;
  attr.type = TENSORD_ATTR_DTYPE;
  attr.dtype = ToServerDType(value);
}

Value Push(const TensordOp* op, const char* name, c10::ArrayRef<In> inputs, uint32_t donated) {
  static_assert(sizeof(In) == sizeof(TensordInput));
  TensordOutput output;
  size_t num_outputs = 1;
  TensordError* error = nullptr;
  const int code =
      Api().push(op, &inputs.data()->input, inputs.size(), donated, &output, &num_outputs, &error);
  if (C10_UNLIKELY(code != 0)) ThrowPushError(code, error, name, inputs);
  return c10::make_intrusive<Handle>(output);
}

Value Push(const char* name, std::initializer_list<In> inputs, Attrs attrs, uint32_t donated) {
  return Push(PrepareOp(name, attrs), name, inputs, donated);
}

std::vector<Value> PushAll(const char* name, c10::ArrayRef<In> inputs, Attrs attrs,
                           uint32_t donated) {
  const TensordOp* const prepared = PrepareOp(name, attrs);
  TensordOutput outputs[kMaxOutputs];
  size_t num_outputs = kMaxOutputs;
  TensordError* error = nullptr;
  const int code = Api().push(prepared, &inputs.data()->input, inputs.size(), donated, outputs,
                              &num_outputs, &error);
  if (C10_UNLIKELY(code != 0)) ThrowPushError(code, error, name, inputs);
  std::vector<Value> values;
  for (size_t i = 0; i < num_outputs; ++i)
    values.push_back(c10::make_intrusive<Handle>(outputs[i]));
  return values;
}

Value Create(const char* name, c10::DeviceIndex device, Attrs attrs) {
  const TensordOp* const prepared = PrepareOp(name, attrs);
  TensordOutput output;
  TensordError* error = nullptr;
  Check(Api().push_creation(prepared, DeviceAt(device), &output, &error), error, name);
  return c10::make_intrusive<Handle>(output);
}

namespace {

// Casts to int32 or int64. For NaN and numbers out of the range, returns the smallest integer, as
// PyTorch does on x86. The server's cast returns 0 for NaN, and the nearest integer.
Value CastToSigned(const Value& x, at::ScalarType dtype) {
  const bool is_long = dtype == at::kLong;
  const double limit = is_long ? 0x1p63 : 0x1p31;
  const int64_t smallest =
      is_long ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return Where(Push(server_op<"lt">, {x, Number(limit, x)}), Push("cast", {x}, {{"dtype", dtype}}),
               In(smallest, dtype));
}

// Casts floating numbers to integers as PyTorch does on the CPU. Integers of 8 and 16 bits have the
// last bits of an int32. uint32 has the last bits of an int64. Below 2⁶³, uint64 has them, too.
Value CastToInteger(const Value& x, at::ScalarType dtype) {
  const size_t size = c10::elementSize(dtype);
  const bool fits_int32 = size < sizeof(int32_t) || dtype == at::kInt;
  const auto cast = [&](const Value& y) {
    return Cast(CastToSigned(y, fits_int32 ? at::kInt : at::kLong), dtype);
  };
  if (dtype != at::kUInt64) return cast(x);
  // The upper half of uint64 is out of the range of int64.
  const In limit = Number(0x1p63, x);
  const Value upper = Push(server_op<"bitwise_xor">, {cast(Push(server_op<"sub">, {x, limit})),
                                                      In(at::Scalar(uint64_t{1} << 63), dtype)});
  return Where(Push(server_op<"ge">, {x, limit}), upper, cast(x));
}

}  // namespace

Value Cast(const Value& x, at::ScalarType dtype) {
  if (x->dtype() == dtype) return x;
  if (at::isIntegralType(dtype, false) && at::isFloatingType(x->dtype()))
    return CastToInteger(x, dtype);
  return Push("cast", {x}, {{"dtype", dtype}});
}
Value Bitcast(const Value& x, at::ScalarType dtype) {
  return x->dtype() == dtype ? x : Push("bitcast", {x}, {{"dtype", dtype}});
}
Value Reshape(const Value& x, at::IntArrayRef sizes) {
  return x->sizes().equals(sizes) ? x : Push("reshape", {x}, {{"shape", sizes}});
}
Value BroadcastTo(const Value& x, at::IntArrayRef sizes) {
  return x->sizes().equals(sizes) ? x : Push("broadcast_to", {x}, {{"shape", sizes}});
}
Value Permute(const Value& x, at::IntArrayRef axes) {
  return Push("permute", {x}, {{"axes", axes}});
}
Value Transpose(const Value& x, int64_t a, int64_t b) {
  if (x->dim() < 2) return x;
  c10::SmallVector<int64_t, 6> axes;
  for (int64_t i = 0; i < x->dim(); ++i) axes.push_back(i);
  if (a < 0) a += x->dim();
  if (b < 0) b += x->dim();
  std::swap(axes[a], axes[b]);
  return Permute(x, axes);
}
Value Narrow(const Value& x, int64_t axis, int64_t start, int64_t stop) {
  if (start == 0 && stop == x->sizes()[axis]) return x;
  const int64_t starts[] = {start}, stops[] = {stop}, axes[] = {axis};
  return Push("slice", {x},
              {{"starts", at::IntArrayRef(starts)},
               {"stops", at::IntArrayRef(stops)},
               {"axes", at::IntArrayRef(axes)}});
}
Value Concat(c10::ArrayRef<Value> parts, int64_t axis) {
  constexpr size_t kMaxParts = 32;  // inputs of a push
  if (parts.size() == 1) return parts[0];
  if (parts.size() > kMaxParts) {
    std::vector<Value> joined;
    for (size_t i = 0; i < parts.size(); i += kMaxParts) {
      joined.push_back(Concat(parts.slice(i, std::min(kMaxParts, parts.size() - i)), axis));
    }
    return Concat(joined, axis);
  }
  c10::SmallVector<In, 8> inputs;
  for (const Value& part : parts) inputs.emplace_back(part);
  return PushAll("concat", inputs, {{"axis", axis}})[0];
}
Value AsStrided(const Value& x, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  return Push("as_strided", {x}, {{"shape", sizes}, {"strides", strides}, {"offset", offset}});
}
Value Zeros(c10::DeviceIndex device, at::IntArrayRef sizes, at::ScalarType dtype) {
  return Create("zeros", device, {{"shape", sizes}, {"dtype", dtype}});
}
Value Full(c10::DeviceIndex device, at::IntArrayRef sizes, const In& number) {
  const TensordNumber& given = number.input.number;
  at::Scalar value = given.value.f;
  if (given.kind == TENSORD_NUMBER_BOOL) value = given.value.i != 0;
  if (given.kind == TENSORD_NUMBER_INT64) value = given.value.i;
  if (given.kind == TENSORD_NUMBER_UINT64) {
    // An attribute has no number above the range of int64.
    const auto bits = static_cast<int64_t>(given.value.u);
    if (bits < 0) return Bitcast(Full(device, sizes, In(bits, at::kLong)), at::kUInt64);
    value = bits;
  }
  return Create("full", device, {{"shape", sizes}, {"value", value}, {"dtype", number.dtype()}});
}
Value Arange(c10::DeviceIndex device, int64_t stop) {
  return Create("arange", device, {{"stop", at::Scalar(stop)}, {"dtype", at::kLong}});
}
Value Reduce(const char* name, const Value& x, at::IntArrayRef axes, bool keepdims) {
  return Push(name, {x}, {{"axes", axes}, {"keepdims", keepdims}});
}
Value Matmul(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
  if (!transpose_a && !transpose_b) return Push(server_op<"matmul">, {a, b});
  return Push("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

}  // namespace torch_tensord
