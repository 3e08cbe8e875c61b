// The walk over the operands of a broadcasting elementwise op.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// How inputs are read to give an output: the output's dimensions with neighbours merged wherever
// every input walks them alike; [0] is the innermost.
struct BroadcastNest {
  int inputs = 0;
  int rank = 0;
  int64_t elements = 0;  // of the output
  int64_t size[kMaxRank];
  int64_t stride[kMaxElementwiseInputs][kMaxRank];  // in elements, 0 where broadcast
  int64_t input_bytes[kMaxElementwiseInputs];       // of an element
  int64_t output_bytes = 0;

  // Whether rows are so short that inputs should be gathered into blocks.
  bool HasShortRows() const { return rank > 1 && size[0] < 64; }
};

// Of 1 to kMaxElementwiseInputs inputs, which broadcast to the output.
BroadcastNest MakeNest(absl::Span<const TensorSpec* const> inputs, const TensorSpec& output);

// A run of the output's elements: input i is read from data[i], one element for each of the
// output's (step 1) or one for all (step 0).
struct BroadcastRun {
  const void* data[kMaxElementwiseInputs];
  int step[kMaxElementwiseInputs];
  void* output;
  int64_t n;
};

// Calls `fn` on runs that together cover the output, from all threads of the team. `fn` gets long
// runs where the shapes have them; where rows are short, inputs are gathered into longer ones
// first.
void ForEachRun(const Context& ctx, const BroadcastNest& nest, const void* const* data,
                void* output, int64_t grain, absl::FunctionRef<void(const BroadcastRun&)> fn);

// block[0, n) = elements [begin, begin + n) of the nest's only input, as they are broadcast.
void GatherBroadcast(const Loops& loops, const BroadcastNest& nest, const void* data, int64_t begin,
                     int64_t n, void* block);

}  // namespace tensord::server::cpu
