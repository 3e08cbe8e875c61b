// Convolutions by cuDNN.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cuda/conv_plan.h"
#include "tensord/server/device/cuda/cudnn_library.h"

namespace tensord::server::cuda {

// The addresses of a convolution's tensors. One of x, w and y is the result (ConvProblem::kind).
struct ConvAddresses {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  void* bias = nullptr;  // null if the problem has none

  ConvAddresses WithoutBias() const { return {x, w, y}; }
};

// Not thread-safe: only the thread that launches a device's kernels uses it. The device must be
// current.
class Dnn {
 public:
  // The maximum workspace of a plan. Engines that need more aren't chosen.
  static constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

  // Convolutions run on `stream`. Loads nothing: the first convolution does.
  explicit Dnn(cudaStream_t stream) : stream_(stream) {}
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  // Makes later convolutions run on `stream`.
  void SetStream(cudaStream_t stream) { stream_ = stream; }

  // Returns the kept plan, or makes one. The pointer is valid until the next call. If cuDNN can't
  // be loaded, returns the error of LoadCudnn(). If it has no engine for the problem, returns
  // UNIMPLEMENTED.
  absl::StatusOr<const ConvPlan*> FindPlan(const ConvProblem& problem,
                                           const ConvAddresses& addresses);

  // Enqueues the convolution that the plan was made for. `workspace` has plan.workspace_bytes;
  // null if that is 0. Allocates no memory of the GPU.
  absl::Status Execute(const ConvPlan& plan, const ConvAddresses& addresses, void* workspace);

 private:
  struct Key {
    ConvProblem problem;
    int64_t alignment;  // of all addresses, in bytes
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.problem, key.alignment);
    }
  };
  // cuDNN takes far longer to make a plan than to execute it, so plans are kept. If there is no
  // plan for a problem, that result is kept, too.
  struct Kept {
    Key key;
    absl::StatusOr<ConvPlan> plan;
  };
  using Plans = std::list<Kept>;

  absl::Status CreateHandle();

  cudaStream_t stream_;
  const CudnnLibrary* library_ = nullptr;
  cudnn::Handle handle_ = nullptr;
  cudaStream_t handle_stream_ = nullptr;  // the stream that the handle has
  Plans plans_;                           // the most recently used first
  absl::flat_hash_map<Key, Plans::iterator> plan_by_key_;
};

}  // namespace tensord::server::cuda
