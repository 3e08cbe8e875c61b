// An op on its way: waits for its inputs, is posted to its device, runs, keeps its promise.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

class OpNode : public std::enable_shared_from_this<OpNode> {
 public:
  // `chains` is null where ops aren't to be fused.
  OpNode(SessionRef session, std::shared_ptr<Executable> executable, TensorRefs inputs,
         TensorRefs outputs, ChainKernels* chains);

  // Posts the op once its inputs allow. Call once.
  void Schedule();

 private:
  void InputReady();
  void RunOnExecutor();
  absl::StatusOr<BufferRefs> RunAlone();
  // Runs this op and those that follow on from it (elementwise ones, or a linear's activation),
  // where nobody else reads what lies between them. False where there is nothing to fuse.
  bool RunChain();
  std::vector<OpNode*> FindChain();
  OpNode* FindNext();

  SessionRef session_;
  std::shared_ptr<Executable> executable_;
  TensorRefs inputs_;
  TensorRefs outputs_;
  ChainKernels* const chains_;
  PreparedOpRef op_;      // the executable, where that is one op
  bool has_run_ = false;  // as part of a chain that began before it
  std::atomic<int> pending_{1};
};

// Runs an op at once, on the calling thread, which holds the executor's turn: the outputs are done
// after it. All inputs are there.
void RunInline(Session& session, Executable& executable, absl::Span<const TensorRef> inputs,
               absl::Span<const TensorRef> outputs);

// Copies `input` to the device of `output` when it is complete, then keeps the promise.
void ScheduleCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output);

// Calls back when `tensor` is done and its device has finished with it.
void WhenComplete(const TensorRef& tensor, std::function<void(absl::Status)> callback);

}  // namespace tensord::server
