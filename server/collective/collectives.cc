#include "tensord/server/collective/collectives.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/communicator/handshake.h"

namespace tensord::server {
namespace {

// Groups may use 1 / kDescriptorShare of the process's limit of descriptors. If that limit is above
// kMaxCounted, kMaxCounted counts instead.
constexpr int64_t kDescriptorShare = 4;
constexpr int64_t kMaxCounted = 1 << 16;

int64_t MaxDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return Collectives::kMaxGroupSize;
  const auto descriptors = std::min<uint64_t>(limit.rlim_cur, kMaxCounted);
  return static_cast<int64_t>(descriptors) / kDescriptorShare;
}

// Returns the number of a member's descriptors: its connections, its listener and its eventfd.
int64_t DescriptorsOf(const CollectiveMember& member) { return member.size() + 1; }

// Returns the estimated host memory of a member: its thread, its communicator, and for each peer
// the state of a connection and copies of the name.
int64_t HostBytesFor(const Collectives::Join& join) {
  constexpr int64_t kMemberBytes = 128 << 10, kPeerBytes = 2048, kNameCopies = 4;
  int64_t bytes = kMemberBytes + kPeerBytes * join.size;
  for (const std::string& name : join.member_names) {
    bytes += kNameCopies * static_cast<int64_t>(sizeof(std::string) + name.size());
  }
  return bytes;
}

// The members of one session.
class MemberTable final : public SessionMembers {
 public:
  // Calls `make` if the number is free and the table has fewer than `limit` members.
  absl::StatusOr<std::shared_ptr<CollectiveMember>> Add(
      const Principal& principal, uint32_t number, int64_t limit,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<CollectiveMember>>()> make) {
    MutexLock lock(&mu_);
    if (ended_) return SessionEndedError();
    if (members_.contains(number)) {
      return absl::AlreadyExistsError(
          absl::StrCat("the session has a member ", number, " already; choose another number"));
    }
    RemoveEndedLocked();
    // Members that leave hold their threads and connections until their last operations have run.
    if (static_cast<int64_t>(std::max(members_.size(), leaving_.size())) >= limit) {
      return principal.Refuse({.reason = "SESSION_GROUP_MEMBERS_EXCEEDED",
                               .subject = "session",
                               .limit = "max-group-members-per-session",
                               .value = limit,
                               .message = "the session has its maximum of group members; "
                                          "call LeaveGroup for those that aren't needed"});
    }
    TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<CollectiveMember> member, make());
    members_.emplace(number, member);
    return member;
  }

  absl::StatusOr<std::shared_ptr<CollectiveMember>> Find(uint32_t number) {
    MutexLock lock(&mu_);
    const auto it = members_.find(number);
    if (it == members_.end()) return NoSuchMember(number);
    return it->second;
  }

  absl::StatusOr<std::shared_ptr<CollectiveMember>> TakeOut(uint32_t number) {
    MutexLock lock(&mu_);
    const auto it = members_.find(number);
    if (it == members_.end()) return NoSuchMember(number);
    std::shared_ptr<CollectiveMember> member = std::move(it->second);
    members_.erase(it);
    return member;
  }

  // TakeOut() has returned this member, which still runs its last operations. Makes End() and
  // AppendUnfinished() reach it.
  void AddLeavingMember(const std::shared_ptr<CollectiveMember>& leaving) {
    MutexLock lock(&mu_);
    if (ended_) return leaving->LeaveAfterReady(SessionEndedError());
    RemoveEndedLocked();
    leaving_.push_back(leaving);
  }

  void AppendUnfinished(std::vector<TensorRef>* results) override {
    MutexLock lock(&mu_);
    for (const auto& [number, member] : members_) member->AppendUnfinished(results);
    for (const auto& weak : leaving_) {
      if (const auto member = weak.lock()) member->AppendUnfinished(results);
    }
  }

