// A tensor of the server: known by its spec and device at once, by its memory when the op that
// promised it has run, or by the error that befell it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/mutex.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/executor.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// Chosen by the client, unique in its session, never 0.
using Handle = uint64_t;

class RestartableDevice;

// A device and the thread that launches its work.
struct DeviceSlot {
  int index;  // position in the server's list
  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  RestartableDevice* restartable = nullptr;  // `device`, if it can come back from a fault
};

class OpNode;
class Tensor;
using TensorRef = std::shared_ptr<Tensor>;

// Thread-safe. Goes from pending to done exactly once; done is final.
class Tensor {
 public:
  using Waiter = std::function<void()>;

  Tensor(Handle handle, TensorSpec spec, DeviceSlot* slot)
      : handle_(handle), spec_(std::move(spec)), slot_(slot) {}

  // Done from the start.
  Tensor(Handle handle, TensorSpec spec, DeviceSlot* slot, BufferRef buffer)
      : handle_(handle),
        spec_(std::move(spec)),
        slot_(slot),
        done_(true),
        buffer_(std::move(buffer)) {}

  // Nobody wants it any more: what was to bring it is broken off.
  ~Tensor();

  // A handle whose op was refused: done from the start, with that error and no spec.
  static TensorRef Failed(Handle handle, absl::Status error);

  Handle handle() const { return handle_; }
  const TensorSpec& spec() const { return spec_; }
  DeviceSlot* slot() const { return slot_; }  // null only for Failed()
  Device& device() const { return *slot_->device; }

  // Whether status() and buffer() may be asked for.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Once done: the root error of the op that failed, or OK. What was OK becomes DATA_LOSS when the
  // device that holds the memory is lost.
  const absl::Status& status() const {
    if (buffer_ == nullptr) return status_;
    const absl::Status* loss = buffer_->device().loss();
    return loss == nullptr ? status_ : *loss;
  }
  // Once done and not failed. The kernel that fills it has been launched on the tensor's device,
  // and is finished where the device's Fence has called back since.
  const BufferRef& buffer() const { return buffer_; }

  // The op that makes the tensor has been posted to `lane`: whatever is posted there later runs
  // later.
  void SetPosted(const Executor::Lane* lane) { posted_.store(lane, std::memory_order_release); }
  bool PostedTo(const Executor::Lane* lane) const {
    return posted_.load(std::memory_order_acquire) == lane;
  }

  // An op that waits to run and reads the tensor: the last one that said so. It is there at least
  // until the tensor is done.
  void SetReader(OpNode* reader) { reader_.store(reader, std::memory_order_release); }
  OpNode* reader() const { return reader_.load(std::memory_order_acquire); }

  // An upload will bring the tensor, and whoever claims it first is to do it. False where no upload
  // was announced or it has been claimed.
  void AnnounceUpload() {
    of_upload_.store(true, std::memory_order_relaxed);
    announced_.store(true, std::memory_order_release);
  }
  bool ClaimUpload() { return announced_.exchange(false, std::memory_order_acq_rel); }

  // Whether one was ever announced.
  bool of_upload() const { return of_upload_.load(std::memory_order_relaxed); }

  // An upload that has been broken off: memory, where any has been taken, and how much has come.
  struct PartialUpload {
    BufferRef buffer;
    int64_t written_bytes = 0;
    UsageHold in_flight;
  };
  // For who has claimed the upload: what there is already. `stop`, which may be called until
  // ParkUpload or Finish, from any thread and with a lock held, is to break it off.
  PartialUpload TakePartialUpload(std::function<void()> stop);
  // Keeps what has come for whoever claims the upload next; or, where GiveUpUpload has been called,
  // fails the tensor.
  void ParkUpload(PartialUpload partial);
  // No upload can name the tensor any more: it fails if it waits for one, now, or when the one that
  // is under way breaks off.
  void GiveUpUpload();
  // Calls back when nobody is uploading: breaks off what is under way.
  void StopUpload(Waiter resting);
  // For who has taken the partial upload of a tensor in memory that the host reaches: its first
  // `bytes` are there, and may be sent on.
  void Received(const BufferRef& buffer, int64_t bytes);
  // What is there while it isn't done; no buffer where nothing is.
  struct ReceivedPart {
    BufferRef buffer;
    int64_t bytes = 0;
  };
  ReceivedPart received();
  // Runs `waiter` when more than `bytes` have been received, or the tensor is done: as WhenDone.
  void WhenReceived(int64_t bytes, Waiter waiter);
  // Fails what was promised for an upload, under way or not; false where that is over, or it never
  // was.
  bool FailPromise(const absl::Status& error);
  // Of a parked upload.
  int64_t parked_bytes();

  // Makes it done and runs the waiters on this thread.
  void Finish(absl::StatusOr<BufferRef> result);

  // Runs `waiter` when the tensor is done: now, on this thread, where it is already.
  void WhenDone(Waiter waiter);

 private:
  absl::Status GivenUp() const;

  const Handle handle_;
  const TensorSpec spec_;
  DeviceSlot* const slot_;
  std::atomic<const Executor::Lane*> posted_{nullptr};
  std::atomic<bool> announced_{false};
  std::atomic<bool> of_upload_{false};
  std::atomic<OpNode*> reader_{nullptr};

  std::atomic<bool> done_{false};
  absl::Status status_;  // written before done_ is set, read after
  BufferRef buffer_;     // likewise

  struct UploadState {
    PartialUpload partial;
    std::function<void()> stop;  // set while an upload is under way
    std::vector<Waiter> waiters;
    ReceivedPart received;
  };
  struct ByteWaiter {
    int64_t bytes;
    Waiter waiter;
  };

  Mutex mu_;
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<UploadState> upload_ ABSL_GUARDED_BY(mu_);  // made by the first upload
  std::unique_ptr<std::vector<ByteWaiter>> byte_waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
