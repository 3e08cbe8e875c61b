// The methods about groups of devices.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/run_collective.h"
#include "tensord/server/rpc/unary/finish.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {

absl::StatusOr<SessionUse> UnaryMethods::UseGroups(UnaryCallBase& call,
                                                   const std::string& session) {
  absl::StatusOr<SessionUse> use = UseSession(call, session);
  if (use.ok()) TENSORD_RETURN_IF_ERROR(CheckCollectives(*context_));
  return use;
}

void UnaryMethods::JoinGroup(const UnaryRef<v1::JoinGroupRequest, v1::JoinGroupResponse>& call) {
  absl::StatusOr<SessionUse> use = UseGroups(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const v1::JoinGroupRequest& request = call->request();
  const Collectives::Join join{request.member(),
                               request.device(),
                               request.rank(),
                               request.size(),
                               request.timeout_milliseconds(),
                               request.group_id(),
                               {request.member_names().begin(), request.member_names().end()}};
  const absl::StatusOr<std::shared_ptr<CollectiveMember>> member =
      context_->collectives->Make(use->ref(), join);
  if (member.ok()) {
    const Communicator& communicator = (*member)->communicator();
    call->response()->set_address(communicator.address());
    call->response()->set_backend(std::string(communicator.backend()));
  }
  call->Finish(member.status());
}

void UnaryMethods::ConnectGroup(
    const UnaryRef<v1::ConnectGroupRequest, v1::ConnectGroupResponse>& call) {
  absl::StatusOr<SessionUse> use = UseGroups(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const v1::ConnectGroupRequest& request = call->request();
  const absl::StatusOr<std::shared_ptr<CollectiveMember>> member =
      context_->collectives->Find(use->ref(), request.member());
  if (!member.ok()) return call->Finish(member.status());
  call->Use(*std::move(use));
  (*member)->Connect({request.addresses().begin(), request.addresses().end()},
                     [weak = call->weak_from_this()](const absl::Status& status) {
                       const std::shared_ptr<UnaryCallBase> waiting = weak.lock();
                       if (waiting != nullptr) waiting->Finish(status);
                     });
}

void UnaryMethods::LeaveGroup(const UnaryRef<v1::LeaveGroupRequest, v1::LeaveGroupResponse>& call) {
  absl::StatusOr<SessionUse> use = UseGroups(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  call->Finish(context_->collectives->Leave(use->ref(), call->request().member()));
}

void UnaryMethods::RunCollective(const UnaryRef<v1::RunCollectiveRequest, v1::Tensor>& call) {
  absl::StatusOr<SessionUse> use = UseGroups(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const absl::StatusOr<TensorRef> tensor =
      server::RunCollective(*context_, use->ref(), call->request().collective());
  // The other members need this member's part of the operation.
  FinishWhenDone(call, *std::move(use), tensor, EarlyEnd::kKeepsWork,
                 [response = call->response()](const Tensor& made) { ToProto(made, response); });
}

}  // namespace tensord::server
