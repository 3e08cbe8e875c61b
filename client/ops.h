// Every op as a function, with PyTorch's and NumPy's names and meanings.
//
// No function waits: it returns a tensor with known dtype, shape and device, and the server
// computes the values later. Errors are in the result's status (tensor.h). Inputs must be on one
// device: no function copies them. Operands broadcast as in NumPy. Their dtypes are promoted within
// a kind (PromoteTypes in common/dtype.h). Bool with integer, or integer with floating, is an
// error: the caller must cast one. All functions are thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise_list.h"
#include "tensord/common/shape.h"

namespace tensord {

// An operand of a binary op: a tensor or a scalar. It holds a pointer to the tensor, so use it only
// as a function's parameter.
//
// A scalar is converted to the tensor's dtype (`float16 * 2.5` is float16). If the scalar is of a
// higher kind, the tensor is cast first, as in PyTorch: an integer or bool tensor with a floating
// scalar gives float32, a bool tensor with an integer scalar gives int64.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor) {}  // NOLINT(google-explicit-constructor)
  // Takes a Scalar or a number.
  template <typename T>
  requires std::convertible_to<T, Scalar> Operand(T value)  // NOLINT(google-explicit-constructor)
      : scalar_(value) {}

  // Returns the tensor. If the operand is a scalar, returns null.
  const Tensor* tensor() const { return tensor_; }
  Scalar scalar() const { return scalar_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_ = false;
};

// Runs an op with one output of the server's registry by its name; the RPC ListOps lists the names.
// The functions below are shorthands. If `inputs` is empty, or the op has several outputs, the
// result has the error INVALID_ARGUMENT.
Tensor RunOp(absl::string_view op, absl::Span<const Tensor> inputs, const Attributes& attrs = {});
// Options of RunOpWithOutputs.
struct RunOptions {
  // Positions of inputs that the op may overwrite, which saves their memory or a copy. If the op is
  // queued, all copies of such a Tensor are donated: their status() is FAILED_PRECONDITION that
  // names the op, and they keep their dtype, shape and device. If inference fails, they stay valid.
  // Reads and copies to other servers that began earlier go on.
  std::vector<int> donate;
};
// Runs an op with any number of outputs. If inference fails, returns its error.
StatusOrVector<Tensor> RunOpWithOutputs(absl::string_view op, absl::Span<const Tensor> inputs,
                                        const Attributes& attrs = {},
                                        const RunOptions& options = {});
// Runs an op without inputs.
Tensor RunOp(const Device& device, absl::string_view op, const Attributes& attrs = {});

// The elementwise functions of one tensor, one for each row of TENSORD_UNARY_OPS. The rows in
// common/ops/elementwise_list.h describe them.
//   Tensor Neg(const Tensor& x);
#define TENSORD_DECLARE(name, Function, typing, cost, doc) Tensor Function(const Tensor& x);
TENSORD_UNARY_OPS(TENSORD_DECLARE)
#undef TENSORD_DECLARE

// The elementwise functions of two operands, one for each row of TENSORD_BINARY_OPS. At least one
// operand must be a tensor.
//   Tensor Add(Operand a, Operand b);
// The results of Eq, Ne, Lt, Le, Gt and Ge are bool.
#define TENSORD_DECLARE(name, Function, typing, cost, doc) Tensor Function(Operand a, Operand b);
TENSORD_BINARY_OPS(TENSORD_DECLARE)
#undef TENSORD_DECLARE

Tensor operator+(const Tensor& a, Operand b);
Tensor operator+(Scalar a, const Tensor& b);
Tensor operator-(const Tensor& a, Operand b);
Tensor operator-(Scalar a, const Tensor& b);
Tensor operator*(const Tensor& a, Operand b);
Tensor operator*(Scalar a, const Tensor& b);
Tensor operator/(const Tensor& a, Operand b);
Tensor operator/(Scalar a, const Tensor& b);
Tensor operator-(const Tensor& x);
// Assigns the result to `a`. Other copies of the former tensor keep its values.
inline Tensor& operator+=(Tensor& a, Operand b) { return a = a + b; }
inline Tensor& operator-=(Tensor& a, Operand b) { return a = a - b; }
inline Tensor& operator*=(Tensor& a, Operand b) { return a = a * b; }
inline Tensor& operator/=(Tensor& a, Operand b) { return a = a / b; }

enum class GeluApproximation { kNone, kTanh };
Tensor Gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::kNone);
// Converts to another dtype. A conversion to an integer truncates toward zero and clamps to the
// range; NaN gives 0. A conversion to bool gives true unless the value is zero.
Tensor Cast(const Tensor& x, DType dtype);
// Computes the complex conjugate. For a real tensor, the result shares its memory.
Tensor Conj(const Tensor& x);
// Computes condition ? x : y for each element, with broadcasting. `condition` must be bool. If x
// and y are both scalars, the result is float32, int64 or bool.
Tensor Where(const Tensor& condition, Operand x, Operand y);

struct MatmulOptions {
  bool transpose_a = false;  // read a with its last two axes exchanged
  bool transpose_b = false;
  bool allow_tf32 = false;  // a GPU may round float32 inputs to 10 bits of mantissa
};
// (…,M,K)·(…,K,N) -> (…,M,N). One-dimensional operands and batches are treated as in torch.matmul.
Tensor Matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

