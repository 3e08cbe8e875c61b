// An op on its way: waits for its inputs, is posted to its device, runs, keeps its promise.
#pragma once

#include <atomic>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "tensord/common/op_schema.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

class OpNode : public std::enable_shared_from_this<OpNode> {
 public:
  using Inputs = absl::InlinedVector<TensorRef, 3>;

  OpNode(SessionRef session, OpPlan plan, Inputs inputs, TensorRef output);

  // Posts the op once its inputs allow. Call once.
  void Schedule();

 private:
  void InputReady();
  void RunOnExecutor();
  absl::StatusOr<BufferRef> Execute();
  absl::StatusOr<BufferRef> MakeConstant();
  absl::StatusOr<BufferRef> RunKernel();

  SessionRef session_;
  OpPlan plan_;
  Inputs inputs_;
  TensorRef output_;
  std::atomic<int> pending_{1};
};

// Copies `input` to the device of `output` when it is complete, then keeps the promise.
void ScheduleCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output);

// Calls back when `tensor` is done and its device has finished with it.
void WhenComplete(const TensorRef& tensor, std::function<void(absl::Status)> callback);

}  // namespace tensord::server
