// A convolution as a graph of cuDNN, and the choice of an engine for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
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

// An engine that cuDNN recommended for a problem.
struct ConvEngine {
  int64_t index = -1;  // cuDNN's number of the engine, of the operations' kind
  std::vector<cudnn::NumericalNote> notes;
  int64_t workspace_bytes = -1;  // of its plan; -1: the engine was rejected without a plan
  std::string rejection;         // why it was rejected; empty: it was chosen
};

// Returns a note in words: "nondeterministic".
std::string NumericalNoteName(cudnn::NumericalNote note);

// Makes each later call of MakeConvPlan() in this process report the engines that it tried, in
// their order. At most the last one was chosen. For benchmarks. Not thread-safe: call it while no
// plan is made.
using ConvPlanObserver =
    std::function<void(const ConvProblem& problem, const std::vector<ConvEngine>& engines)>;
void ObserveConvPlans(ConvPlanObserver observer);

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
