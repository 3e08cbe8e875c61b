// A tensor of the server. Its spec and device are known from the start. It becomes done when it has
// memory, or has failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/executor.h"
#include "tensord/server/device/slabs.h"
#include "tensord/server/session/upload_state.h"
#include "tensord/server/session/value_checks.h"

namespace tensord::server {

// The number by which a client names a tensor. The client chooses it. It is unique in its session
// and never 0.
using Handle = uint64_t;

// A device and the thread that launches its work.
struct DeviceSlot {
  int index;  // position in the server's list
  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  PendingChecks checks;
};

class OpNode;
class Tensor;
using TensorRef = std::shared_ptr<Tensor>;

// Thread-safe. Goes from pending to done once, and stays done.
class Tensor {
 public:
  using Waiter = std::function<void()>;

  // Use Make(). The second constructor makes a tensor that is done from the start.
  Tensor(Handle handle, TensorSpec spec, DeviceSlot* slot)
      : handle_(handle), spec_(std::move(spec)), slot_(slot) {}
  Tensor(Handle handle, TensorSpec spec, DeviceSlot* slot, BufferRef buffer,
         CheckListRef checks = nullptr)
      : handle_(handle),
        spec_(std::move(spec)),
        slot_(slot),
        done_(true),
        buffer_(std::move(buffer)),
        checks_(Stored(std::move(checks))) {}

  // Returns a new tensor. The arguments are those of a constructor.
  template <typename... Args>
  static TensorRef Make(Args&&... args) {
    return std::allocate_shared<Tensor>(SlabAllocator<Tensor>(), std::forward<Args>(args)...);
  }

  // Returns a tensor for a handle whose op was refused: done from the start, with that error, an
  // empty spec and no device.
  static TensorRef Failed(Handle handle, absl::Status error);

  // Returns a pending tensor that an upload fills.
  static TensorRef ForUpload(Handle handle, TensorSpec spec, DeviceSlot* slot);

  // The estimated host memory of a handle, which is charged to its session: the entry in the table,
  // this object, and its buffer without the elements. host_bytes() adds the dimensions of a shape
  // of high rank, the state of an upload, and the text of an error.
  static constexpr int64_t kHostBytes = 256;
  int64_t host_bytes() const {
    const int64_t rank = spec_.shape.rank();
    return kHostBytes + (rank > kInlineRank ? rank * 8 : 0) + extra_host_bytes_;
  }
  // Adds to host_bytes(). Not thread-safe: if a session has the handle, its lock guards this.
  void AddHostBytes(int64_t bytes) { extra_host_bytes_ += static_cast<int32_t>(bytes); }

  Handle handle() const { return handle_; }
  const TensorSpec& spec() const { return spec_; }
  DeviceSlot* slot() const { return slot_; }  // null only for Failed()
  Device& device() const { return *slot_->device; }

  // Returns whether the tensor is done. Only then may status(), buffer() and checks() be called.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Returns OK, or the root error of the op that failed. OK turns into an error if the device that
  // holds the memory is lost (DATA_LOSS), or if a value check fails. The reference is valid while
  // the tensor exists.
  const absl::Status& status() const {
    if (buffer_ == nullptr) return status_;
    const absl::Status* loss = buffer_->device().loss();
    if (loss != nullptr) return *loss;
    return checks_ == nullptr ? status_ : (*checks_)->status();
  }
  // Returns the memory; null if the tensor has failed. The kernel that fills it has been launched
  // on the tensor's device. It has finished if the device has completed a Fence() since.
  const BufferRef& buffer() const { return buffer_; }
  // Returns the value checks on which status() depends; null if there are none.
  const CheckListRef& checks() const {
    static const CheckListRef none;
    return checks_ == nullptr ? none : *checks_;
  }

  // Records that the op that makes the tensor was posted to `lane`. Tasks that are posted to the
  // same lane later run after it.
  void SetPosted(const Executor::Lane* lane) { posted_.store(lane, std::memory_order_release); }
  bool PostedTo(const Executor::Lane* lane) const {
    return posted_.load(std::memory_order_acquire) == lane;
  }

  // Records a posted op that reads the tensor. Replaces the reader that an earlier call recorded.
  // The op exists at least until the tensor is done.
  void SetReader(OpNode* reader) { reader_.store(reader, std::memory_order_release); }
  OpNode* reader() const { return reader_.load(std::memory_order_acquire); }

  // Asks the op that makes the tensor to stop. The op fails, unless it is finishing already.
  void RequestStop() { stop_requested_.store(true, std::memory_order_relaxed); }
  // Returns the flag that RequestStop() sets.
  const std::atomic<bool>& stop_flag() const { return stop_requested_; }

  // Returns the upload that fills the tensor; null if ForUpload() did not make the tensor.
  UploadState* upload() const { return upload_.get(); }

  // Makes the tensor done and runs the waiters on this thread. If it is done already, does nothing.
  // `checks` are the value checks of the memory.
  void Finish(absl::StatusOr<BufferRef> result, CheckListRef checks = nullptr);

  // Runs `waiter` when the tensor is done, on the thread that calls Finish(). If the tensor is done
  // already, runs it at once.
  void WhenDone(Waiter waiter);

 private:
  static std::unique_ptr<const CheckListRef> Stored(CheckListRef checks) {
    return checks == nullptr ? nullptr : std::make_unique<const CheckListRef>(std::move(checks));
  }

  // Returns the lock for waiters_ and the change of done_. Many tensors share one lock, so no
  // waiter is called while it is held.
  Mutex& mu() const;

  const Handle handle_;
  const TensorSpec spec_;
  DeviceSlot* const slot_;
  std::atomic<const Executor::Lane*> posted_{nullptr};
  std::atomic<OpNode*> reader_{nullptr};

  int32_t extra_host_bytes_ = 0;
  std::atomic<bool> done_{false};
  std::atomic<bool> stop_requested_{false};
  absl::Status status_;  // written before done_ is set, read after
  BufferRef buffer_;     // the same
  // Few tensors have checks, so most tensors hold only a null pointer; never points to null.
  std::unique_ptr<const CheckListRef> checks_;  // the same

  std::unique_ptr<UploadState> upload_;  // set before the tensor is shared

  std::unique_ptr<std::vector<Waiter>> waiters_;  // guarded by mu(); null if there are none
};

// Calls UploadState::Abandon() for each of these tensors that has an upload. Their handles have
// been deleted.
void AbandonUploads(absl::Span<const TensorRef> tensors);

}  // namespace tensord::server
