#include "tensord/client/group.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_unary_call.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

namespace internal {

// The group's members. The destructor makes each member leave at its server.
struct GroupState {
  struct Member {
    Device device;
    uint32_t number = 0;
    uint32_t rank = 0;
  };

  GroupState() = default;
  ~GroupState() {
    for (const Member& member : members) member.device.session()->LeaveGroup(member.number);
  }
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  std::vector<Device> devices;  // of `members`
  std::vector<Member> members;  // those of this program
  int size = 0;                 // of the group
  Mutex mu;  // held while an operation is sent: all members get operations in the same order
};

}  // namespace internal

namespace {

using internal::GroupState;
using internal::Session;

// How much longer a call may take than the timeout that the server applies itself.
constexpr absl::Duration kAnswerSlack = absl::Seconds(5);
constexpr int kGroupIdBytes = 16;
// The limits of attempts to make a group, if connections break meanwhile.
constexpr int kMaxAttempts = 20;
constexpr absl::Duration kPause = absl::Milliseconds(50);

absl::Status NoGroup() {
  return absl::FailedPreconditionError("an empty Group: use Group::Create");
}

absl::Status CheckDevices(absl::Span<const Device> devices) {
  if (devices.empty())
    return absl::InvalidArgumentError("group: the list of devices is empty; give at least one");
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].valid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("group: member ", i, " has no device; pass devices of connected clients"));
    }
    if (devices[i].kind() != devices[0].kind()) {
      return absl::InvalidArgumentError(
          absl::StrCat("group: ", devices[0].name(), " and ", devices[i].name(),
                       " are of different kinds: a group needs devices of one kind"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (devices[j] == devices[i]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "group: ", devices[i].name(), " occurs twice; each member needs a device of its own"));
      }
    }
  }
  return absl::OkStatus();
}

// Returns the error of a call. A working server answers when the timeout is over. If this client's
// own deadline passed instead, the error says that the server doesn't answer.
absl::Status CallError(const grpc::Status& status, const Session& session, absl::Duration timeout) {
  const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                      status.error_details().empty() &&
                      status.error_message() == "Deadline Exceeded";
  if (!silent) return session.Outcome(status);
  return absl::DeadlineExceededError(absl::StrCat("its server hasn't answered for ",
                                                  absl::FormatDuration(timeout + kAnswerSlack),
                                                  "; does it still run?"));
}

// Calls each member's server, all in parallel because a server answers only after all members have
// called, and waits for all calls. `requests` and `responses` are by rank. Returns the first error,
// with the device's name.
template <typename Prepare, typename Request, typename Response>
absl::Status CallAllServers(absl::Span<const Device> devices, absl::Duration timeout,
                            Prepare prepare, const std::vector<Request>& requests,
                            std::vector<Response>* responses) {
  struct PendingCall {
    explicit PendingCall(internal::CallRegistry* calls) : call(calls) {}
    internal::CallRegistry::Call call;
    const internal::Interruption::CallScope interruptible{call.context()};
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<PendingCall>> calls;
  responses->resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Session::Connection& connection = devices[i].session()->connection();
    calls.push_back(std::make_unique<PendingCall>(&connection.calls));
    calls[i]->call.context()->set_deadline(
        absl::ToChronoTime(absl::Now() + timeout + kAnswerSlack));
    calls[i]->reader =
        (connection.stub.get()->*prepare)(calls[i]->call.context(), requests[i], &queue);
    calls[i]->reader->StartCall();
    calls[i]->reader->Finish(&(*responses)[i], &calls[i]->status, calls[i].get());
  }
  absl::Status first;
  for (size_t left = requests.size(); left > 0; --left) {
    void* const tag = internal::NextOrCheck(&queue);
    // After the first failure, the other calls can't succeed: cancels them.
    if (static_cast<PendingCall*>(tag)->status.ok() || !first.ok()) continue;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].get() == tag) {
        first = WithPrefix(CallError(calls[i]->status, *devices[i].session(), timeout),
                           absl::StrCat("group: ", devices[i].name(), ": "));
      }
    }
    for (const std::unique_ptr<PendingCall>& other : calls) other->call.context()->TryCancel();
  }
  return first;
}

std::string NewGroupId() {
  std::random_device source;
  std::string id;
  while (id.size() < kGroupIdBytes) id.push_back(static_cast<char>(source()));
  return id;
}

