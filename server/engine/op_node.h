// An op that was accepted and has not run: it waits for its inputs, posts itself to its device's
// executor, runs there, and finishes its outputs.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/inline_watch.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

class OpNode : public std::enable_shared_from_this<OpNode> {
 public:
  // `chains` is null if ops must not be fused. The caller has called InFlight::Begin(host_bytes).
  OpNode(SessionRef session, std::shared_ptr<Executable> executable, TensorRefs inputs,
         TensorRefs outputs, ChainKernels* chains, int64_t host_bytes);

  // Posts the op when no input is kPending (readiness.h). Call it once.
  void Schedule();

 private:
  // Runs when a kPending input is done (with a result or an error), and when Schedule() has seen
  // all inputs. The last of these calls posts the op.
  void OnInputDone();
  void RunOnExecutor();
  // Runs the op. `checks` gets the value checks of the results.
  absl::StatusOr<BufferRefs> RunAlone(CheckListRef* checks);
  // Runs this op and the ops that follow it (elementwise ops, or the activation of a linear) as one
  // kernel. Nothing else may refer to the tensors between them. If there is no such chain, or its
  // kernel isn't compiled yet, runs nothing and returns false.
  bool RunChain();
  std::vector<OpNode*> FindChain();
  OpNode* FindNext();

  SessionRef session_;
  std::shared_ptr<Executable> executable_;
  TensorRefs inputs_;
  TensorRefs outputs_;
  ChainKernels* const chains_;
  const int64_t host_bytes_;
  PreparedOpRef op_;             // executable_; null if that is a program
  bool has_run_ = false;         // an earlier op ran this op in its chain
  std::atomic<int> pending_{1};  // kPending inputs, plus 1 until Schedule() has seen all inputs
};

// Runs an op on the calling thread, which must hold the executor's InlineLock. All inputs must be
// ready. When this function returns, the outputs are done.
void RunInline(Session& session, Executable& executable, absl::Span<const TensorRef> inputs,
               absl::Span<const TensorRef> outputs, InlineWatch* watch);

// Posts the copy of `input`, which must be readable (Engine::WhenReadable), to the device of
// `output`, then finishes `output`.
void PostCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output);

}  // namespace tensord::server
