#include "tensord/tests/cuda_emulation/nccl/hub.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/nccl/outputs.h"

namespace tensord::nccl_emulation {
namespace {

constexpr char kInit[] = "ncclCommInitRankConfig";

}  // namespace

std::unique_ptr<Hub> Hub::Start(std::string* error) {
  const std::optional<sockaddr_in> address = InterfaceAddress();
  if (!address.has_value()) {
    *error = "NCCL_SOCKET_IFNAME names no interface that has an IPv4 address";
    return nullptr;
  }
  UniqueId id = {*address, RandomSecret()};
  socklen_t bytes = sizeof(id.address);
  auto* bound = reinterpret_cast<sockaddr*>(&id.address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, bound, bytes) != 0 || listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, bound, &bytes) != 0) {
    *error = absl::StrCat("the root can't listen: ", std::strerror(errno));
    if (listener >= 0) close(listener);
    return nullptr;
  }
  return std::unique_ptr<Hub>(new Hub(listener, id));
}

Hub::Hub(int listener, const UniqueId& id)
    : listener_(listener), stop_fd_(eventfd(0, EFD_CLOEXEC)), id_(id), thread_([this] { Run(); }) {}

Hub::~Hub() {
  const bool thread_closes = finished_.exchange(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = thread_closes ? 0 : write(stop_fd_, &one, sizeof(one));
  thread_.join();
  if (!thread_closes) close(stop_fd_);
}

std::vector<Hub::Member*> Hub::Joined() const {
  std::vector<Member*> joined;
  for (const auto& member : members_) {
    if (member->join.has_value()) joined.push_back(member.get());
  }
  return joined;
}

void Hub::Run() {
  bool any_joined = false;
  while (!any_joined || !Joined().empty()) {
    std::vector<pollfd> fds = {{stop_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& member : members_) {
      fds.push_back({member->socket.fd(), member->socket.events(), 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0) continue;  // interrupted by a signal
    if (fds[0].revents != 0) break;
    for (size_t i = 2; i < fds.size(); ++i) {
      if (fds[i].revents != 0) Serve(*members_[i - 2]);
    }
    any_joined |= !Joined().empty();
    DropLost();
    if (fds[1].revents != 0) Accept();
  }
  members_.clear();
  close(listener_);
  if (!finished_.exchange(true)) close(stop_fd_);  // the destructor hasn't begun
}

void Hub::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) members_.push_back(std::make_unique<Member>(fd));
}

void Hub::Serve(Member& member) {
  std::vector<Frame> frames;
  const bool written = member.socket.Write();
  const bool connected = member.socket.Read(&frames);
  for (const Frame& frame : frames) {
    if (frame.kind == FrameKind::kJoin && !member.join.has_value()) {
      HandleJoin(member, frame.payload);
    } else if (frame.kind == FrameKind::kRequest && member.join.has_value()) {
      HandleRequest(member, frame.payload);
    } else {
      member.lost = true;
    }
  }
  member.lost |= !written || !connected;
}

void Hub::HandleJoin(Member& member, const std::string& payload) {
  Join join;
  absl::string_view rest;
  if (!Unpack(payload, &join, &rest) || join.secret != id_.secret) {
    SendError(member, ncclInvalidUsage, absl::StrCat(kInit, ": this unique id has a wrong secret"));
    return;
  }
  if (complete_) {
    SendError(member, ncclInvalidUsage,
              absl::StrCat(kInit, ": all ranks of this unique id have joined already"));
    return;
  }
  const std::string problem = CheckJoin(join);
  member.join = join;
  if (failure_ != ncclSuccess) {
    SendError(member, failure_, failure_text_);
  } else if (!problem.empty()) {
    Fail(ncclInvalidUsage, absl::StrCat(kInit, ": ", problem));
  } else if (static_cast<int>(Joined().size()) == join.size) {
    complete_ = true;
    for (Member* joined : Joined()) joined->socket.Queue(FrameKind::kReady, "");
  }
}

std::string Hub::CheckJoin(const Join& join) const {
  if (join.rank < 0 || join.rank >= join.size) {
    return absl::StrCat("rank ", join.rank, " is out of range: there are ", join.size, " ranks");
  }
  for (const Member* member : Joined()) {
    const Join& other = *member->join;
    if (other.size != join.size) {
      return absl::StrCat("rank ", other.rank, " joins with size ", other.size, ", but rank ",
                          join.rank, " with size ", join.size);
    }
    if (other.rank == join.rank) return absl::StrCat("rank ", join.rank, " has joined twice");
    if (other.process == join.process && other.device == join.device) {
      return absl::StrCat("ranks ", other.rank, " and ", join.rank, " are on the same GPU, device ",
                          join.device, " of one process");
    }
  }
  return "";
}

void Hub::HandleRequest(Member& member, const std::string& payload) {
  if (failure_ != ncclSuccess) return;
  Operation op;
  absl::string_view input;
  if (!complete_ || member.operation.has_value() || !Unpack(payload, &op, &input) ||
      !HasEmulatedType(op) || !HasEmulatedReduction(op) || op.root < 0 ||
      op.root >= member.join->size ||
      input.size() != InputBytes(op, member.join->rank, member.join->size)) {
    Fail(ncclInternalError,
         absl::StrCat("the hub received an invalid request from rank ", member.join->rank));
    return;
  }
  member.operation = op;
  member.input = std::string(input);
  const std::string difference = CompareWithOthers(member);
  if (!difference.empty()) {
    Fail(ncclInvalidUsage, absl::StrCat(FunctionName(op), ": ", difference));
    return;
  }
  for (const Member* joined : Joined()) {
    if (!joined->operation.has_value()) return;
  }
  AnswerAll();
}

std::string Hub::CompareWithOthers(const Member& member) const {
  for (const Member* other : Joined()) {
    if (!other->operation.has_value() || *other->operation == *member.operation) continue;
    return absl::StrCat("rank ", member.join->rank, " calls ", ToString(*member.operation),
                        ", rank ", other->join->rank, " calls ", ToString(*other->operation));
  }
  return "";
}

void Hub::AnswerAll() {
  const std::vector<Member*> joined = Joined();
  const Operation op = *joined[0]->operation;
  std::vector<const std::string*> inputs(joined.size());
  for (const Member* member : joined) {
    inputs[static_cast<size_t>(member->join->rank)] = &member->input;
  }
  const std::vector<std::string> outputs = ComputeOutputs(op, inputs);
  for (Member* member : joined) {
    member->socket.Queue(FrameKind::kReply, outputs[static_cast<size_t>(member->join->rank)]);
    member->operation.reset();
  }
}

void Hub::DropLost() {
  for (const auto& member : members_) {
    if (!member->lost || !member->join.has_value()) continue;
    Fail(ncclRemoteError, absl::StrCat("the connection of rank ", member->join->rank, " is lost"));
  }
  std::erase_if(members_, [](const auto& member) { return member->lost; });
}

void Hub::Fail(ncclResult_t result, const std::string& text) {
  if (failure_ != ncclSuccess) return;
  failure_ = result;
  failure_text_ = text;
  for (Member* member : Joined()) SendError(*member, result, text);
}

void Hub::SendError(Member& member, ncclResult_t result, const std::string& text) {
  member.socket.Queue(FrameKind::kError, Pack(ErrorHead{result}, text));
}

}  // namespace tensord::nccl_emulation
