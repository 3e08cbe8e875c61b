// Functions that make tensors: by an op that the server runs, or from the caller's memory.
//
// Errors are in the result's status (tensor.h): FAILED_PRECONDITION if `device` isn't valid,
// INVALID_ARGUMENT if arguments don't fit together. All functions are thread-safe. They don't wait
// for the server, except FromBytes, FromSpan and FromVector with more than kMaxInlineBytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/element.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"

namespace tensord {

struct CreateOptions {
  DType dtype = DType::kFloat32;
};
Tensor Zeros(const Device& device, const Shape& shape, const CreateOptions& options = {});
Tensor Ones(const Device& device, const Shape& shape, const CreateOptions& options = {});

struct FullOptions {
  // If it isn't set, the dtype is float32, int64 or bool, by the value's C++ type. An integer that
  // is too large for int64 gives uint64.
  std::optional<DType> dtype = {};
};
// Returns a tensor all of whose elements are `value`.
Tensor Full(const Device& device, const Shape& shape, Scalar value,
            const FullOptions& options = {});
// Returns a tensor of shape [].
Tensor FromScalar(const Device& device, Scalar value, const FullOptions& options = {});

struct ArangeOptions {
  // If it isn't set, the dtype is int64 if all three scalars are integers, otherwise float32.
  std::optional<DType> dtype = {};
};
// Returns [n]: start, start + step, … up to but not including stop.
Tensor Arange(const Device& device, Scalar start, Scalar stop, Scalar step = 1,
              const ArangeOptions& options = {});
// Returns [stop]: 0, 1, … stop - 1.
Tensor Arange(const Device& device, Scalar stop, const ArangeOptions& options = {});

struct LinspaceOptions {
  bool endpoint = true;  // whether `stop` is the last value
  DType dtype = DType::kFloat32;
};
// Returns [count]: values from `start` to `stop` in equal steps, computed as PyTorch does. The ends
// are converted to the dtype first.
Tensor Linspace(const Device& device, double start, double stop, int64_t count,
                const LinspaceOptions& options = {});

struct EyeOptions {
  int64_t cols = -1;  // -1: as many as rows
  int64_t k = 0;      // the diagonal: above the main one if positive, below if negative
  DType dtype = DType::kFloat32;
};
// Returns [rows, cols] with ones at [i, i + k] and zeros elsewhere.
Tensor Eye(const Device& device, int64_t rows, const EyeOptions& options = {});
Tensor Eye(const Device& device, int64_t rows, int64_t cols, int64_t k = 0);

// Random numbers depend only on the seed and the position: they are the same on every device and
// server. Without a seed, every call draws a new one from the system's random numbers. random.h has
// generators, which give each call other numbers, and further functions.
struct UniformOptions {
  double low = 0;   // included
  double high = 1;  // excluded
  DType dtype = DType::kFloat32;
};
Tensor Uniform(const Device& device, const Shape& shape, const UniformOptions& options = {});
Tensor Uniform(const Device& device, const Shape& shape, int64_t seed,
               const UniformOptions& options = {});
struct NormalOptions {
  double mean = 0;
  double stddev = 1;
  DType dtype = DType::kFloat32;
};
Tensor Normal(const Device& device, const Shape& shape, const NormalOptions& options = {});
Tensor Normal(const Device& device, const Shape& shape, int64_t seed,
              const NormalOptions& options = {});

// The size of the largest tensor that is sent with the commands. A larger tensor is sent on another
// connection, and the call blocks until the server has received the tensor.
inline constexpr int64_t kMaxInlineBytes = 64 * 1024;

// Returns a tensor with the elements in `data`, row-major, exactly spec.size_bytes() of them.
// `data` isn't used after the call. TransferOptions::progress is called only for more than
// kMaxInlineBytes.
Tensor FromBytes(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data,
                 const TransferOptions& options = {});

// Does the same for elements of type T.
template <Element T>
Tensor FromSpan(const Device& device, const Shape& shape, absl::Span<const T> values,
                const TransferOptions& options = {});

// Does the same for a vector: FromVector(device, {2, 2}, std::vector<float>{1, 2, 3, 4}), or
// FromVector<float>(device, {2, 2}, {1, 2, 3, 4}).
template <Element T>
Tensor FromVector(const Device& device, const Shape& shape, const std::vector<T>& values,
                  const TransferOptions& options = {});
// Returns a tensor of shape [values.size()].
template <Element T>
Tensor FromVector(const Device& device, const std::vector<T>& values) {
  return FromVector<T>(device, Shape({static_cast<int64_t>(values.size())}), values);
}

}  // namespace tensord
