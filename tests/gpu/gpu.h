// Access to a GPU through the device layer (server/device), in the same way as the server's engine.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/device.h"
#include "tensord/tests/gpu/test_data.h"

namespace tensord::gpu {

// Describes GPU 0, with its theoretical peak rates. A rate of 0 is unknown.
struct GpuInfo {
  std::string model;
  std::string compute_capability;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;           // newest CUDA that the driver supports; 13000 is CUDA 13.0
  std::string cudnn;                // the version that the device layer loads: "9.19.0", or "none"
  double bytes_per_second = 0;      // 2 * memory clock * bus width
  double clock_hz = 0;              // highest clock of the multiprocessors
  int float32_flops_per_clock = 0;  // of one multiprocessor
  // The operations of dense float16 products on one multiprocessor's tensor cores, accumulated in
  // float32.
  int tensor_flops_per_clock = 0;

  // Returns the peak rate of dense products. `tf32` applies to float32 only.
  double FlopsPerSecond(DType dtype, bool tf32) const;
};

// Describes GPU 0. If no GPU can be used, returns UNAVAILABLE with the reason.
absl::StatusOr<GpuInfo> DescribeGpu();

// GPU 0. Not thread-safe: use it on the thread that called Make().
class Gpu {
 public:
  static absl::StatusOr<std::unique_ptr<Gpu>> Make(int64_t limit_bytes);

  server::Device& device() { return *device_; }
  // Returns a new tensor on the GPU with the test data of `seed` (test_data.h).
  absl::StatusOr<server::BufferRef> Upload(const TensorSpec& spec, uint32_t seed);
  // Blocks until all work that was launched is done.
  absl::Status Wait();
  absl::StatusOr<Checksum> ChecksumOf(const TensorSpec& spec, const server::Buffer& buffer);

 private:
  explicit Gpu(std::unique_ptr<server::Device> device) : device_(std::move(device)) {}

  std::unique_ptr<server::Device> device_;
};

// An op that is prepared once and run any number of times. Input i has the test data of seed i + 1.
// Not thread-safe: use it on the thread of its Gpu. The Gpu must outlive it.
class Op {
 public:
  static absl::StatusOr<std::unique_ptr<Op>> Make(Gpu* gpu, const std::string& name,
                                                  std::vector<TensorSpec> inputs,
                                                  const Attributes& attrs);

  // Launches the op `count` times, each time into the same memory, and blocks until all are done.
  absl::Status Run(int count);
  // Does the same as Run(), but allocates new memory for each launch. Frees it after the next
  // launch.
  absl::Status RunIntoNewMemory(int count);
  absl::StatusOr<Checksum> ResultChecksum() { return gpu_->ChecksumOf(plan_.output(), *output_); }
  const TensorSpec& output() const { return plan_.output(); }

 private:
  Op() = default;

  Gpu* gpu_ = nullptr;
  std::vector<TensorSpec> specs_;
  OpPlan plan_;
  std::vector<server::BufferRef> buffers_;
  std::vector<const server::Buffer*> inputs_;
  server::BufferRef output_;
  std::unique_ptr<server::PreparedKernel> kernel_;
};

}  // namespace tensord::gpu