  void End() override {
    absl::flat_hash_map<uint32_t, std::shared_ptr<CollectiveMember>> members;
    std::vector<std::weak_ptr<CollectiveMember>> leaving;
    {
      MutexLock lock(&mu_);
      ended_ = true;
      members.swap(members_);
      leaving.swap(leaving_);
    }
    for (const auto& [number, member] : members) member->LeaveAfterReady(SessionEndedError());
    for (const auto& weak : leaving) {
      if (const auto member = weak.lock()) member->LeaveAfterReady(SessionEndedError());
    }
  }

 private:
  void RemoveEndedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(),
                                  [](const auto& member) { return member.expired(); }),
                   leaving_.end());
  }

  static absl::Status NoSuchMember(uint32_t number) {
    return absl::NotFoundError(
        absl::StrCat("the session has no member ", number, " of a group; call JoinGroup first"));
  }

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint32_t, std::shared_ptr<CollectiveMember>> members_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<CollectiveMember>> leaving_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::shared_ptr<MemberTable>> TableOf(const SessionRef& session) {
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<SessionMembers> members,
                           session->Members([] { return std::make_shared<MemberTable>(); }));
  return std::static_pointer_cast<MemberTable>(std::move(members));
}

}  // namespace

Collectives::Collectives(Engine* engine, CollectiveNetwork network, const Limits& limits,
                         CommunicatorMakers makers)
    : engine_(engine),
      network_(std::move(network)),
      makers_(std::move(makers)),
      max_members_(limits.max_group_members),
      max_members_per_session_(limits.max_group_members_per_session),
      max_descriptors_(MaxDescriptors()) {}

Collectives::~Collectives() {
  std::list<Running> running;
  {
    MutexLock lock(&mu_);
    for (Running& each : running_) {
      if (each.member == nullptr) continue;
      each.member->Leave(absl::UnavailableError("the server is shutting down"));
    }
    running.splice(running.end(), running_);
  }
  for (Running& each : running) each.thread.join();
}

absl::Status Collectives::Check(const Join& join) const {
  const auto wrong = [](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("JoinGroup: ", words...));
  };
  if (join.member == 0) return wrong("member is 0; choose another number");
  if (join.size == 0 || join.size > kMaxGroupSize) {
    return wrong("a group has 1 to ", kMaxGroupSize, " members, not ", join.size);
  }
  if (join.rank >= join.size) {
    return wrong("rank ", join.rank, " isn't within 0 to ", join.size - 1);
  }
  if (join.timeout_milliseconds < 0 || join.timeout_milliseconds > kMaxTimeout.count()) {
    return wrong("a timeout of ", join.timeout_milliseconds, " ms isn't within 0 to ",
                 kMaxTimeout.count());
  }
  if (join.group_id.size() != kGroupIdBytes) {
    return wrong("group_id has ", join.group_id.size(), " bytes, not ", kGroupIdBytes);
  }
  if (!join.member_names.empty() && join.member_names.size() != join.size) {
    return wrong(join.member_names.size(), " member_names for ", join.size, " members");
  }
  const auto too_long = [](const std::string& name) { return name.size() > kMaxNameBytes; };
  if (std::any_of(join.member_names.begin(), join.member_names.end(), too_long)) {
    return wrong("one of member_names has more than ", kMaxNameBytes, " bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CollectiveMember>> Collectives::Make(const SessionRef& session,
                                                                    const Join& join) {
  TENSORD_RETURN_IF_ERROR(Check(join));
  TENSORD_ASSIGN_OR_RETURN(DeviceSlot * slot, engine_->FindDevice(join.device));
  const DeviceHealth health = slot->device->health();
  if (!health.serving()) {
    return absl::UnavailableError(
        absl::StrCat(slot->device->name().ToString(), " can't join a group now: ", health.reason));
  }
  TENSORD_ASSIGN_OR_RETURN(const auto table, TableOf(session));
  Charge charge(session->host_budget());
  TENSORD_RETURN_IF_ERROR(charge.Add(HostBytesFor(join)));
  TENSORD_ASSIGN_OR_RETURN(Charge counted,
                           ChargeTo(session->principal(), PrincipalLimit::kGroupMembers));
  const GroupPlace place{static_cast<int>(join.rank), static_cast<int>(join.size),
                         join.timeout_milliseconds == 0
                             ? kDefaultTimeout
                             : std::chrono::milliseconds(join.timeout_milliseconds),
                         join.group_id, MemberNames(join.member_names)};
  return table->Add(
      *session->principal(), join.member, max_members_per_session_,
      [&]() -> absl::StatusOr<std::shared_ptr<CollectiveMember>> {
        TENSORD_ASSIGN_OR_RETURN(auto communicator,
                                 MakeCommunicator(network_, *slot->device, place, makers_));
        auto member = std::make_shared<CollectiveMember>(
            engine_, slot, place, std::move(communicator), std::move(charge), std::move(counted));
        TENSORD_RETURN_IF_ERROR(Start(member));
        return member;
      });
}

absl::Status Collectives::Start(const std::shared_ptr<CollectiveMember>& member) {
  std::list<Running> ended;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    ended = TakeEndedLocked();
    if (static_cast<int64_t>(running_.size()) >= max_members_) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "this server can't start a thread for another member of a group: all callers together "
          "have ",
          running_.size(), " members, and may have ", max_members_,
          ", a quarter of the threads that the system allows the process; try again when groups "
          "have ended"));
    } else if (descriptors_ + DescriptorsOf(*member) > max_descriptors_) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("this server can't connect a member of a group of ", member->size(),
                       ": groups use ", descriptors_, " descriptors, and may use ",
                       max_descriptors_, ", a quarter of the process's limit"));
    } else {
      running_.push_back({member});
      Running* running = &running_.back();
      try {
        running->thread = std::thread([this, running] { Serve(running); });
        descriptors_ += DescriptorsOf(*member);
      } catch (const std::system_error&) {
        running_.pop_back();
        status = absl::ResourceExhaustedError("the system can't start a thread for another member");
      }
    }
  }
  for (Running& each : ended) each.thread.join();
  return status;
}

