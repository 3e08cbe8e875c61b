// The hub of a communicator: a thread that receives the inputs of all ranks for an operation,
// computes the outputs, and sends each rank its output. It runs in the process that called
// ncclGetUniqueId().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tensord/tests/cuda_emulation/nccl/frame_socket.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"
#include "tensord/tests/cuda_emulation/nccl/unique_id.h"

namespace tensord::nccl_emulation {

// After the first error, the hub sends this error to all ranks, including those that join later.
class Hub {
 public:
  // Listens at InterfaceAddress() and starts the thread. If the hub can't listen, sets `error` and
  // returns null.
  static std::unique_ptr<Hub> Start(std::string* error);
  // Stops the thread, which closes all connections.
  ~Hub();

  const UniqueId& id() const { return id_; }
  // Returns true when ranks have joined and all of them have left. Thread-safe.
  bool finished() const { return finished_; }

 private:
  struct Member {
    explicit Member(int fd) : socket(fd) {}
    FrameSocket socket;
    std::optional<Join> join;            // empty before a join with the right secret
    std::optional<Operation> operation;  // empty if no operation waits for its reply
    std::string input;
    bool lost = false;
  };

  Hub(int listener, const UniqueId& id);

  void Run();
  void Accept();
  void Serve(Member& member);
  void HandleJoin(Member& member, const std::string& payload);
  // Returns a description of the error in a join; an empty string if it is valid.
  std::string CheckJoin(const Join& join) const;
  void HandleRequest(Member& member, const std::string& payload);
  // Returns a description of how the member's operation differs from another rank's; an empty
  // string if it doesn't.
  std::string CompareWithOthers(const Member& member) const;
  void AnswerAll();
  void DropLost();

  std::vector<Member*> Joined() const;
  void Fail(ncclResult_t result, const std::string& text);
  static void SendError(Member& member, ncclResult_t result, const std::string& text);

  const int listener_, stop_fd_;
  const UniqueId id_;
  std::vector<std::unique_ptr<Member>> members_;  // all connections, also before their join
  bool complete_ = false;                         // all ranks have joined
  ncclResult_t failure_ = ncclSuccess;
  std::string failure_text_;
  // Set by the thread or the destructor. If the thread is first, it closes stop_fd_.
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

}  // namespace tensord::nccl_emulation
