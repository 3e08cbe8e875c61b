// The unary methods of tensord.v1.TensorService: validate, start the work, answer when it is done.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "tensord/server/collective/collectives.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/call_group.h"
#include "tensord/server/rpc/unary_call.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/session_table.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

class Peers;
class Pulls;
class HealthService;
struct BulkContext;

// What this machine calls itself.
std::string HostName();

// What every handler works with. Outlives the calls.
struct ServiceContext {
  Engine* engine;
  SessionTable* sessions;
  WorkerPool* workers;
  Collectives* collectives = nullptr;  // null where there are no groups
  std::string no_collectives_reason;   // why not
  Limits limits;
  std::vector<UnavailableKind> unavailable_kinds;
  std::string boot_id;  // empty where no memory is shared with clients

  // Other servers, and what is fetched from them.
  Peers* peers = nullptr;
  Pulls* pulls = nullptr;
  std::string peer_address = {};  // by which they reach this one

  // Calls that a shutdown lets finish before all else: of Read and Fetch, once they have begun.
  CallGroup reads = {};
  // Calls that last for as long as their clients do, so that a shutdown has to end them: of
  // SessionStream, SharedMemory and Watch.
  CallGroup streams = {};
};

// FAILED_PRECONDITION where this server takes no part in groups.
absl::Status CheckCollectives(const ServiceContext& context);
// Promises the result of a collective operation.
absl::StatusOr<TensorRef> RunCollective(const ServiceContext& context, const SessionRef& session,
                                        const v1::Collective& collective);

// The handlers of the unary methods. They run on a queue's thread, which serves streams as well:
// what takes long goes to the workers. Thread-safe.
class UnaryMethods {
 public:
  // `context` outlives this object, and this object outlives the calls.
  explicit UnaryMethods(ServiceContext* context);

  void GetServerInfo(const UnaryRef<v1::GetServerInfoRequest, v1::ServerInfo>& call);
  void ListDevices(const UnaryRef<v1::ListDevicesRequest, v1::ListDevicesResponse>& call);
  void ListOps(const UnaryRef<v1::ListOpsRequest, v1::ListOpsResponse>& call);
  void OpenSession(const UnaryRef<v1::OpenSessionRequest, v1::Session>& call);
  void CloseSession(const UnaryRef<v1::CloseSessionRequest, v1::CloseSessionResponse>& call);

  void CreateTensor(const UnaryRef<v1::CreateTensorRequest, v1::Tensor>& call);
  void CopyToDevice(const UnaryRef<v1::CopyToDeviceRequest, v1::Tensor>& call);
  void Add(const UnaryRef<v1::AddRequest, v1::Tensor>& call);
  void MatMul(const UnaryRef<v1::MatMulRequest, v1::Tensor>& call);
  void LinearForward(const UnaryRef<v1::LinearForwardRequest, v1::Tensor>& call);
  void RunOp(const UnaryRef<v1::RunOpRequest, v1::Tensor>& call);

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
  void JoinGroup(const UnaryRef<v1::JoinGroupRequest, v1::JoinGroupResponse>& call);
  void ConnectGroup(const UnaryRef<v1::ConnectGroupRequest, v1::ConnectGroupResponse>& call);
  void LeaveGroup(const UnaryRef<v1::LeaveGroupRequest, v1::LeaveGroupResponse>& call);
  void RunCollective(const UnaryRef<v1::RunCollectiveRequest, v1::Tensor>& call);

 private:
  // Returns the caller's session of that name.
  absl::StatusOr<SessionUse> UseSession(UnaryCallBase& call, const std::string& session);
  // The same for methods about groups. FAILED_PRECONDITION if this server takes no part in groups.
  absl::StatusOr<SessionUse> UseGroups(UnaryCallBase& call, const std::string& session);
  // Runs `start` in the call's session, and answers when the tensor that it promises is done.
  template <typename Call, typename Start>
  void Compute(const Call& call, Start start);

  ServiceContext* const context_;
  const std::string host_name_;
  const std::chrono::steady_clock::time_point started_;
};

// What the handlers of all methods work with. Outlives the calls.
struct Handlers {
  ServiceContext* context;
  UnaryMethods* unary;
  BulkContext* bulk;
  HealthService* health;
};

// Adds every method that the server serves to `dispatcher`. A new unary method takes its messages
// in the proto, a function of UnaryMethods, and a line there.
void AddMethods(const Handlers& handlers, CallDispatcher* dispatcher);

}  // namespace tensord::server
