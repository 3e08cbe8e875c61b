// The hub of a communicator: a thread that gathers what all ranks bring to an operation, computes
// the result, and answers each rank. It runs in the process that called ncclGetUniqueId().
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

// Once anything is wrong, the hub sends the error to all ranks, and to those that join later.
class Hub {
 public:
  // Listens at the address of InterfaceAddress(). Returns null with a text in `error` if that
  // fails.
  static std::unique_ptr<Hub> Start(std::string* error);
  // Closes all connections.
  ~Hub();

  const UniqueId& id() const { return id_; }
  // Returns true when ranks have joined and all of them have left. Thread-safe.
  bool finished() const { return finished_; }

 private:
  struct Member {
    explicit Member(int fd) : socket(fd) {}
    FrameSocket socket;
    std::optional<Join> join;            // once the hub has accepted it
    std::optional<Operation> operation;  // that has not been answered
    std::string input;
    bool lost = false;
  };

  Hub(int listener, const UniqueId& id);

  void Run();
  void Accept();
  void Serve(Member& member);
  void HandleJoin(Member& member, const std::string& payload);
  // Returns what is wrong with a join that has the id; empty if nothing is.
  std::string CheckJoin(const Join& join) const;
  void HandleRequest(Member& member, const std::string& payload);
  // Returns how the operation differs from the one that another rank has called; empty if it
  // doesn't.
  std::string CompareWithOthers(const Member& member) const;
  void AnswerAll();
  void DropLost();

  std::vector<Member*> Joined() const;
  void Fail(ncclResult_t result, const std::string& text);
  static void SendError(Member& member, ncclResult_t result, const std::string& text);

  const int listener_, stop_fd_;
  const UniqueId id_;
  std::vector<std::unique_ptr<Member>> members_;  // connections, some of which have not joined yet
  bool complete_ = false;                         // all ranks have joined
  ncclResult_t failure_ = ncclSuccess;
  std::string failure_text_;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

}  // namespace tensord::nccl_emulation