// The function that Linear applies to its result: kNone, or a function of TENSORD_ACTIVATIONS
// (kRelu, kSigmoid, kSilu, kTanh, kGelu, kGeluTanh).
#define TENSORD_ENUMERATOR(name, Function, typing, cost, doc) k##Function,
enum class Activation { kNone, TENSORD_ACTIVATIONS(TENSORD_ENUMERATOR) };
#undef TENSORD_ENUMERATOR
struct LinearOptions {
  Activation activation = Activation::kNone;
  bool allow_tf32 = false;
};
// Returns activation(x·weightᵀ + bias): x (…,in), weight (out,in), bias (out) -> (…,out).
Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const LinearOptions& options = {});
Tensor Linear(const Tensor& x, const Tensor& weight, const LinearOptions& options = {});

struct ReduceOptions {
  std::vector<int64_t> axes = {};  // negative axes count from the end; empty: all axes
  bool keepdims = false;           // keep reduced axes with size 1
};
struct AccumulateOptions {
  std::vector<int64_t> axes = {};  // as in ReduceOptions
  bool keepdims = false;
  // x is cast to this dtype first, and the result has it. If it isn't set, it is int64 for integers
  // and bool, otherwise the dtype of x.
  std::optional<DType> dtype = {};
};
Tensor Sum(const Tensor& x, const AccumulateOptions& options = {});
Tensor Prod(const Tensor& x, const AccumulateOptions& options = {});
// Counts the elements that aren't zero. The result is int64. NaN isn't zero.
Tensor CountNonzero(const Tensor& x, const ReduceOptions& options = {});
Tensor Mean(const Tensor& x, const ReduceOptions& options = {});
struct VarOptions {
  std::vector<int64_t> axes = {};  // as in ReduceOptions
  bool keepdims = false;
  double correction = 1;  // subtracted from the number of elements, by which var is divided
};
struct VarAndMean {
  Tensor var;
  Tensor mean;
};
// Computes the variance and the mean of a floating tensor together:
//   const auto [var, mean] = VarMean(x);
VarAndMean VarMean(const Tensor& x, const VarOptions& options = {});
// Return the variance, and the standard deviation, of a floating tensor.
Tensor Var(const Tensor& x, const VarOptions& options = {});
Tensor Std(const Tensor& x, const VarOptions& options = {});
// Return whether all elements, or any element, are nonzero, as bool. NaN isn't zero. If there are
// no elements, All returns true and Any returns false.
Tensor All(const Tensor& x, const ReduceOptions& options = {});
Tensor Any(const Tensor& x, const ReduceOptions& options = {});
Tensor Max(const Tensor& x, const ReduceOptions& options = {});
Tensor Min(const Tensor& x, const ReduceOptions& options = {});
// Returns log Σ exp(x), computed without overflow. If there are no elements, the result is -inf.
// Integers and bool are converted to float32.
Tensor LogSumExp(const Tensor& x, const ReduceOptions& options = {});
Tensor Argmax(const Tensor& x, const ReduceOptions& options = {});
Tensor Argmin(const Tensor& x, const ReduceOptions& options = {});
struct NormOptions {
  double ord = 2;  // 1, 2, inf, -inf, 0 or any other, as torch.linalg.vector_norm
  std::vector<int64_t> axes = {};
  bool keepdims = false;
};
// Computes the vector norm over `axes`. By default, these are all axes, which gives the Frobenius
// norm of a matrix.
Tensor Norm(const Tensor& x, const NormOptions& options = {});

struct ScanOptions {
  std::optional<DType> dtype = {};  // as in AccumulateOptions; must not be bool
  bool exclusive = false;           // a result doesn't include the element at its own position
  bool reverse = false;             // from the last element to the first
};
// Compute the sums, or products, of the elements up to each one along an axis. The result has the
// shape of x.
Tensor CumSum(const Tensor& x, int64_t axis, const ScanOptions& options = {});
Tensor CumProd(const Tensor& x, int64_t axis, const ScanOptions& options = {});

// Compute the softmax, or its logarithm, along one axis. x must be floating. The result has the
// shape of x.
Tensor Softmax(const Tensor& x, int64_t axis = -1);
Tensor LogSoftmax(const Tensor& x, int64_t axis = -1);

// Gives the elements another shape. One dimension may be -1: it is computed from the others.
Tensor Reshape(const Tensor& x, const Shape& shape);
// Reorders the axes: axis i of the result is axis axes[i] of x.
Tensor Permute(const Tensor& x, absl::Span<const int64_t> axes);
// Exchanges two axes. By default, these are the last two.
Tensor Transpose(const Tensor& x, int64_t axis0 = -2, int64_t axis1 = -1);

// The end of the axis in Slice: a stop for a positive step, or a start for a negative one.
inline constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();
// A stop for a negative step: the slice ends with element 0. (-1 would be the last element.)
inline constexpr int64_t kToBegin = std::numeric_limits<int64_t>::min();
struct SliceOptions {
  std::vector<int64_t> axes = {};   // the axes of starts and stops; empty: the first ones
  std::vector<int64_t> steps = {};  // none is 0, negative ones go backwards; empty: ones
};
// Takes x[start:stop:step] on each axis. As in Python, negative numbers count from the end, and
// numbers outside the axis are clamped.
Tensor Slice(const Tensor& x, absl::Span<const int64_t> starts, absl::Span<const int64_t> stops,
             const SliceOptions& options = {});
// Joins tensors along an axis. Their other dimensions must be equal.
Tensor Concat(absl::Span<const Tensor> tensors, int64_t axis = 0);
// Repeats x along axes of size 1 and new leading axes until it has this shape.
Tensor BroadcastTo(const Tensor& x, const Shape& shape);

}  // namespace tensord