void Collectives::Serve(Running* running) {
  pthread_setname_np(pthread_self(), "group-member");
  running->member->Serve();
  std::shared_ptr<CollectiveMember> member;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  descriptors_ -= DescriptorsOf(*running->member);
  member = std::move(running->member);
  running->ended = true;
}

std::list<Collectives::Running> Collectives::TakeEndedLocked() {
  std::list<Running> ended;
  for (auto it = running_.begin(); it != running_.end();) {
    const auto next = std::next(it);
    if (it->ended) ended.splice(ended.end(), running_, it);
    it = next;
  }
  return ended;
}

absl::StatusOr<std::shared_ptr<CollectiveMember>> Collectives::Find(const SessionRef& session,
                                                                    uint32_t member) const {
  TENSORD_ASSIGN_OR_RETURN(const auto table, TableOf(session));
  return table->Find(member);
}

absl::StatusOr<TensorRef> Collectives::Run(const SessionRef& session, uint32_t member,
                                           const CollectiveRequest& request) const {
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<CollectiveMember> found, Find(session, member));
  return found->Run(session, request);
}

absl::Status Collectives::Leave(const SessionRef& session, uint32_t member) {
  TENSORD_ASSIGN_OR_RETURN(const auto table, TableOf(session));
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<CollectiveMember> left, table->TakeOut(member));
  left->Leave(absl::CancelledError("the member has left its group"));
  return absl::OkStatus();
}

absl::Status Collectives::LeaveWhenDone(const SessionRef& session, uint32_t member) {
  TENSORD_ASSIGN_OR_RETURN(const auto table, TableOf(session));
  TENSORD_ASSIGN_OR_RETURN(const std::shared_ptr<CollectiveMember> left, table->TakeOut(member));
  left->LeaveWhenDone();
  table->AddLeavingMember(left);
  return absl::OkStatus();
}

}  // namespace tensord::server
