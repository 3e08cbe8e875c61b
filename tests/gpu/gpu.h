// A GPU through the device layer (server/device), as the server's engine uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/op_schema.h"
#include "tensord/server/device/device.h"
#include "tensord/tests/gpu/test_data.h"

namespace tensord::gpu {

// GPU 0: what it is, and what it could reach by its attributes. A rate of 0 is unknown.
struct GpuInfo {
  std::string model;
  std::string compute_capability;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;           // 13000: the newest CUDA that the driver supports
  double bytes_per_second = 0;      // 2 * memory clock * bus width
  double clock_hz = 0;              // the highest of the multiprocessors
  int float32_flops_per_clock = 0;  // of one multiprocessor
  int tensor_flops_per_clock = 0;   // of one, dense products of float16 added up in float32

  // Dense products: `tf32` counts for float32 only.
  double FlopsPerSecond(DType dtype, bool tf32) const;
};

// UNAVAILABLE with the reason if there is no GPU that can be used.
absl::StatusOr<GpuInfo> DescribeGpu();

// Used by one thread.
class Gpu {
 public:
  static absl::StatusOr<std::unique_ptr<Gpu>> Make(int64_t limit_bytes);

  server::Device& device() { return *device_; }
  // A tensor with the data of `seed`.
  absl::StatusOr<server::BufferRef> Upload(const TensorSpec& spec, uint32_t seed);
  // Waits for all that was launched.
  absl::Status Wait();
  absl::StatusOr<Checksum> ChecksumOf(const TensorSpec& spec, const server::Buffer& buffer);

 private:
  explicit Gpu(std::unique_ptr<server::Device> device) : device_(std::move(device)) {}

  std::unique_ptr<server::Device> device_;
};

// An op that is prepared once and run any number of times. Input i has the data of seed i + 1.
// Used by the thread of its Gpu, which outlives it.
class Op {
 public:
  static absl::StatusOr<std::unique_ptr<Op>> Make(Gpu* gpu, const std::string& name,
                                                  std::vector<TensorSpec> inputs,
                                                  const Attributes& attrs);

  // Launches it `count` times, each time into the same memory, and waits.
  absl::Status Run(int count);
  // The same, into memory that is allocated for each run and freed after the next one's launch.
  absl::Status RunIntoNewMemory(int count);
  absl::StatusOr<Checksum> ResultChecksum() { return gpu_->ChecksumOf(plan_.output, *output_); }
  const TensorSpec& output() const { return plan_.output; }

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