// Makes `device` a member of the group, and adds it to `state`.
v1::JoinGroupRequest MakeJoinRequest(const Device& device, uint32_t rank, const std::string& id,
                                     absl::Span<const std::string> names, absl::Duration timeout,
                                     GroupState* state) {
  Session& session = *device.session();
  v1::JoinGroupRequest request;
  request.set_session(session.id());
  request.set_member(session.NextMember());
  request.set_device(device.id().ToString());
  request.set_rank(rank);
  request.set_size(static_cast<uint32_t>(names.size()));
  request.set_timeout_milliseconds(absl::ToInt64Milliseconds(timeout));
  request.set_group_id(id);
  for (const std::string& name : names) request.add_member_names(name);
  // The member is recorded before the call: it must leave even if the answer is lost.
  state->members.push_back({device, request.member(), rank});
  return request;
}

absl::Status Join(const std::vector<Device>& devices, absl::Duration timeout, GroupState* state,
                  std::vector<v1::JoinGroupResponse>* joined) {
  const std::string id = NewGroupId();
  std::vector<std::string> names;
  for (const Device& device : devices) names.push_back(device.name());
  std::vector<v1::JoinGroupRequest> requests;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    requests.push_back(
        MakeJoinRequest(devices[rank], static_cast<uint32_t>(rank), id, names, timeout, state));
  }
  return CallAllServers(devices, timeout, &v1::TensorService::Stub::PrepareAsyncJoinGroup, requests,
                        joined);
}

// Connects the members of this program with all members, which have these addresses by rank.
absl::Status Connect(const std::vector<Device>& devices, absl::Duration timeout,
                     const GroupState& state, absl::Span<const std::string> addresses) {
  std::vector<v1::ConnectGroupRequest> requests;
  for (const GroupState::Member& member : state.members) {
    v1::ConnectGroupRequest& request = requests.emplace_back();
    request.set_session(member.device.session()->id());
    request.set_member(member.number);
    for (const std::string& address : addresses) request.add_addresses(address);
  }
  std::vector<v1::ConnectGroupResponse> responses;
  return CallAllServers(devices, timeout, &v1::TensorService::Stub::PrepareAsyncConnectGroup,
                        requests, &responses);
}

absl::Status MakeGroup(const std::vector<Device>& devices, absl::Duration timeout,
                       GroupState* state) {
  std::vector<v1::JoinGroupResponse> joined;
  TENSORD_RETURN_IF_ERROR(Join(devices, timeout, state, &joined));
  for (size_t i = 1; i < joined.size(); ++i) {
    if (joined[i].backend() != joined[0].backend()) {
      return absl::FailedPreconditionError(
          absl::StrCat("group: ", devices[0].name(), " uses ", joined[0].backend(), " and ",
                       devices[i].name(), " uses ", joined[i].backend()));
    }
  }
  std::vector<std::string> addresses;
  for (const v1::JoinGroupResponse& member : joined) addresses.push_back(member.address());
  return Connect(devices, timeout, *state, addresses);
}

// ---- members of several programs

// Sends `own` to all programs, and returns what each has sent, by rank. The programs exchange a
// group id with the device's name, and then the member's address. The id of rank 0 is the group's.
absl::StatusOr<std::vector<std::string>> ExchangeWith(const GroupMember::Exchange& exchange,
                                                      int size, const std::string& own) {
  TENSORD_ASSIGN_OR_RETURN(std::vector<std::string> all, exchange(own));
  if (all.size() != static_cast<size_t>(size)) {
    return absl::InvalidArgumentError(absl::StrCat("group: the exchange returned ", all.size(),
                                                   " strings for ", size, " members"));
  }
  return all;
}

