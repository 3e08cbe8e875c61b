// The ops of a program while it is being recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/mutex.h"

namespace tensord::internal {

// Shared by the tensors that stand for its values. Thread-safe.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(Device device) : device_(std::move(device)) {}

  const Device& device() const { return device_; }

  // A tensor that stands for a value to come.
  Tensor AddInput(const TensorSpec& spec);

  // An op of which at least one input stands for a value of this recorder.
  absl::StatusOr<Tensor> Record(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                const Attributes& attrs);

  // No more is recorded: what still stands for a value is of no use then.
  void Close();

  // The program as the wire has it: the ops, and the values that the outputs are. Other tensors
  // that the ops read come as inputs after the declared ones.
  struct Recorded {
    std::vector<uint32_t> ops;
    std::vector<uint32_t> outputs;
    std::vector<Tensor> captured;
    int64_t num_ops = 0;
  };
  absl::StatusOr<Recorded> Finish(absl::Span<const Tensor> outputs);

 private:
  // Values are numbered for good only when it is known how many tensors were taken in: till then
  // inputs and results count from 0 on, and those taken in from kCaptured on.
  static constexpr uint32_t kCaptured = uint32_t{1} << 31;

  absl::StatusOr<uint32_t> ValueOf(const Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t Renumber(uint32_t value) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Tensor Standing(uint32_t value, const TensorSpec& spec);

  const Device device_;
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t num_inputs_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t num_ops_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint32_t> ops_ ABSL_GUARDED_BY(mu_);  // definition, number of operands, operands
  std::vector<Tensor> captured_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, uint32_t> captured_numbers_ ABSL_GUARDED_BY(mu_);  // by handle
};

}  // namespace tensord::internal
