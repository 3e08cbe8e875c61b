// A short program on two emulated GPUs that uses most of the CUDA backend. Tests run it while calls
// of CUDA fail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// Creates two devices, computes with them, and destroys everything. Not thread-safe.
class FailingProgram {
 public:
  // If `fused`, Run() runs one fused kernel instead of the other steps.
  explicit FailingProgram(bool fused) : fused_(fused) {}
  // Destroys buffers and devices. If a GPU has a sticky error, abandons its device and resets it.
  ~FailingProgram();

  // Returns the first error. If a step's result is wrong, returns INTERNAL "wrong result of …".
  absl::Status Run();

  static constexpr int kGpus = 2;

 private:
  absl::Status RunOps(Device& device);
  absl::Status RunGraph(Device& device);
  absl::Status RunFused(Device& device);
  absl::Status CopyBetween(Device& from, Device& to);

  // Returns a buffer of `device` with these values.
  absl::StatusOr<BufferRef> Upload(Device& device, const std::vector<float>& values);
  absl::StatusOr<BufferRef> Compute(Device& device, absl::string_view op,
                                    const std::vector<TensorSpec>& specs,
                                    const std::vector<BufferRef>& inputs,
                                    const Attributes& attrs = {});
  // Waits for `device`, and compares `buffer` with `expected`.
  absl::Status Expect(Device& device, const BufferRef& buffer, const std::vector<float>& expected,
                      absl::string_view step);

  const bool fused_;
  MemoryAccount::Ref account_ = MemoryAccount::Open({.device = "cuda:0"});
  std::unique_ptr<Device> devices_[kGpus];
  std::vector<BufferRef> buffers_;
};

}  // namespace tensord::server
