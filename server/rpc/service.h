// The handlers of tensord.v1.TensorService: validate, start the work, answer when it is done.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>
#include <string>

#include "tensord/common/mutex.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/session_table.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

class SessionStream;

// What every handler works with. Outlives the calls.
struct ServiceContext {
  Engine* engine;
  SessionTable* sessions;
  WorkerPool* workers;
  Limits limits;
  std::string cuda_unavailable_reason;
  std::string boot_id;  // empty where no memory is shared with clients

  // The open session streams, told when the server drains.
  Mutex mu;
  std::set<SessionStream*> streams ABSL_GUARDED_BY(mu);
  bool draining ABSL_GUARDED_BY(mu) = false;
};

// Bulk data and session streams go through completion queues (bulk_service.h, session_stream.h),
// everything else through callbacks.
using Rpc = v1::TensorService;
using TensorServiceBulk = Rpc::WithRawMethod_Write<
    Rpc::WithRawMethod_Read<Rpc::WithAsyncMethod_SharedMemory<Rpc::Service>>>;
using TensorServiceSessions = Rpc::WithCallbackMethod_GetServerInfo<
    Rpc::WithCallbackMethod_ListDevices<Rpc::WithCallbackMethod_ListOps<
        Rpc::WithCallbackMethod_OpenSession<Rpc::WithCallbackMethod_CloseSession<
            Rpc::WithRawMethod_SessionStream<TensorServiceBulk>>>>>>;
using TensorServiceOps = Rpc::WithCallbackMethod_CreateTensor<
    Rpc::WithCallbackMethod_CopyToDevice<Rpc::WithCallbackMethod_Add<
        Rpc::WithCallbackMethod_MatMul<Rpc::WithCallbackMethod_LinearForward<
            Rpc::WithCallbackMethod_RunOp<TensorServiceSessions>>>>>>;
using TensorServiceBase = Rpc::WithCallbackMethod_GetTensor<Rpc::WithCallbackMethod_ReadTensor<
    Rpc::WithCallbackMethod_ListTensors<Rpc::WithCallbackMethod_DeleteTensors<TensorServiceOps>>>>;

// Thread-safe, as gRPC calls it.
class TensorServiceImpl final : public TensorServiceBase {
 public:
  explicit TensorServiceImpl(ServiceContext* context);

  // Lets session streams answer what they have taken in, then ends them with UNAVAILABLE.
  void Drain();

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* GetServerInfo(Context*, const v1::GetServerInfoRequest*, v1::ServerInfo*) override;
  Reactor* ListDevices(Context*, const v1::ListDevicesRequest*, v1::ListDevicesResponse*) override;
  Reactor* ListOps(Context*, const v1::ListOpsRequest*, v1::ListOpsResponse*) override;
  Reactor* OpenSession(Context*, const v1::OpenSessionRequest*, v1::Session*) override;
  Reactor* CloseSession(Context*, const v1::CloseSessionRequest*,
                        v1::CloseSessionResponse*) override;

  Reactor* CreateTensor(Context*, const v1::CreateTensorRequest*, v1::Tensor*) override;
  Reactor* CopyToDevice(Context*, const v1::CopyToDeviceRequest*, v1::Tensor*) override;
  Reactor* Add(Context*, const v1::AddRequest*, v1::Tensor*) override;
  Reactor* MatMul(Context*, const v1::MatMulRequest*, v1::Tensor*) override;
  Reactor* LinearForward(Context*, const v1::LinearForwardRequest*, v1::Tensor*) override;
  Reactor* RunOp(Context*, const v1::RunOpRequest*, v1::Tensor*) override;

  Reactor* GetTensor(Context*, const v1::GetTensorRequest*, v1::Tensor*) override;
  Reactor* ReadTensor(Context*, const v1::ReadTensorRequest*, v1::ReadTensorResponse*) override;
  Reactor* ListTensors(Context*, const v1::ListTensorsRequest*, v1::ListTensorsResponse*) override;
  Reactor* DeleteTensors(Context*, const v1::DeleteTensorsRequest*,
                         v1::DeleteTensorsResponse*) override;

 private:
  ServiceContext* const context_;
  const std::string epoch_;
  const std::string host_name_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace tensord::server
