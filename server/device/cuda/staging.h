// Host transfers through rings of pinned memory, so that the copy between the caller's memory and
// the ring goes on while the GPU's copy engine moves another piece. One ring per direction and
// device, each with a stream of its own; kernels run meanwhile.
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

// Bytes to be moved at a time in a transfer of `bytes`: some pieces, so that the two copies
// overlap, but none so small that starting it costs more than moving it.
int64_t StagingPieceBytes(int64_t bytes);

// Pinned memory cut into the slots of a ring, and the stream of its copies. `Slot` has a member
// `host`, the slot's memory, and an Event `done`.
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

// Thread-safe; every call with the device's GPU current.
class UploadRing {
 public:
  static absl::StatusOr<std::unique_ptr<UploadRing>> Create();
  ~UploadRing();

  cudaStream_t stream() const { return stream_.get(); }

  // Calls `fill` to put `bytes` bytes into the ring (see Device::WriteBy), and copies them to
  // `dst`, which is on the GPU. The copies are in the order of stream(). They may end after this
  // returns.
  absl::Status Upload(void* dst, int64_t bytes, Device::Fill fill);

  // Copies from pinned host memory without the ring, in the order of stream(). Blocks until
  // the bytes are at `dst`.
  absl::Status UploadPinned(void* dst, const void* src, int64_t bytes, EventPool& events);

  // Makes work given to `stream` from now on wait for uploads into [data, data + bytes).
  absl::Status OrderAfterUploads(const void* data, int64_t bytes, cudaStream_t stream);

 private:
  struct Slot {
    char* host = nullptr;
    Event done;              // recorded behind the copy to the GPU
    bool claimed = false;    // a caller is filling it, or waiting until it may
    bool in_flight = false;  // the copy may not be over: `done` tells
    int64_t turn = 0;        // grows with every use
    const char* dst = nullptr;
    int64_t bytes = 0;
  };

  UploadRing() = default;

  // A slot that is free to be filled, the caller's until Submit().
  absl::StatusOr<Slot*> Claim();
  absl::Status Submit(Slot* slot, char* dst, int64_t bytes);
  void SetInFlight(Slot* slot, bool in_flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Slot* OldestUnclaimed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PinnedMemory memory_;
  Stream stream_;
  Mutex mu_;
  CondVar unclaimed_;
  std::vector<Slot> slots_;  // kStagingSlots of them; but for `host` and `done`, guarded by mu_
  int64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of slots in flight. If it is 0, OrderAfterUploads() needn't lock mu_.
  std::atomic<int> in_flight_ = 0;
};

// Thread-safe; every call with the device's GPU current.
class DownloadRing {
 public:
  static absl::StatusOr<std::unique_ptr<DownloadRing>> Create();
  ~DownloadRing();

  cudaStream_t stream() const { return stream_.get(); }

  // Copies from the GPU's memory, in the order of stream(), to the host's. Blocks until it is
  // there.
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

  // Waits for a slot where `wait`; otherwise null where there is none.
  Slot* Claim(bool wait);
  void Release(Slot* slot);
  // Starts the copy of a piece into its slot.
  absl::Status Start(const Piece& piece, const char* src);
  // Waits for the piece to be in its slot, and copies it to its place in `dst`.
  absl::Status Finish(const Piece& piece, char* dst);

  PinnedMemory memory_;
  Stream stream_;
  std::vector<Slot> slots_;
  Mutex mu_;
  CondVar released_;
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server::cuda
