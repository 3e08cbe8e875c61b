// A tensor on a server's device, held by handle.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/copy_report.h"
#include "tensord/client/device.h"
#include "tensord/client/element.h"
#include "tensord/client/print.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

namespace internal {
struct TensorState;
}

struct TransferOptions {
  // Told after every chunk, from the calling thread: bytes done, bytes in all.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

// A value: copies name the same tensor, and when the last one goes the server is told to let go of
// it. Tensors are immutable and may be used from any thread. Making one (ops.h, creation.h) doesn't
// wait for the server: dtype, shape and device are known at once, the values come later. Reading
// waits.
//
// Errors. What can be seen at the call (shapes, dtypes, devices, a connection that is gone) makes a
// tensor whose status() is that error: nothing is sent, and whatever is computed from it has the
// same status. What only the server can find (no memory, say) sticks to the tensor there and is
// returned by whoever reads it or something computed from it, and by Client::Synchronize. Nothing
// throws, and nothing ends the process.
class Tensor {
 public:
  // No tensor: status() is FAILED_PRECONDITION.
  Tensor() = default;
  // A failed tensor; `error` must not be OK.
  static Tensor Failed(absl::Status error);

  // What is known without asking the server.
  absl::Status status() const;
  bool ok() const { return status().ok(); }

  // Of a failed tensor: kUnspecified, [], no device and 0.
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  int rank() const { return shape().rank(); }
  int64_t num_elements() const { return ok() ? spec().num_elements() : 0; }
  int64_t size_bytes() const { return ok() ? spec().size_bytes() : 0; }
  const TensorSpec& spec() const;
  Device device() const;
  // The number by which the server knows it; unique within the connection.
  uint64_t handle() const;

  // A copy on `device`. Where it lies there already: this very tensor, same handle, nothing sent.
  // Doesn't wait. Between two servers the bytes go directly, as soon as they are there; both must
  // know us by the same name, and the one that has `device` must be allowed to fetch from the other
  // (tensord --peers). Where it isn't, or can't reach it, they go through this program. What goes
  // wrong on the way sticks to the copy.
  Tensor To(const Device& device) const;
  // The elements converted, as the op "cast" has it. Of the same dtype: this very tensor.
  Tensor To(DType dtype) const;

  // The elements in row-major order. T must be the dtype's own type (element.h), or the error says
  // which is. Waits for the tensor's value, and for as long as the connection lives.
  template <Element T>
  absl::StatusOr<std::vector<T>> Read(const TransferOptions& options = {}) const;
  // The same into memory of the caller's, which must be num_elements() long and stay put till the
  // call returns. After an error its contents are undefined.
  template <Element T>
  absl::Status ReadInto(absl::Span<T> out, const TransferOptions& options = {}) const {
    return ReadBytesInto(kDTypeOf<T>, out.data(), static_cast<int64_t>(out.size()), options);
  }
  // Of any dtype, each element converted on this side as the op "cast" would.
  template <Element T>
  absl::StatusOr<std::vector<T>> ReadAs(const TransferOptions& options = {}) const;
  // The one element of a tensor that has just one. Converts as ReadAs.
  template <Element T>
  absl::StatusOr<T> Item() const;
  // The elements as they lie in memory.
  absl::StatusOr<std::vector<uint8_t>> ReadBytes(const TransferOptions& options = {}) const;

  // Blocks until the work that makes this tensor has finished on its device, a GPU included. A read
  // then doesn't wait for the device. If the work has failed, returns its error.
  absl::Status Wait() const;

  // Of a copy made by To: waits for it, and tells which way it went. Of any other tensor: that
  // nothing was moved.
  absl::StatusOr<CopyReport> copy_report() const;

  // "Tensor(handle=7, float32[2, 3], cuda:0, 24 bytes)". Doesn't wait.
  std::string Describe() const;
  // The values as PyTorch prints them (print.h), read from the server; of a large tensor only the
  // part that is shown. "tensor(<error: …>)" where there is an error.
  std::string ToString(const PrintOptions& options = {}) const;

  // The same tensor, not equal values: compare those with Eq (ops.h).
  bool IsSameAs(const Tensor& other) const { return state_ == other.state_; }

  // For the library's own use.
  explicit Tensor(std::shared_ptr<const internal::TensorState> state) : state_(std::move(state)) {}
  const std::shared_ptr<const internal::TensorState>& state() const { return state_; }

 private:
  // `num_elements` of type `dtype` at `out`; checked against the tensor's spec.
  absl::Status ReadBytesInto(DType dtype, void* out, int64_t num_elements,
                             const TransferOptions& options) const;

  std::shared_ptr<const internal::TensorState> state_;
};

// ToString() with the default options.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tensord
