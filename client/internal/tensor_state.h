// The state that the copies of a Tensor share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/client/internal/copy_record.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/session.h"
#include "tensord/common/device_name.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

class Recorder;

// Immutable after it is shared, except `donated_to` and `transfers`. A failed tensor has only a
// status. The destructor drops the handle at the server.
struct TensorState {
  explicit TensorState(absl::Status error) : status(std::move(error)) {}
  TensorState(std::shared_ptr<Session> session, uint64_t handle, TensorSpec spec, DeviceName device)
      : session(std::move(session)), handle(handle), spec(std::move(spec)), device(device) {}
  // A placeholder of a program that is being recorded. It has no handle.
  TensorState(std::shared_ptr<Recorder> recorder, uint32_t value, std::shared_ptr<Session> session,
              TensorSpec spec, DeviceName device)
      : session(std::move(session)),
        spec(std::move(spec)),
        device(device),
        recorder(std::move(recorder)),
        value(value) {}
  ~TensorState() {
    if (handle != 0) session->Drop(handle);
    // If threads of the parent waited for `copy`, the destructor of its condition variable would
    // wait for these threads. A forked child doesn't have them.
    if (copy != nullptr && InForkedChild()) LeakObject(std::move(copy));
  }
  TensorState(const TensorState&) = delete;
  TensorState& operator=(const TensorState&) = delete;

  const absl::Status status;
  const std::shared_ptr<Session> session;
  const uint64_t handle = 0;
  const TensorSpec spec;
  const DeviceName device;
  const std::shared_ptr<Recorder> recorder;
  const uint32_t value = 0;
  // For a copy made by Tensor::To: its outcome. Set before the state is shared.
  std::shared_ptr<CopyRecord> copy;
  // The op to which the tensor was donated, so that it can't be used any more (OpSchema::name);
  // null if it wasn't. The destructor drops the handle nevertheless, because the server keeps it if
  // it refuses the op.
  mutable std::atomic<const char*> donated_to{nullptr};
  // The reads, and the copies to other servers, that need the handle and haven't ended.
  mutable std::atomic<int> transfers{0};
};

// Counts a transfer of a tensor while it exists. Keeps the tensor.
class TransferScope {
 public:
  explicit TransferScope(std::shared_ptr<const TensorState> tensor) : tensor_(std::move(tensor)) {
    tensor_->transfers.fetch_add(1, std::memory_order_relaxed);
  }
  ~TransferScope() { tensor_->transfers.fetch_sub(1, std::memory_order_relaxed); }
  TransferScope(const TransferScope&) = delete;
  TransferScope& operator=(const TransferScope&) = delete;

 private:
  const std::shared_ptr<const TensorState> tensor_;
};

// Returns whether the server must keep the tensor's handle for a transfer that hasn't ended: a
// read, a copy of it to another server, or the copy that makes it.
inline bool IsInTransfer(const TensorState& state) {
  return state.transfers.load(std::memory_order_relaxed) > 0 ||
         (state.copy != nullptr && state.copy->runs());
}

// Returns the tensor's status, or FAILED_PRECONDITION if it was donated.
absl::Status StatusOf(const TensorState& state);

// Returns the handle of an input for a command. If the tensor is a running copy, the copy then goes
// on even if the program drops it.
inline uint64_t InputHandle(const std::shared_ptr<const TensorState>& input) {
  if (input->copy != nullptr && !InForkedChild()) input->copy->KeepTensor(input);
  return input->handle;
}

}  // namespace tensord::internal