absl::Status JoinGroup(const Device& device, int rank, int size,
                       const GroupMember::Exchange& exchange, absl::Duration timeout,
                       GroupState* state) {
  TENSORD_ASSIGN_OR_RETURN(std::vector<std::string> names,
                           ExchangeWith(exchange, size, absl::StrCat(NewGroupId(), device.name())));
  const std::string id = names[0].substr(0, kGroupIdBytes);
  absl::Status status;
  for (std::string& name : names) {
    if (name.size() < kGroupIdBytes) {
      status = absl::InvalidArgumentError("group: the exchange returned a string of another call");
    } else {
      name.erase(0, kGroupIdBytes);
    }
  }
  std::vector<v1::JoinGroupResponse> joined;
  if (status.ok()) {
    const std::vector<v1::JoinGroupRequest> requests = {
        MakeJoinRequest(device, static_cast<uint32_t>(rank), id, names, timeout, state)};
    status = CallAllServers({device}, timeout, &v1::TensorService::Stub::PrepareAsyncJoinGroup,
                            requests, &joined);
  }
  // The other programs wait for the address of this member. If it has none, they get an empty
  // string.
  const std::string own =
      status.ok() ? absl::StrCat(joined[0].backend(), " ", joined[0].address()) : std::string();
  absl::StatusOr<std::vector<std::string>> addresses = ExchangeWith(exchange, size, own);
  TENSORD_RETURN_IF_ERROR(status);
  TENSORD_RETURN_IF_ERROR(addresses.status());
  const std::string backend = absl::StrCat(joined[0].backend(), " ");
  for (size_t i = 0; i < addresses->size(); ++i) {
    std::string& address = (*addresses)[i];
    if (address.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("group: member ", i, " (", names[i], ") could not join"));
    }
    if (address.compare(0, backend.size(), backend) != 0) {
      return absl::FailedPreconditionError(absl::StrCat("group: ", names[static_cast<size_t>(rank)],
                                                        " uses ", joined[0].backend(), ", and ",
                                                        names[i], " another library"));
    }
    address.erase(0, backend.size());
  }
  return Connect({device}, timeout, *state, *addresses);
}

bool AllSessionsOpen(absl::Span<const Device> devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const Device& device) { return device.session()->status().ok(); });
}

bool CanBeReduced(DType dtype) {
  return IsFloating(dtype) || (IsInteger(dtype) && SizeOf(dtype) != 2);
}

v1::Reduction ToProto(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return v1::REDUCTION_SUM;
    case Reduction::kMean:
      return v1::REDUCTION_MEAN;
    case Reduction::kMax:
      return v1::REDUCTION_MAX;
  }
  return v1::REDUCTION_UNSPECIFIED;
}

// One operation of all members.
struct Operation {
  absl::string_view name;
  v1::CollectiveKind kind;
  Reduction reduction = Reduction::kSum;
  uint32_t root = 0;
};

absl::Status CheckDType(const Operation& operation, const TensorSpec& spec) {
  if (operation.kind != v1::COLLECTIVE_KIND_ALL_REDUCE &&
      operation.kind != v1::COLLECTIVE_KIND_REDUCE_SCATTER) {
    return absl::OkStatus();
  }
  if (!CanBeReduced(spec.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation.name, ": ", spec.ToString(),
                     " must be floating, or of integers of 8, 32 or 64 bits; cast it"));
  }
  if (operation.reduction == Reduction::kMean && !IsFloating(spec.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(operation.name, ": no mean of ", spec.ToString(),
                                                   ": cast it to a floating dtype"));
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Operation& operation, absl::Span<const Device> devices,
                         absl::Span<const Tensor> inputs) {
  if (inputs.size() != devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(operation.name, ": ", inputs.size(),
                                                   " tensors for ", devices.size(),
                                                   " members; pass one for each member, by rank"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    TENSORD_RETURN_IF_ERROR(inputs[i].status());
    if (inputs[i].handle() == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(operation.name, ": ", inputs[i].Describe(),
                       " is a value of a program that is being recorded"));
    }
    if (inputs[i].device() != devices[i]) {
      return absl::InvalidArgumentError(absl::StrCat(operation.name, ": tensor ", i, " is ",
                                                     inputs[i].Describe(), "; member ", i, " is ",
                                                     devices[i].name(), ": copy it there first"));
    }
    if (inputs[i].spec() != inputs[0].spec()) {
      return absl::InvalidArgumentError(absl::StrCat(
          operation.name, ": tensor 0 is ", inputs[0].spec().ToString(), " and tensor ", i, " is ",
          inputs[i].spec().ToString(), "; all must be the same"));
    }
  }
  return CheckDType(operation, inputs[0].spec());
}

absl::StatusOr<TensorSpec> OutputOf(const Operation& operation, const TensorSpec& input,
                                    int64_t size) {
  if (operation.kind != v1::COLLECTIVE_KIND_ALL_GATHER &&
      operation.kind != v1::COLLECTIVE_KIND_REDUCE_SCATTER) {
    return input;
  }
  if (input.shape.rank() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(operation.name, ": ", input.ToString(),
                                                   " has no first axis; reshape it to [1]"));
  }
  std::vector<int64_t> dims(input.shape.dims().begin(), input.shape.dims().end());
  if (operation.kind == v1::COLLECTIVE_KIND_ALL_GATHER) {
    dims[0] *= size;
  } else if (dims[0] % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(operation.name, ": the first axis of ",
                                                   input.ToString(), " isn't divisible by ", size,
                                                   " members"));
  } else {
    dims[0] /= size;
  }
  return TensorSpec{input.dtype, Shape(dims)};
}

