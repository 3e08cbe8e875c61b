#include "tensord/server/rpc/methods.h"

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/bulk/bulk_service.h"
#include "tensord/server/rpc/health_service.h"
#include "tensord/server/rpc/peer/fetch_call.h"
#include "tensord/server/rpc/stream/session_stream.h"
#include "tensord/server/rpc/unary/unary_methods.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {
namespace {

template <typename Service>
std::string MethodName(absl::string_view method) {
  return absl::StrCat("/", Service::service_full_name(), "/", method);
}

// Adds unary methods.
class UnaryTable {
 public:
  UnaryTable(const Handlers& handlers, CallDispatcher* dispatcher)
      : unary_(handlers.unary),
        workers_(handlers.context->message_workers),
        dispatcher_(dispatcher) {}

  template <typename Service = v1::TensorService, typename Request, typename Response>
  void Add(absl::string_view method,
           void (UnaryMethods::*handle)(const UnaryRef<Request, Response>&),
           ParsedCharge::AtLimit at_limit = ParsedCharge::AtLimit::kNothing) {
    const auto run = [unary = unary_, handle](const auto& call) { (unary->*handle)(call); };
    dispatcher_->AddUnary(
        MethodName<Service>(method),
        MakeUnaryFactory<Request, Response>(workers_, {.handle = run, .at_limit = at_limit}));
  }

 private:
  UnaryMethods* const unary_;
  WorkerPool* const workers_;
  CallDispatcher* const dispatcher_;
};

void AddUnaryMethods(const Handlers& handlers, CallDispatcher* dispatcher) {
  UnaryTable table(handlers, dispatcher);
  table.Add("GetServerInfo", &UnaryMethods::GetServerInfo);
  table.Add("ListDevices", &UnaryMethods::ListDevices);
  table.Add("ListOps", &UnaryMethods::ListOps);
  table.Add("OpenSession", &UnaryMethods::OpenSession);
  table.Add("CloseSession", &UnaryMethods::CloseSession);
  table.Add("ListSessions", &UnaryMethods::ListSessions);
  table.Add("CreateTensor", &UnaryMethods::CreateTensor);
  table.Add("CopyToDevice", &UnaryMethods::CopyToDevice);
  table.Add("Add", &UnaryMethods::Add);
  table.Add("MatMul", &UnaryMethods::MatMul);
  table.Add("LinearForward", &UnaryMethods::LinearForward);
  table.Add("RunOp", &UnaryMethods::RunOp);
  table.Add("RunOps", &UnaryMethods::RunOps);
  table.Add("GetTensor", &UnaryMethods::GetTensor);
  table.Add("ReadTensor", &UnaryMethods::ReadTensor);
  table.Add("GetUpload", &UnaryMethods::GetUpload);
  table.Add("ListTensors", &UnaryMethods::ListTensors);
  table.Add("DeleteTensors", &UnaryMethods::DeleteTensors, ParsedCharge::AtLimit::kModerate);
  table.Add("PublishTensor", &UnaryMethods::PublishTensor);
  table.Add("OpenPublished", &UnaryMethods::OpenPublished);
  table.Add("UnpublishTensor", &UnaryMethods::UnpublishTensor);
  table.Add("CreateTicket", &UnaryMethods::CreateTicket);
  table.Add("PullTensor", &UnaryMethods::PullTensor);
  table.Add("CheckPeer", &UnaryMethods::CheckPeer);
  table.Add<v1::PeerService>("ReleaseTicket", &UnaryMethods::ReleaseTicket);
  table.Add("JoinGroup", &UnaryMethods::JoinGroup);
  table.Add("ConnectGroup", &UnaryMethods::ConnectGroup);
  table.Add("LeaveGroup", &UnaryMethods::LeaveGroup);
  table.Add("RunCollective", &UnaryMethods::RunCollective);
}

void AddStreamingMethods(const Handlers& handlers, CallDispatcher* dispatcher) {
  using Tensors = v1::TensorService;
  using Peer = v1::PeerService;
  const auto add = [&](const std::string& name, QueueKind queues, CallFactory make_call) {
    dispatcher->AddStreaming(name, queues, std::move(make_call));
  };
  add(MethodName<Tensors>("SessionStream"), QueueKind::kMain,
      MakeCallFactory<SessionStream>(handlers.context));
  add(MethodName<Tensors>("Write"), QueueKind::kBulk, MakeWriteFactory(handlers.bulk));
  add(MethodName<Tensors>("Read"), QueueKind::kBulk, MakeReadFactory(handlers.bulk));
  add(MethodName<Tensors>("SharedMemory"), QueueKind::kBulk,
      MakeSharedMemoryFactory(handlers.bulk));
  add(MethodName<Peer>("Fetch"), QueueKind::kBulk, MakeFetchFactory(handlers.bulk));
}

void AddHealthMethods(const Handlers& handlers, CallDispatcher* dispatcher) {
  using Health = HealthService::Rpc;
  using Request = grpc::health::v1::HealthCheckRequest;
  using Response = grpc::health::v1::HealthCheckResponse;
  HealthService* const health = handlers.health;
  dispatcher->AddUnary(MethodName<Health>("Check"),
                       MakeUnaryFactory<Request, Response>(
                           handlers.context->message_workers,
                           {.handle = [health](const auto& call) { health->Check(call); },
                            .is_public = &HealthService::IsPublic}));
  dispatcher->AddStreaming(MethodName<Health>("Watch"), QueueKind::kMain,
                           health->MakeWatchFactory());
}

}  // namespace

void AddMethods(const Handlers& handlers, CallDispatcher* dispatcher) {
  AddUnaryMethods(handlers, dispatcher);
  AddStreamingMethods(handlers, dispatcher);
  AddHealthMethods(handlers, dispatcher);
}

}  // namespace tensord::server
