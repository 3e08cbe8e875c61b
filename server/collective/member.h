// A member of a group. It runs its operations in order, on a thread of its own.
//
// For each operation the member waits until the input is complete, allocates the result, agrees
// with the other members on the operation, and runs it. No executor waits for this: the result is a
// promised tensor, and ops that depend on it wait as they do for an upload.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/communicator/communicator.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// A client's request for one operation of a member.
struct CollectiveRequest {
  CollectiveOp op;
  Handle input = 0;  // 0: none
  Handle output = 0;
  absl::Status refused;  // if the request is invalid: the error, which the other members get, too
};

// Thread-safe.
class CollectiveMember : public std::enable_shared_from_this<CollectiveMember> {
 public:
  // `engine` and `slot` must outlive the member. `charge` is for the member's host memory.
  // `counted` counts the member against its principal's limit. The member keeps both until it is
  // destroyed.
  CollectiveMember(Engine* engine, DeviceSlot* slot, const GroupPlace& place,
                   std::unique_ptr<Communicator> communicator, Charge charge, Charge counted);

  const Communicator& communicator() const { return *communicator_; }
  int size() const { return place_.size; }

  // Runs the operations until the member leaves or its group fails. Call it on the member's thread.
  void Serve();

  // Connects with all other members, then calls `done` on the member's thread. If the addresses are
  // wrong, `done` gets INVALID_ARGUMENT or PERMISSION_DENIED, and Connect() may be called again.
  // After any other error the group has failed. If the member is connected already, or has ended,
  // calls `done` at once.
  void Connect(std::vector<std::string> addresses, std::function<void(absl::Status)> done);

  // Queues an operation and returns the promised result. If the request is invalid, returns the
  // error and sends it to the other members, where the operation fails, too; the group continues.
  // If the session has no host memory left for the error, returns RESOURCE_EXHAUSTED and sends
  // nothing. Before Connect(), returns FAILED_PRECONDITION; after LeaveWhenDone(), CANCELLED. If
  // the group has failed, returns its error.
  absl::StatusOr<TensorRef> Run(const SessionRef& session, const CollectiveRequest& request);

  // Ends after all queued operations have run. Accepts no more.
  void LeaveWhenDone();
  // Ends now: queued and later operations fail with `why`.
  void Leave(absl::Status why);
  // The running operation and the queued ones before the first with an incomplete input still run.
  // Then the member ends, and its other operations fail with `why`. If LeaveWhenDone() was called,
  // and no operation is left, the member still waits for the other members. The session has ended,
  // so it adds no operations.
  void LeaveAfterReady(absl::Status why);

  // Appends the results of the operations that haven't ended.
  void AppendUnfinished(std::vector<TensorRef>* results);

 private:
  struct Work {
    SessionRef session;  // null if the request was refused
    CollectiveOp op;
    uint64_t sequence = 0;
    TensorRef input;
    TensorRef output;
    bool ready = false;  // the input is complete or has failed
    absl::Status status;
    Charge charge;  // if the request was refused
  };
  using WorkRef = std::shared_ptr<Work>;

  absl::StatusOr<WorkRef> Promise(const SessionRef& session, const CollectiveRequest& request);
  absl::StatusOr<TensorRef> FindInput(const Session& session,
                                      const CollectiveRequest& request) const;
  void AwaitInput(const WorkRef& work, const TensorRef& input);
  // Returns CANCELLED if the member must leave and has no more operations. After LeaveAfterReady(),
  // returns its status if the next operation can't run.
  absl::Status LeaveStatus();
  bool IsConnected();
  // Returns the first operation if its input is complete, and null otherwise.
  WorkRef TakeReady();
  bool IsFrontReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !queue_.empty() && queue_.front()->ready;
  }
  absl::Status ConnectNow();
  // Runs one operation. If the group has failed, returns the error. If only this operation fails,
  // returns OK.
  absl::Status RunNow(Work& work);
  // Allocates the result and agrees with the other members on the operation. Sets `verdict` to OK
  // if all members can run it. If the group has failed, returns the error.
  absl::Status Exchange(Work& work, BufferRef* output, absl::Status* verdict);
  void Finish(Work& work, absl::StatusOr<BufferRef> result);
  void End(const absl::Status& why);

  Engine* const engine_;
  DeviceSlot* const slot_;
  const GroupPlace place_;
  const std::unique_ptr<Communicator> communicator_;
  const Charge charge_;
  const Charge counted_;

  Mutex mu_;
  bool asked_to_connect_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void(absl::Status)>> connecting_ ABSL_GUARDED_BY(mu_);
  std::deque<WorkRef> queue_ ABSL_GUARDED_BY(mu_);
  TensorRef running_ ABSL_GUARDED_BY(mu_);  // the result of the operation that TakeReady() returned
  absl::Status leave_after_ready_ ABSL_GUARDED_BY(mu_);
  uint64_t sequence_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
