// Loops over the operands of a broadcasting elementwise op.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// The output's dimensions, and the strides of the inputs along them. Neighbouring dimensions are
// merged if one stride per input describes them. Dimension [0] is the innermost.
struct BroadcastNest {
  int inputs = 0;
  int rank = 0;
  int64_t elements = 0;  // of the output
  int64_t size[kMaxRank];
  int64_t stride[kMaxElementwiseInputs][kMaxRank];  // in elements; 0 if broadcast
  int64_t input_bytes[kMaxElementwiseInputs];       // of an element
  int64_t output_bytes = 0;

  // Returns whether rows are so short that inputs should be copied to blocks first.
  bool HasShortRows() const { return rank > 1 && size[0] < 64; }
};

// Returns the nest of 1 to kMaxElementwiseInputs inputs, which broadcast to the output.
BroadcastNest MakeNest(absl::Span<const TensorSpec* const> inputs, const TensorSpec& output);

// A run of the output's elements. Input i is at data[i]. If step[i] is 1, the input has an element
// for each element of the output. If step[i] is 0, the input has one element for all.
struct BroadcastRun {
  const void* data[kMaxElementwiseInputs];
  int step[kMaxElementwiseInputs];
  void* output;
  int64_t n;
};

// Calls `fn`, on all threads of the team, for runs that together cover the output. If rows are
// short, copies inputs to blocks first, so that the runs are longer.
void ForEachRun(const Context& ctx, const BroadcastNest& nest, const void* const* data,
                void* output, double grain, absl::FunctionRef<void(const BroadcastRun&)> fn);

// block[0, n) = elements [begin, begin + n) of the nest's only input after broadcasting.
void GatherBroadcast(const Loops& loops, const BroadcastNest& nest, const void* data, int64_t begin,
                     int64_t n, void* block);

}  // namespace tensord::server::cpu