// Sends the operation to every member of this program. `inputs` are by rank; a broadcast has only
// the root's, and a barrier has none. If a session has ended, sends nothing, because the other
// members would wait until the timeout.
absl::StatusOr<std::vector<Tensor>> Send(const Operation& operation, GroupState* state,
                                         absl::Span<const Tensor> inputs, const TensorSpec& input,
                                         const TensorSpec& output) {
  for (const Device& device : state->devices) {
    TENSORD_RETURN_IF_ERROR(device.session()->status());
  }
  std::vector<Tensor> outputs;
  const internal::HookedMutexLock lock(&state->mu);
  if (lock.interrupted()) return internal::InterruptedError();
  for (size_t i = 0; i < state->members.size(); ++i) {
    const GroupState::Member& member = state->members[i];
    const std::shared_ptr<Session>& session = member.device.session();
    v1::Collective collective;
    collective.set_member(member.number);
    collective.set_kind(operation.kind);
    collective.set_reduction(ToProto(operation.reduction));
    collective.set_root(operation.root);
    const bool sends = operation.kind == v1::COLLECTIVE_KIND_BROADCAST
                           ? member.rank == operation.root
                           : !inputs.empty();
    if (sends) {
      collective.set_input(internal::InputHandle(inputs[inputs.size() == 1 ? 0 : i].state()));
    }
    collective.set_output(session->NextHandle());
    if (operation.kind != v1::COLLECTIVE_KIND_BARRIER) {
      internal::SpecToProto(input, collective.mutable_spec());
    }
    const absl::Status sent = session->SendCollective(collective);
    outputs.push_back(sent.ok() ? Tensor(std::make_shared<internal::TensorState>(
                                      session, collective.output(), output, member.device.id()))
                                : Tensor::Failed(sent));
  }
  return outputs;
}

std::vector<Tensor> Run(const Operation& operation, GroupState* state,
                        absl::Span<const Tensor> inputs) {
  if (state == nullptr) return {Tensor::Failed(NoGroup())};
  const auto run = [&]() -> absl::StatusOr<std::vector<Tensor>> {
    TENSORD_RETURN_IF_ERROR(CheckInputs(operation, state->devices, inputs));
    const TensorSpec& input = inputs[0].spec();
    TENSORD_ASSIGN_OR_RETURN(const TensorSpec output, OutputOf(operation, input, state->size));
    return Send(operation, state, inputs, input, output);
  };
  absl::StatusOr<std::vector<Tensor>> outputs = run();
  if (outputs.ok()) return *std::move(outputs);
  return std::vector<Tensor>(state->devices.size(), Tensor::Failed(outputs.status()));
}

