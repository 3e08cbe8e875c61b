// Decides whether an op can run now, by the state of its inputs. All routes use these checks.
//
// An op takes the first route whose conditions hold:
//
// | route         | function           | conditions                          | thread          |
// |---------------|--------------------|-------------------------------------|-----------------|
// | 1 packed step | PackedOps::TryRun  | as route 2, and the op runs on the  | that decodes    |
// |               |                    | device of the stream's last op      | the stream      |
// | 2 inline call | Engine::Start      | CanRunInline(), and the thread gets | that makes the  |
// |               |                    | the executor's InlineLock           | call            |
// | 3 posted op   | OpNode             | none: it waits until no input is    | of the executor |
// |               |                    | kPending, then posts itself         |                 |
//
// If an input fails while the op waits, the call has succeeded already: the outputs get the input's
// error. Inputs on several devices are an error of the call (Engine::FindPreparedOp).
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// The state of an input, for an op that will be posted to a given lane.
enum class InputState {
  kReady,    // done, and has memory
  kFailed,   // done, and has an error
  kPosted,   // a task posted earlier to the same lane makes it, and so runs before the op
  kPending,  // waits for an upload, another device or another lane
};

// Returns the state of `input`. `lane` is the op's lane. If it is null, no input is kPosted.
inline InputState StateOf(const Tensor& input, const Executor::Lane* lane) {
  if (input.done()) return input.status().ok() ? InputState::kReady : InputState::kFailed;
  return lane != nullptr && input.PostedTo(lane) ? InputState::kPosted : InputState::kPending;
}

inline bool IsReady(const Tensor& input) { return StateOf(input, nullptr) == InputState::kReady; }

inline bool AllReady(absl::Span<const TensorRef> inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const TensorRef& input) { return IsReady(*input); });
}

// Returns whether a thread that holds the executor's InlineLock may run the op itself. Route 1
// finds the op by its inputs, so it applies these two conditions one after the other: IsReady() to
// each input, before it looks for the op, and then runs_inline().
inline bool CanRunInline(const Executable& op, absl::Span<const TensorRef> inputs) {
  return op.runs_inline() && AllReady(inputs);
}

// Returns the index of the first input that is not on `slot` or whose spec differs from specs[i].
// If there is none, returns inputs.size(). `specs` and `inputs` must have the same size. The inputs
// need not be done.
inline size_t FirstMismatch(absl::Span<const TensorSpec> specs, const DeviceSlot* slot,
                            absl::Span<const TensorRef> inputs) {
  size_t i = 0;
  while (i < inputs.size() && inputs[i]->slot() == slot && inputs[i]->spec() == specs[i]) ++i;
  return i;
}

}  // namespace tensord::server
