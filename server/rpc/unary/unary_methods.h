// The unary methods of TensorService and PeerService. Each validates its request, starts the work,
// and answers when the work has been launched or has finished.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/unary/unary_call.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// The handlers of the unary methods. They run on a queue's thread, which also serves streams. So
// they post long work to the workers. Thread-safe.
class UnaryMethods {
 public:
  // `context` outlives this object, and this object outlives the calls.
  explicit UnaryMethods(ServiceContext* context);

  void GetServerInfo(const UnaryRef<v1::GetServerInfoRequest, v1::ServerInfo>& call);
  void ListDevices(const UnaryRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call);
  void ListOps(const UnaryRef<v1::ListOpsRequest, v1::ListOpsResponse>& call);
  void OpenSession(const UnaryRef<v1::OpenSessionRequest, v1::Session>& call);
  void CloseSession(const UnaryRef<v1::CloseSessionRequest, v1::CloseSessionResponse>& call);
  void ListSessions(const UnaryRef<v1::ListSessionsRequest, v1::ListSessionsResponse>& call);

  void CreateTensor(const UnaryRef<v1::CreateTensorRequest, v1::Tensor>& call);
  void CopyToDevice(const UnaryRef<v1::CopyToDeviceRequest, v1::Tensor>& call);
  void Add(const UnaryRef<v1::AddRequest, v1::Tensor>& call);
  void MatMul(const UnaryRef<v1::MatMulRequest, v1::Tensor>& call);
  void LinearForward(const UnaryRef<v1::LinearForwardRequest, v1::Tensor>& call);
  void RunOp(const UnaryRef<v1::RunOpRequest, v1::Tensor>& call);
  void RunOps(const UnaryRef<v1::RunOpsRequest, v1::RunOpsResponse>& call);

  void GetTensor(const UnaryRef<v1::GetTensorRequest, v1::Tensor>& call);
  void ReadTensor(const UnaryRef<v1::ReadTensorRequest, v1::ReadTensorResponse>& call);
  void GetUpload(const UnaryRef<v1::GetUploadRequest, v1::Upload>& call);
  void ListTensors(const UnaryRef<v1::ListTensorsRequest, v1::ListTensorsResponse>& call);
  void DeleteTensors(const UnaryRef<v1::DeleteTensorsRequest, v1::DeleteTensorsResponse>& call);

  void PublishTensor(const UnaryRef<v1::PublishTensorRequest, v1::PublishTensorResponse>& call);
  void OpenPublished(const UnaryRef<v1::OpenPublishedRequest, v1::Tensor>& call);
  void UnpublishTensor(
      const UnaryRef<v1::UnpublishTensorRequest, v1::UnpublishTensorResponse>& call);

  void CreateTicket(const UnaryRef<v1::CreateTicketRequest, v1::Ticket>& call);
  void PullTensor(const UnaryRef<v1::PullTensorRequest, v1::PullTensorResponse>& call);
  void CheckPeer(const UnaryRef<v1::CheckPeerRequest, v1::CheckPeerResponse>& call);
  void ReleaseTicket(const UnaryRef<v1::ReleaseTicketRequest, v1::ReleaseTicketResponse>& call);
  void JoinGroup(const UnaryRef<v1::JoinGroupRequest, v1::JoinGroupResponse>& call);
  void ConnectGroup(const UnaryRef<v1::ConnectGroupRequest, v1::ConnectGroupResponse>& call);
  void LeaveGroup(const UnaryRef<v1::LeaveGroupRequest, v1::LeaveGroupResponse>& call);
  void RunCollective(const UnaryRef<v1::RunCollectiveRequest, v1::Tensor>& call);

 private:
  // Returns a use of the caller's session with this id.
  absl::StatusOr<SessionUse> UseSession(UnaryCallBase& call, const std::string& session);
  // Works as UseSession(), for methods about groups. If this server takes no part in groups,
  // returns FAILED_PRECONDITION.
  absl::StatusOr<SessionUse> UseGroups(UnaryCallBase& call, const std::string& session);
  // Runs `start` in the call's session. Finishes the call when the tensor that `start` returns is
  // done.
  template <typename Call, typename Start>
  void Compute(const Call& call, Start start);

  ServiceContext* const context_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace tensord::server
