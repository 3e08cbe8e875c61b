// The members of groups on this server, by session.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/collective/communicator_factory.h"
#include "tensord/server/collective/member.h"
#include "tensord/server/communicator/network.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Thread-safe. When its session ends, a member still runs the operations whose inputs are complete,
// because the other members need them, and then ends.
class Collectives {
 public:
  static constexpr uint32_t kMaxGroupSize = 1024;
  static constexpr std::chrono::milliseconds kDefaultTimeout{30000};
  static constexpr std::chrono::milliseconds kMaxTimeout{3600000};
  static constexpr size_t kMaxNameBytes = 512;

  // A request for a member of a group (v1::JoinGroupRequest).
  struct Join {
    uint32_t member = 0;
    std::string device;
    uint32_t rank = 0;
    uint32_t size = 0;
    int64_t timeout_milliseconds = 0;
    std::string group_id;
    std::vector<std::string> member_names;
  };

  // `engine` must outlive this object. `makers` are passed to MakeCommunicator().
  Collectives(Engine* engine, CollectiveNetwork network, const Limits& limits,
              CommunicatorMakers makers);
  // Ends the remaining members and joins their threads.
  ~Collectives();

  // Makes a member. Errors: INVALID_ARGUMENT for an invalid request; NOT_FOUND if the server has no
  // such device; ALREADY_EXISTS if the member number is in use; UNAVAILABLE if the device is lost,
  // or the member can't listen; UNIMPLEMENTED if the device can't be a member; FAILED_PRECONDITION
  // if the session is closed; RESOURCE_EXHAUSTED past max_group_members,
  // max_group_members_per_session, max_group_members_per_principal or a limit of host memory, or if
  // the server has too few descriptors for the connections.
  absl::StatusOr<std::shared_ptr<CollectiveMember>> Make(const SessionRef& session,
                                                         const Join& join);
  // If the session has no such member, returns NOT_FOUND.
  absl::StatusOr<std::shared_ptr<CollectiveMember>> Find(const SessionRef& session,
                                                         uint32_t member) const;
  // Finds the member and calls CollectiveMember::Run(). Returns the errors of both.
  absl::StatusOr<TensorRef> Run(const SessionRef& session, uint32_t member,
                                const CollectiveRequest& request) const;
  // Ends a member at once. If there is no such member, returns NOT_FOUND.
  absl::Status Leave(const SessionRef& session, uint32_t member);
  // Ends a member after it has run all its operations. If there is no such member, returns
  // NOT_FOUND.
  absl::Status LeaveWhenDone(const SessionRef& session, uint32_t member);

 private:
  struct Running {
    std::shared_ptr<CollectiveMember> member;
    std::thread thread;
    bool ended = false;
  };

  absl::Status Check(const Join& join) const;
  absl::Status Start(const std::shared_ptr<CollectiveMember>& member);
  void Serve(Running* running);
  // Removes and returns the members that have ended.
  std::list<Running> TakeEndedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Engine* const engine_;
  const CollectiveNetwork network_;
  const CommunicatorMakers makers_;
  const int64_t max_members_;
  const int64_t max_members_per_session_;
  const int64_t max_descriptors_;

  Mutex mu_;
  std::list<Running> running_ ABSL_GUARDED_BY(mu_);
  int64_t descriptors_ ABSL_GUARDED_BY(mu_) = 0;  // of all members
};

}  // namespace tensord::server
