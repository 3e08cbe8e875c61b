// Host transfers through rings of pinned memory. The CPU copies one piece between the caller's
// memory and the ring while the GPU's copy engine moves another piece. Each device has one ring per
// direction. Each ring has a stream of its own, so kernels run concurrently.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

inline constexpr int kStagingSlots = 16;
inline constexpr int64_t kStagingSlotBytes = int64_t{1} << 20;

// Returns the size of a piece in a transfer of `bytes` bytes. A transfer has several pieces, so
// that the two copies overlap. Pieces are large enough that starting a copy takes less time than
// the copy.
int64_t StagingPieceBytes(int64_t bytes);

// Copies between pinned host memory and the GPU on `stream`, without a ring. Blocks until the copy
// has ended.
absl::Status CopyPinned(void* dst, const void* src, int64_t bytes, cudaMemcpyKind direction,
                        cudaStream_t stream, EventPool& events);

// The pinned memory of a ring, divided into slots, and the stream of its copies. `Slot` has a
// member `host`, the slot's memory, and an Event `done`.
template <typename Slot>
struct StagingMemory {
  static absl::StatusOr<StagingMemory> Allocate() {
    StagingMemory staging;
    TENSORD_ASSIGN_OR_RETURN(staging.memory, MakePinnedMemory(kStagingSlots * kStagingSlotBytes));
    TENSORD_ASSIGN_OR_RETURN(staging.stream, MakeStream());
    staging.slots.resize(kStagingSlots);
    for (int i = 0; i < kStagingSlots; ++i) {
      staging.slots[i].host = static_cast<char*>(staging.memory.get()) + i * kStagingSlotBytes;
      TENSORD_ASSIGN_OR_RETURN(staging.slots[i].done, MakeEvent());
    }
    return staging;
  }

  PinnedMemory memory;
  Stream stream;
  std::vector<Slot> slots;  // kStagingSlots of them
};

// Thread-safe. The device's GPU must be current for each call except OrderAfterUploads().
class UploadRing {
 public:
  static absl::StatusOr<std::unique_ptr<UploadRing>> Create();
  ~UploadRing();

  cudaStream_t stream() const { return stream_.get(); }

  // Calls `fill` to write `bytes` bytes to the ring (see Device::WriteBy), and enqueues their
  // copies to `dst`, which is on the GPU, on stream(). Blocks while no slot is free. The copies may
  // end after Upload() has returned.
  absl::Status Upload(void* dst, int64_t bytes, Device::Fill fill);

  // Makes work that is enqueued on `stream` later wait for uploads into [data, data + bytes). Their
  // Upload() calls must have returned.
  absl::Status OrderAfterUploads(const void* data, int64_t bytes, cudaStream_t stream);

 private:
  struct Slot {
    char* host = nullptr;
    Event done;              // recorded after the copy to the GPU
    bool claimed = false;    // a caller fills the slot, or waits until it may fill it
    bool in_flight = false;  // the copy may not have ended; `done` shows whether it has
    int64_t last_use = 0;    // the value of uses_ at the last use
    const char* dst = nullptr;
    int64_t bytes = 0;
  };

  UploadRing() = default;

  // Blocks until a slot is free, and returns it. The caller must fill it and pass it to Submit().
  absl::StatusOr<Slot*> Claim();
  // Enqueues the copy of a filled slot to `dst`, and ends the claim.
  absl::Status Submit(Slot* slot, char* dst, int64_t bytes);
  void SetInFlight(Slot* slot, bool in_flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Slot* OldestUnclaimed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PinnedMemory memory_;
  Stream stream_;
  Mutex mu_;
  CondVar unclaimed_;
  // kStagingSlots slots. mu_ guards their members, except `host` and `done`.
  std::vector<Slot> slots_;
  int64_t uses_ ABSL_GUARDED_BY(mu_) = 0;  // of all slots so far
  // The number of slots in flight. If it is 0, OrderAfterUploads() doesn't lock mu_.
  std::atomic<int> in_flight_ = 0;
};

// Thread-safe. The device's GPU must be current for each call.
class DownloadRing {
 public:
  static absl::StatusOr<std::unique_ptr<DownloadRing>> Create();
  ~DownloadRing();

  cudaStream_t stream() const { return stream_.get(); }

  // Copies from the GPU's memory to host memory, on stream(). Blocks until the copy has ended.
  absl::Status Download(void* dst, const void* src, int64_t bytes);

 private:
  struct Slot {
    char* host = nullptr;
    Event done;
  };
  struct Piece {
    Slot* slot;
    int64_t offset;
    int64_t bytes;
  };

  DownloadRing() = default;

  // Returns a free slot. If there is none, blocks until there is one, or returns null if not
  // `wait`.
  Slot* Claim(bool wait);
  void Release(Slot* slot);
  // Enqueues the copy of a piece of `src` to its slot.
  absl::Status Start(const Piece& piece, const char* src);
  // Blocks until the piece is in its slot, and copies it to its place in `dst`.
  absl::Status Finish(const Piece& piece, char* dst);

  PinnedMemory memory_;
  Stream stream_;
  std::vector<Slot> slots_;
  Mutex mu_;
  CondVar released_;
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cuda
