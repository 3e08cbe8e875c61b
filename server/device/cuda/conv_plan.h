// A convolution as a graph of cuDNN, and the choice of an engine for it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/server/device/conv_attributes.h"
#include "tensord/server/device/cuda/cudnn_descriptor.h"
#include "tensord/server/device/cuda/cudnn_library.h"

namespace tensord::server::cuda {

// y = conv(x, w), or one of its gradients. All tensors are dense and have the floating dtype
// `dtype`. float16 and bfloat16 are accumulated in float32. No tensor is empty.
struct ConvProblem {
  ConvKind kind = ConvKind::kForward;
  DType dtype = DType::kUnspecified;
  bool allow_tf32 = false;
  // Only for kForward. The result is rounded once, after both.
  bool bias = false;  // (O) is added to each channel of y
  bool relu = false;  // is applied last
  ConvGeometry geometry;

  // Returns all members as numbers.
  std::array<int64_t, 29> Numbers() const;
  friend bool operator==(const ConvProblem& a, const ConvProblem& b) {
    return a.Numbers() == b.Numbers();
  }
  template <typename H>
  friend H AbslHashValue(H h, const ConvProblem& p) {
    return H::combine(std::move(h), p.Numbers());
  }
};

// The tensors of a graph, by the number with which a plan's addresses are assigned.
enum class ConvTensor : int64_t { kX = 1, kW, kY, kBias, kConvolved, kBiased };

// Memory and descriptors of a plan belong to the library. The plan keeps all descriptors that it
// was made of.
struct ConvPlan {
  std::vector<CudnnDescriptor> descriptors;
  cudnn::Descriptor plan = nullptr;  // one of them
  int64_t workspace_bytes = 0;
};

// Makes a plan with the first acceptable engine that cuDNN recommends. An acceptable engine gives
// the same bits in each run, is as exact as ConvProblem says, and needs at most
// `max_workspace_bytes`. All addresses with which the plan is executed must be multiples of
// `alignment`. The handle's device must be current. If there is no such engine, returns
// UNIMPLEMENTED. If there is too little memory, returns RESOURCE_EXHAUSTED. If the device is lost,
// returns DATA_LOSS.
absl::StatusOr<ConvPlan> MakeConvPlan(const CudnnLibrary& library, cudnn::Handle handle,
                                      const ConvProblem& problem, int64_t alignment,
                                      int64_t max_workspace_bytes);

}  // namespace tensord::server::cuda
