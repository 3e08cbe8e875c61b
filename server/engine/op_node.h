// An op on its way: waits for its inputs, is posted to its device, runs, keeps its promise.
#pragma once

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "tensord/server/engine/recipe.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

class OpNode : public std::enable_shared_from_this<OpNode> {
 public:
  OpNode(SessionRef session, std::shared_ptr<Executable> executable, TensorRefs inputs,
         TensorRefs outputs);

  // Posts the op once its inputs allow. Call once.
  void Schedule();

 private:
  void InputReady();
  void RunOnExecutor();
  absl::StatusOr<BufferRefs> Execute();

  SessionRef session_;
  std::shared_ptr<Executable> executable_;
  TensorRefs inputs_;
  TensorRefs outputs_;
  std::atomic<int> pending_{1};
};

// Runs an op at once, on the calling thread, which holds the executor's turn: the outputs are done
// after it. All inputs are there.
void RunBrief(Executable& executable, absl::Span<const TensorRef> inputs,
              absl::Span<const TensorRef> outputs);

// Copies `input` to the device of `output` when it is complete, then keeps the promise.
void ScheduleCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output);

// Calls back when `tensor` is done and its device has finished with it.
void WhenComplete(const TensorRef& tensor, std::function<void(absl::Status)> callback);

}  // namespace tensord::server
