// Immutable tensors of the server, and functions that compute new ones. These are the ops of
// common/OPS.md. Each function sends a command, and doesn't wait for the result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "api.h"

namespace torch_tensord {

// The owner of a reference to a tensor of the server.
struct Handle final : c10::intrusive_ptr_target {
  explicit Handle(const TensordOutput& made) : tensor(made.tensor), spec(made.spec) {}
  explicit Handle(TensordTensor* given) : tensor(given) { Api().spec(tensor, &spec); }
  ~Handle() override { Api().release(tensor); }

  at::IntArrayRef sizes() const { return {spec.dims, static_cast<size_t>(spec.rank)}; }
  int64_t dim() const { return spec.rank; }
  at::ScalarType dtype() const { return ToTorchDType(spec.dtype); }
  int64_t numel() const { return c10::multiply_integers(sizes()); }

  TensordTensor* const tensor;
  TensordSpec spec;
};
using Value = c10::intrusive_ptr<Handle>;

// Throws the error of an op whose tensors are on several devices, of which `wanted` is one of ours.
[[noreturn]] void ThrowOtherDevice(const char* name, at::Device wanted, at::Device found);

// An input of an op: a value, or a number of a dtype, which is sent with the op. A number is cast
// to the dtype as PyTorch casts an operand: an integer wraps, and a floating number that exceeds
// the range becomes an infinity.
struct In {
  In(const Value& value) : input{value->tensor, 0, {}} {}  // NOLINT: implicit
  In(const at::Scalar& number, at::ScalarType dtype);
  at::ScalarType dtype() const { return ToTorchDType(input.dtype); }  // of a number
  bool is_number() const { return input.tensor == nullptr; }
  TensordInput input;
};

// Returns a number that the caller of an op gives as a parameter, such as the value of fill_. If
// the dtype doesn't have the number, throws PyTorch's error.
In Checked(const at::Scalar& number, at::ScalarType dtype);
// Returns whether the dtype has this number without rounding it.
bool IsExact(const In& number, at::ScalarType dtype);

// An op of the server without attributes, prepared at its first use.
class ServerOp {
 public:
  constexpr explicit ServerOp(const char* name) : name_(name) {}
  const char* name() const { return name_; }
  const TensordOp* get() {
    const TensordOp* op = op_.load(std::memory_order_acquire);
    return C10_LIKELY(op != nullptr) ? op : Prepare();
  }

 private:
  const TensordOp* Prepare();
  const char* const name_;
  std::atomic<const TensordOp*> op_{nullptr};
};

// The name of an op, as a template argument.
template <size_t kSize>
struct OpName {
  constexpr OpName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
  char text[kSize];
};
// The op without attributes that has this name.
template <OpName kName>
inline ServerOp server_op{kName.text};

// An attribute of an op. Names of ops and attributes, and texts as values, must have static
// storage: the cache of prepared ops compares their addresses.
struct Attr {
  template <typename Bool, std::enable_if_t<std::is_same_v<Bool, bool>, int> = 0>
  Attr(const char* name, Bool value) : Attr(name, at::Scalar(value)) {}
  Attr(const char* name, int64_t value);
  Attr(const char* name, int value) : Attr(name, static_cast<int64_t>(value)) {}
  Attr(const char* name, double value);
  Attr(const char* name, at::IntArrayRef value);
  Attr(const char* name, const char* value);
  Attr(const char* name, at::ScalarType value);
  Attr(const char* name, const at::Scalar& value);
  TensordAttr attr = {};
};
using Attrs = c10::ArrayRef<Attr>;

// Sends an op. `donated` has bit i if the server may overwrite input i.
Value Push(const TensordOp* op, const char* name, c10::ArrayRef<In> inputs, uint32_t donated = 0);
inline Value Push(ServerOp& op, std::initializer_list<In> inputs, uint32_t donated = 0) {
  return Push(op.get(), op.name(), inputs, donated);
}
Value Push(const char* name, std::initializer_list<In> inputs, Attrs attrs, uint32_t donated = 0);
std::vector<Value> PushAll(const char* name, c10::ArrayRef<In> inputs, Attrs attrs,
                           uint32_t donated = 0);
// Sends an op without inputs.
Value Create(const char* name, c10::DeviceIndex device, Attrs attrs);

// ---- ops with attributes

// Casts as PyTorch does on the CPU. A cast from a floating dtype to an integer dtype queues at
// least three ops.
Value Cast(const Value& x, at::ScalarType dtype);
Value Bitcast(const Value& x, at::ScalarType dtype);
Value Reshape(const Value& x, at::IntArrayRef sizes);
Value BroadcastTo(const Value& x, at::IntArrayRef sizes);
Value Permute(const Value& x, at::IntArrayRef axes);
Value Transpose(const Value& x, int64_t a, int64_t b);
// Returns the elements [start, stop) of an axis.
Value Narrow(const Value& x, int64_t axis, int64_t start, int64_t stop);
Value Concat(c10::ArrayRef<Value> parts, int64_t axis);
Value AsStrided(const Value& x, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);
Value Zeros(c10::DeviceIndex device, at::IntArrayRef sizes, at::ScalarType dtype);
Value Full(c10::DeviceIndex device, at::IntArrayRef sizes, const In& number);
inline Value Full(c10::DeviceIndex device, at::IntArrayRef sizes, const at::Scalar& number,
                  at::ScalarType dtype) {
  return Full(device, sizes, In(number, dtype));
}
Value Arange(c10::DeviceIndex device, int64_t stop);
// Reduces by the op `name`: "sum", "mean", "max", …. If `axes` is empty, reduces over all axes.
Value Reduce(const char* name, const Value& x, at::IntArrayRef axes, bool keepdims);
Value Matmul(const Value& a, const Value& b, bool transpose_a = false, bool transpose_b = false);

// ---- numbers as operands

inline In Number(const at::Scalar& number, const Value& like) { return In(number, like->dtype()); }
inline Value Add(const Value& a, const Value& b) { return Push(server_op<"add">, {a, b}); }
inline Value Sub(const Value& a, const Value& b) { return Push(server_op<"sub">, {a, b}); }
inline Value Mul(const Value& a, const Value& b) { return Push(server_op<"mul">, {a, b}); }
inline Value Div(const Value& a, const Value& b) { return Push(server_op<"div">, {a, b}); }
inline Value Add(const Value& a, const at::Scalar& b) {
  return Push(server_op<"add">, {a, Number(b, a)});
}
inline Value Sub(const Value& a, const at::Scalar& b) {
  return Push(server_op<"sub">, {a, Number(b, a)});
}
inline Value Mul(const Value& a, const at::Scalar& b) {
  return Push(server_op<"mul">, {a, Number(b, a)});
}
inline Value Div(const Value& a, const at::Scalar& b) {
  return Push(server_op<"div">, {a, Number(b, a)});
}
inline Value Where(const Value& condition, const In& a, const In& b) {
  return Push(server_op<"where">, {condition, a, b});
}

}  // namespace torch_tensord
