// Records the ops of a program.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// The placeholders of a program share its recorder: tensors without values that stand for its
// inputs and results. Thread-safe.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(Device device) : device_(std::move(device)) {}

  const Device& device() const { return device_; }

  // Returns a placeholder for the next input.
  Tensor AddInput(const TensorSpec& spec);

  // Records an op, and returns placeholders for its outputs. At least one input must be a
  // placeholder of this recorder. After Close, returns FAILED_PRECONDITION.
  absl::StatusOr<Tensors> Record(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                 const Attributes& attrs);

  // Ends the recording: ops on its placeholders fail from then on.
  void Close();

  // The program as v1::Program encodes it.
  struct Recorded {
    std::vector<ProgramOp> ops;
    std::vector<uint32_t> outputs;  // numbers of values
    std::vector<Tensor> captured;   // other tensors that it reads: inputs after the declared ones
  };
  // Returns the recorded program. If an output has failed or belongs to another program, returns
  // its error.
  absl::StatusOr<Recorded> Finish(absl::Span<const Tensor> outputs);

 private:
  // Until Finish knows the number of captured tensors, inputs and results are numbered from 0 on,
  // and captured tensors from kCaptured on. Renumber converts to the final numbers.
  static constexpr uint32_t kCaptured = uint32_t{1} << 31;

  absl::StatusOr<uint32_t> ValueOf(const Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t Renumber(uint32_t value) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Tensor MakePlaceholder(uint32_t value, const TensorSpec& spec);

  const Device device_;
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t num_inputs_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t num_results_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<ProgramOp> ops_ ABSL_GUARDED_BY(mu_);
  std::vector<Tensor> captured_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, uint32_t> captured_numbers_ ABSL_GUARDED_BY(mu_);  // by handle
};

}  // namespace tensord::internal
