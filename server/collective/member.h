// A member of a group: its operations, in order, on a thread of their own.
//
// An operation waits until its tensor is there, takes memory for its result, asks the others
// whether all are about to do the same, and does it. No device waits for any of that: the result
// is promised, as an upload's is, and what depends on it waits as it does for an upload.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"
#include "tensord/server/collective/communicator.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// What a client asks of a member.
struct CollectiveRequest {
  CollectiveOp op;
  Handle input = 0;  // 0: none
  Handle output = 0;
  absl::Status refused;  // where it makes no sense: the other members are told
};

// Thread-safe.
class CollectiveMember : public std::enable_shared_from_this<CollectiveMember> {
 public:
  // `engine` and `slot` outlive it.
  CollectiveMember(Engine* engine, DeviceSlot* slot, const GroupPlace& place,
                   std::unique_ptr<Communicator> communicator);

  const Communicator& communicator() const { return *communicator_; }
  int size() const { return place_.size; }

  // Serves until the member leaves or its group fails. The member's thread, and nothing else.
  void Serve();

  // Calls back, from the member's thread, when it is connected with all others or can't be: the
  // group is done for then. Asking again once it is connected changes nothing. At once with
  // INVALID_ARGUMENT or PERMISSION_DENIED for addresses that aren't right.
  void Connect(std::vector<std::string> addresses, std::function<void(absl::Status)> done);

  // Promises the result. What is wrong with the request is returned, and told to the others, whose
  // operation fails likewise; the group goes on. FAILED_PRECONDITION before Connect; what the group
  // has failed with, once it has.
  absl::StatusOr<TensorRef> Run(const SessionRef& session, const CollectiveRequest& request);

  // Ends once all that has been asked of it is done; more can't be asked.
  void LeaveWhenDone();
  // Ends: what has been promised fails with `why`, what is asked later, too.
  void Leave(absl::Status why);

 private:
  struct Work {
    SessionRef session;  // null where the request was refused
    CollectiveOp op;
    uint64_t sequence = 0;
    TensorRef input;
    TensorRef output;
    bool ready = false;  // the input is there, or has failed
    absl::Status status;
  };
  using WorkRef = std::shared_ptr<Work>;

  absl::StatusOr<WorkRef> Promise(const SessionRef& session, const CollectiveRequest& request);
  absl::StatusOr<TensorRef> FindInput(const Session& session,
                                      const CollectiveRequest& request) const;
  void AwaitInput(const WorkRef& work, const TensorRef& input);
  // CANCELLED where it is to leave, and has nothing to do any more.
  absl::Status CheckLeaving();
  bool IsConnected();
  // The first, once its input is there; null where there is none.
  WorkRef TakeReady();
  absl::Status ConnectNow();
  // An error is the group's end.
  absl::Status RunNow(Work& work);
  absl::Status Exchange(Work& work, BufferRef* output, absl::Status* verdict);
  void Finish(Work& work, absl::StatusOr<BufferRef> result);
  void End(const absl::Status& why);

  Engine* const engine_;
  DeviceSlot* const slot_;
  const GroupPlace place_;
  const std::unique_ptr<Communicator> communicator_;

  Mutex mu_;
  bool asked_to_connect_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void(absl::Status)>> connecting_ ABSL_GUARDED_BY(mu_);
  std::deque<WorkRef> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t sequence_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
