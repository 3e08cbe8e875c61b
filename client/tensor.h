// A handle on a tensor that is on a server's device.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/copy_report.h"
#include "tensord/client/device.h"
#include "tensord/client/element.h"
#include "tensord/client/print.h"
#include "tensord/client/status_or_vector.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

namespace internal {
struct TensorState;
}

struct TransferOptions {
  // The transfer calls it on the calling thread after every chunk, with the bytes transferred so
  // far and the total. A read of at most 1 MiB calls it once. An upload of at most kMaxInlineBytes
  // (creation.h) never calls it.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

// A Tensor is a value: copies share the tensor, and when the last one is destroyed, the server
// frees it. Tensors are immutable. Thread-safe. Making a tensor (ops.h, creation.h) doesn't wait
// for the server: its dtype, shape and device are known at once, and the server computes the values
// later. Reading waits.
//
// Errors. If the client finds an error (shapes, dtypes, devices, a lost session), the result's
// status() is that error, nothing is sent, and every tensor computed from it has the same status.
// If the server finds an error (no memory, for example), the error sticks to the tensor there.
// Reads of the tensor, or of a tensor computed from it, return the error, and so does
// Client::Synchronize. No function of a Tensor, and no function that makes one, throws or ends the
// process.
class [[nodiscard]] Tensor {
 public:
  // Makes an empty Tensor: its status() is FAILED_PRECONDITION.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  // Make this Tensor a copy of another, and leave the former tensor as it is. A temporary Tensor
  // can't be assigned to: `x[0] = y` doesn't compile. SelectScatter(x, y, 0, 0) returns x with y in
  // place of x[0].
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  // Returns a failed tensor. `error` must not be OK.
  static Tensor Failed(absl::Status error);

  // Returns the error that the client has found. Errors at the server aren't included. Doesn't
  // wait.
  absl::Status status() const;
  bool ok() const { return status().ok(); }

  // For a failed tensor, these return kUnspecified, [], no device and 0. A tensor that was donated
  // to an op (RunOptions::donate) keeps its values, although its status() is an error.
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  int rank() const { return shape().rank(); }
  int64_t num_elements() const { return has_spec() ? spec().num_elements() : 0; }
  int64_t size_bytes() const { return has_spec() ? spec().size_bytes() : 0; }
  const TensorSpec& spec() const;
  Device device() const;
  // Returns the tensor's number at the server, unique in the session. A failed tensor, and a
  // placeholder of a program that is being recorded, have none: returns 0.
  uint64_t handle() const;

  // Returns the tensor on `device`. If it is there already, returns this tensor itself, which has
  // the same memory; otherwise a copy. Doesn't wait.
  // Between two servers the bytes go directly, if this client has the same identity at both and the
  // destination may fetch from the source (tensord --peers). Otherwise they go through this
  // program. An error of the copy sticks to it.
  Tensor To(const Device& device) const;
  // Does the same for a device of this tensor's server, by name: "cuda:1", "cuda". If the server
  // has no such device, the result has the error NOT_FOUND, which lists the server's devices.
  Tensor To(absl::string_view device) const;
  // Returns Cast(*this, dtype) (ops.h). If the tensor has that dtype, returns this tensor.
  Tensor To(DType dtype) const;

  // Returns the part of x at `index` of the first axis, without that axis. The result may share the
  // memory of x. A negative index counts from the end. If the index is outside the axis, the result
  // has the error OUT_OF_RANGE. Doesn't wait. Slice (ops.h) takes ranges.
  Tensor operator[](int64_t index) const;
  // Rejects x[0.9] and x[true], which would otherwise convert to an index.
  template <typename T>
  requires std::is_floating_point_v<T> || std::is_same_v<T, bool> Tensor operator[](T) const =
      delete;

  // The following reads block until the tensor has its value, without a time limit while the
  // session exists. They return the tensor's error if it has one, and RESOURCE_EXHAUSTED if this
  // program can't allocate the memory.

  // Returns the elements in row-major order. If T isn't the dtype's own type (element.h), returns
  // INVALID_ARGUMENT.
  template <Element T>
  StatusOrVector<T> Read(const TransferOptions& options = {}) const;
  // Reads the elements into `out`, which must have num_elements(). After an error its contents are
  // undefined.
  template <Element T>
  absl::Status ReadInto(absl::Span<T> out, const TransferOptions& options = {}) const {
    return ReadElementsInto(kDTypeOf<T>, out.data(), static_cast<int64_t>(out.size()), options);
  }
  // Reads elements of any dtype, and converts each in this program, as Cast does. If one of the two
  // dtypes is complex and they differ, returns INVALID_ARGUMENT.
  template <Element T>
  StatusOrVector<T> ReadAs(const TransferOptions& options = {}) const;
  // Returns the only element of a tensor, converted as by ReadAs. If the tensor doesn't have
  // exactly one element, returns INVALID_ARGUMENT.
  template <Element T>
  absl::StatusOr<T> Item() const;
  // Returns the elements in row-major order as bytes.
  StatusOrVector<uint8_t> ReadBytes(const TransferOptions& options = {}) const;
  // Reads these bytes into `out`, which must have size_bytes(). After an error its contents are
  // undefined.
  absl::Status ReadBytesInto(absl::Span<uint8_t> out, const TransferOptions& options = {}) const;

  // Blocks until the device has finished the work that makes this tensor, on a GPU, too. A later
  // read doesn't wait for the device. If the work has failed, returns its error.
  absl::Status Wait() const;

  // If this tensor is a copy made by To, waits for the copy, and returns its path and speed, or its
  // error. Otherwise returns a default CopyReport.
  absl::StatusOr<CopyReport> copy_report() const;

  // Returns "Tensor(handle=7, float32[2, 3], cuda:0, 24 bytes)". Doesn't wait.
  std::string Describe() const;
  // Returns the values as PyTorch prints them (print.h). Reads the shown part of the tensor from
  // the server. If there is an error, returns "tensor(<error: …>)".
  std::string ToString(const PrintOptions& options = {}) const;

  // Returns whether both are copies of the same Tensor. To compare values, use Eq (ops.h).
  bool IsSameAs(const Tensor& other) const { return state_ == other.state_; }

  // Only the library uses this constructor.
  explicit Tensor(std::shared_ptr<const internal::TensorState> state) : state_(std::move(state)) {}
  const std::shared_ptr<const internal::TensorState>& state() const { return state_; }

 private:
  bool has_spec() const { return dtype() != DType::kUnspecified; }
  // Reads into `out`, which has room for `num_elements` of `dtype`. Checks both against the spec.
  absl::Status ReadElementsInto(DType dtype, void* out, int64_t num_elements,
                                const TransferOptions& options) const;

  std::shared_ptr<const internal::TensorState> state_;
};

// ToString() with the default options.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tensord