absl::Status WaitForAll(GroupState* state) {
  if (state == nullptr) return NoGroup();
  const TensorSpec nothing{DType::kUInt8, Shape({0})};
  TENSORD_ASSIGN_OR_RETURN(
      const std::vector<Tensor> outputs,
      Send({"barrier", v1::COLLECTIVE_KIND_BARRIER}, state, {}, nothing, nothing));
  absl::Status first;
  for (const Tensor& output : outputs) {
    const absl::Status status = output.Wait();
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace

absl::StatusOr<Group> Group::Create(std::vector<Device> devices, const GroupOptions& options) {
  if (internal::InForkedChild()) return internal::ForkedError();
  TENSORD_RETURN_IF_ERROR(CheckDevices(devices));
  absl::Status status;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    auto state = std::make_shared<GroupState>();
    status = MakeGroup(devices, options.timeout, state.get());
    if (status.ok()) {
      state->size = static_cast<int>(devices.size());
      state->devices = std::move(devices);
      return Group(std::move(state));
    }
    // If a connection broke during a call, tries again with new members.
    if (!absl::IsUnavailable(status) || !AllSessionsOpen(devices)) break;
    absl::SleepFor(kPause);
  }
  return status;
}

int Group::size() const { return state_ == nullptr ? 0 : static_cast<int>(state_->devices.size()); }

const std::vector<Device>& Group::devices() const {
  static const std::vector<Device> kNone;
  return state_ == nullptr ? kNone : state_->devices;
}

std::vector<Tensor> Group::AllReduce(absl::Span<const Tensor> inputs, Reduction reduction) const {
  return Run({"all_reduce", v1::COLLECTIVE_KIND_ALL_REDUCE, reduction}, state_.get(), inputs);
}

std::vector<Tensor> Group::AllGather(absl::Span<const Tensor> inputs) const {
  return Run({"all_gather", v1::COLLECTIVE_KIND_ALL_GATHER}, state_.get(), inputs);
}

std::vector<Tensor> Group::ReduceScatter(absl::Span<const Tensor> inputs,
                                         Reduction reduction) const {
  return Run({"reduce_scatter", v1::COLLECTIVE_KIND_REDUCE_SCATTER, reduction}, state_.get(),
             inputs);
}

std::vector<Tensor> Group::Broadcast(const Tensor& input) const {
  if (state_ == nullptr) return {Tensor::Failed(NoGroup())};
  Operation operation{"broadcast", v1::COLLECTIVE_KIND_BROADCAST};
  const auto run = [&]() -> absl::StatusOr<std::vector<Tensor>> {
    TENSORD_RETURN_IF_ERROR(input.status());
    while (operation.root < state_->devices.size() &&
           state_->devices[operation.root] != input.device()) {
      ++operation.root;
    }
    if (operation.root == state_->devices.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "broadcast: ", input.Describe(), " isn't on the device of a member; copy it there"));
    }
    if (input.handle() == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "broadcast: ", input.Describe(), " is a value of a program that is being recorded"));
    }
    TENSORD_RETURN_IF_ERROR(CheckDType(operation, input.spec()));
    return Send(operation, state_.get(), {input}, input.spec(), input.spec());
  };
  absl::StatusOr<std::vector<Tensor>> outputs = run();
  if (outputs.ok()) return *std::move(outputs);
  return std::vector<Tensor>(state_->devices.size(), Tensor::Failed(outputs.status()));
}

absl::Status Group::Barrier() const { return WaitForAll(state_.get()); }

// ---------------------------------------------------------------- GroupMember

absl::StatusOr<GroupMember> GroupMember::Join(const Device& device, int rank, int size,
                                              const Exchange& exchange,
                                              const GroupOptions& options) {
  if (internal::InForkedChild()) return internal::ForkedError();
  TENSORD_RETURN_IF_ERROR(CheckDevices({device}));
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: there is no rank ", rank, " of ", size, " members"));
  }
  auto state = std::make_shared<GroupState>();
  state->size = size;
  TENSORD_RETURN_IF_ERROR(JoinGroup(device, rank, size, exchange, options.timeout, state.get()));
  state->devices = {device};
  return GroupMember(std::move(state));
}

int GroupMember::rank() const {
  return state_ == nullptr ? 0 : static_cast<int>(state_->members[0].rank);
}
int GroupMember::size() const { return state_ == nullptr ? 0 : state_->size; }
const Device& GroupMember::device() const {
  static const Device* const kNone = new Device;
  return state_ == nullptr ? *kNone : state_->devices[0];
}

Tensor GroupMember::Run(absl::string_view name, int kind, Reduction reduction, int root,
                        const Tensor& input) const {
  if (root < 0 || (root > 0 && root >= size())) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat(name, ": there is no rank ", root, " of ", size(), " members")));
  }
  const Operation operation{name, static_cast<v1::CollectiveKind>(kind), reduction,
                            static_cast<uint32_t>(root)};
  return tensord::Run(operation, state_.get(), {input})[0];
}

Tensor GroupMember::AllReduce(const Tensor& input, Reduction reduction) const {
  return Run("all_reduce", v1::COLLECTIVE_KIND_ALL_REDUCE, reduction, 0, input);
}
Tensor GroupMember::AllGather(const Tensor& input) const {
  return Run("all_gather", v1::COLLECTIVE_KIND_ALL_GATHER, Reduction::kSum, 0, input);
}
Tensor GroupMember::ReduceScatter(const Tensor& input, Reduction reduction) const {
  return Run("reduce_scatter", v1::COLLECTIVE_KIND_REDUCE_SCATTER, reduction, 0, input);
}
Tensor GroupMember::Broadcast(const Tensor& input, int root) const {
  return Run("broadcast", v1::COLLECTIVE_KIND_BROADCAST, Reduction::kSum, root, input);
}
absl::Status GroupMember::Barrier() const { return WaitForAll(state_.get()); }

}  // namespace tensord
