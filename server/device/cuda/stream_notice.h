// Notifies a group member's thread when a CUDA stream has reached a point.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/communicator/peer_mesh.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server {

// Wakes a member's thread when its stream reaches a point. Thread-safe.
class StreamNotice {
 public:
  // When the stream reaches the point, calls mesh->Wake(), unless `mesh` is null or Disconnect()
  // has been called.
  explicit StreamNotice(PeerMesh* mesh) : mesh_(mesh) {}

  // Sets the point to the current end of `stream`. The stream's host function owns a reference to
  // `notice`. If the context is lost, CUDA never calls this function, and a few bytes leak.
  static absl::Status Enqueue(const std::shared_ptr<StreamNotice>& notice, cudaStream_t stream) {
    auto reference = std::make_unique<std::shared_ptr<StreamNotice>>(notice);
    TENSORD_CUDA_RETURN_IF_ERROR(cudaLaunchHostFunc(stream, Notify, reference.get()));
    reference.release();
    return absl::OkStatus();
  }

  // Returns true if the stream has reached the point.
  bool happened() {
    MutexLock lock(&mu_);
    return happened_;
  }
  // Blocks until the stream reaches the point, at most for `pause`.
  void WaitFor(std::chrono::milliseconds pause) {
    MutexLock lock(&mu_);
    if (!happened_) changed_.WaitFor(&mu_, pause);
  }
  // The mesh isn't used after this returns.
  void Disconnect() {
    MutexLock lock(&mu_);
    mesh_ = nullptr;
  }

 private:
  static void CUDART_CB Notify(void* data) {
    const std::unique_ptr<std::shared_ptr<StreamNotice>> reference(
        static_cast<std::shared_ptr<StreamNotice>*>(data));
    StreamNotice& notice = **reference;
    MutexLock lock(&notice.mu_);
    notice.happened_ = true;
    notice.changed_.SignalAll();
    if (notice.mesh_ != nullptr) notice.mesh_->Wake();
  }

  Mutex mu_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mu_) = false;
  PeerMesh* mesh_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
