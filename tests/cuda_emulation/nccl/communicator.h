// One rank's end of a communicator.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/nccl/frame_socket.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"
#include "tensord/tests/cuda_emulation/nccl/unique_id.h"

namespace tensord::nccl_emulation {

// Owns a thread that connects to the hub, starts operations, and exchanges frames with the hub.
// Thread-safe.
class Communicator {
 public:
  // Starts the thread. `device` is the rank's GPU.
  Communicator(const UniqueId& id, int rank, int size, int device);
  // Call Abort() first.
  ~Communicator();

  int rank() const { return join_.rank; }
  int size() const { return join_.size; }
  int device() const { return join_.device; }

  // Returns the result for ncclCommGetAsyncError(): ncclInProgress while the ranks connect and
  // while an operation is being started; ncclSuccess otherwise. After an error, always the first
  // error.
  ncclResult_t state();

  // Sets the text of ncclGetLastError(), and the error if there is none yet. Operations in progress
  // continue.
  void Fail(ncclResult_t error, const std::string& text);

  // Sets the state to ncclInProgress, until the communicator's thread has called `enqueue` with the
  // operation's number. If `enqueue` returns an error, the communicator fails with it. Returns
  // ncclInProgress; if the state isn't ncclSuccess, returns the state and does nothing.
  ncclResult_t Start(std::function<ncclResult_t(uint64_t number)> enqueue);

  // Runs operation `number` on the thread of a stream. Blocks until all earlier operations have
  // their outputs, then until this one has, and returns the output. Returns nullopt if the ranks'
  // calls differ, and after Abort(). If a connection is lost, blocks until Abort(), as NCCL's
  // kernels do.
  std::optional<std::string> Exchange(uint64_t number, const Operation& op,
                                      const std::string& input);

  // Disconnects, and ends Exchange() and the thread. Call it once.
  void Abort();

 private:
  void Run();
  // Returns the connected socket; -1 if Abort() was called or the connection was refused.
  int Connect();
  // Queues the request of Exchange() in the socket and starts the operation of Start(), if there
  // are any. Returns false after Abort().
  bool ApplyCommands(FrameSocket* socket);
  void HandleFrame(const Frame& frame);
  // Fails the communicator after an error of the hub or of a connection. Exchange() then returns
  // nullopt: at once, or after ncclRemoteError at Abort().
  void FailConnection(ncclResult_t error, const std::string& text);

  void Wake();
  // Blocks until Wake() is called or `fd` has one of `events`. Returns whether `fd` has one.
  bool Poll(int fd, short events);
  bool Ended() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return aborted_ || broken_ != ncclSuccess; }

  const sockaddr_in hub_address_;
  const Join join_;
  const int wake_fd_;

  Mutex mu_;
  CondVar changed_;
  ncclResult_t state_ ABSL_GUARDED_BY(mu_) = ncclInProgress;
  ncclResult_t broken_ ABSL_GUARDED_BY(mu_) = ncclSuccess;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  std::function<ncclResult_t(uint64_t number)> enqueue_ ABSL_GUARDED_BY(mu_);
  uint64_t started_ ABSL_GUARDED_BY(mu_) = 0;                // number of operations
  uint64_t answered_ ABSL_GUARDED_BY(mu_) = 0;               // number of operations with a reply
  std::optional<std::string> request_ ABSL_GUARDED_BY(mu_);  // to be sent
  std::optional<std::string> reply_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace tensord::nccl_emulation
