// Making tensors: from a rule, run by the server, or from the caller's memory.
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
  std::optional<DType> dtype = {};  // none: float32, int64 or bool, by the value's type
};
Tensor Full(const Device& device, const Shape& shape, Scalar value,
            const FullOptions& options = {});
// Of rank 0.
Tensor FromScalar(const Device& device, Scalar value, const FullOptions& options = {});

struct ArangeOptions {
  std::optional<DType> dtype =
      {};  // none: int64 where all three numbers are integers, else float32
};
// start, start + step, … up to but not including stop.
Tensor Arange(const Device& device, Scalar start, Scalar stop, Scalar step = 1,
              const ArangeOptions& options = {});
// 0, 1, … stop - 1.
Tensor Arange(const Device& device, Scalar stop, const ArangeOptions& options = {});

struct EyeOptions {
  int64_t cols = -1;  // -1: as many as rows
  DType dtype = DType::kFloat32;
};
Tensor Eye(const Device& device, int64_t rows, const EyeOptions& options = {});

// Random numbers are a function of seed and position alone: the same on every device and server.
struct UniformOptions {
  double low = 0;   // included
  double high = 1;  // excluded
  DType dtype = DType::kFloat32;
};
Tensor Uniform(const Device& device, const Shape& shape, int64_t seed,
               const UniformOptions& options = {});
struct NormalOptions {
  double mean = 0;
  double stddev = 1;
  DType dtype = DType::kFloat32;
};
Tensor Normal(const Device& device, const Shape& shape, int64_t seed,
              const NormalOptions& options = {});

// Data of at most this many bytes rides with the commands; more is sent on a connection of its own,
// and the call waits until the server has it.
inline constexpr int64_t kMaxInlineBytes = 64 * 1024;

// The elements of `data`, row-major, exactly spec.size_bytes(). They have been taken when the call
// returns.
Tensor FromBytes(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data,
                 const TransferOptions& options = {});

template <Element T>
Tensor FromSpan(const Device& device, const Shape& shape, absl::Span<const T> values,
                const TransferOptions& options = {});

// FromVector(device, {2, 2}, std::vector<float>{1, 2, 3, 4}), or
// FromVector<float>(device, {2, 2}, {1, 2, 3, 4}).
template <Element T>
Tensor FromVector(const Device& device, const Shape& shape, const std::vector<T>& values,
                  const TransferOptions& options = {});
// One-dimensional.
template <Element T>
Tensor FromVector(const Device& device, const std::vector<T>& values) {
  return FromVector<T>(device, Shape({static_cast<int64_t>(values.size())}), values);
}

}  // namespace tensord
