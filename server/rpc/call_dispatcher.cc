#include "tensord/server/rpc/call_dispatcher.h"

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

// A call of a unary method that the server doesn't have.
class UnknownMethodCall final : public ServerCall {
 public:
  explicit UnknownMethodCall(std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)) {}

 private:
  void OnAdmitted() override {
    Finish(absl::UnimplementedError(absl::StrCat("the server has no method ", context().method())));
  }
  void OnRead(bool /*ok*/) override {}
};

// Returns "package.Service" for the method "/package.Service/Method".
std::string ServiceName(const std::string& method) {
  return method.substr(1, method.rfind('/') - 1);
}

}  // namespace

// The streaming methods of one service, registered with gRPC.
class CallDispatcher::Service final : public grpc::Service {
 public:
  // Returns the method's index.
  int Add(const std::string& name) {
    const int index = static_cast<int>(names_.size());
    names_.push_back(name);
    AddMethod(new grpc::internal::RpcServiceMethod(
        names_.back().c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, /*handler=*/nullptr));
    MarkMethodRaw(index);
    return index;
  }

  void Request(int index, GrpcCall* call, void* tag) {
    CallQueue* const queue = call->queue();
    RequestAsyncBidiStreaming(index, &call->context(), &call->stream(), queue->get(),
                              queue->accept_queue()->get(), tag);
  }

 private:
  std::deque<std::string> names_;  // gRPC keeps their addresses
};

// A call that is awaited. Owns itself until a client has made the call, or the server shuts down.
class CallDispatcher::PendingCall final : public QueueEvent {
 public:
  PendingCall(CallDispatcher* dispatcher, CallQueue* queue, StreamingMethod* method)
      : dispatcher_(dispatcher), method_(method), grpc_call_(std::make_unique<GrpcCall>(queue)) {}

  void Await() {
    TsanRelease(static_cast<QueueEvent*>(this));
    void* const tag = static_cast<QueueEvent*>(this);
    CallQueue* const queue = grpc_call_->queue();
    if (method_ != nullptr) {
      method_->service->Request(method_->index, grpc_call_.get(), tag);
    } else {
      dispatcher_->generic_service_.RequestCall(&grpc_call_->context(), &grpc_call_->stream(),
                                                queue->get(), queue->accept_queue()->get(), tag);
    }
  }

  Kind kind() const override { return Kind::kNewCall; }
  // Runs on the thread of the queue's accept queue.
  void OnCompleted(bool ok) override {
    std::unique_ptr<PendingCall> self(this);
    if (!ok) return;  // the server shuts down; there is no call
    CallQueue* const queue = grpc_call_->queue();
    grpc_call_->Arrived();
    dispatcher_->Await(queue, method_);
    if (queue->accept_queue() == queue) {
      dispatcher_->Dispatch(std::move(grpc_call_), method_);
      return;
    }
    queue->Post([self = std::move(self)] {
      self->dispatcher_->Dispatch(std::move(self->grpc_call_), self->method_);
    });
  }

 private:
  CallDispatcher* const dispatcher_;
  StreamingMethod* const method_;
  std::unique_ptr<GrpcCall> grpc_call_;
};

CallDispatcher::CallDispatcher()
    : unknown_method_("unknown", Transfer::kMessage, [](std::unique_ptr<GrpcCall> grpc_call) {
        return std::make_shared<UnknownMethodCall>(std::move(grpc_call));
      }) {}

CallDispatcher::~CallDispatcher() = default;

void CallDispatcher::AddUnary(const std::string& name, CallFactory make_call) {
  unary_by_name_[name] =
      &unary_methods_.emplace_back(name.substr(1), Transfer::kMessage, std::move(make_call));
}

void CallDispatcher::AddStreaming(const std::string& name, QueueKind queues,
                                  CallFactory make_call) {
  std::unique_ptr<Service>& service = services_[ServiceName(name)];
  if (service == nullptr) service = std::make_unique<Service>();
  StreamingMethod& method =
      streaming_methods_.emplace_back(name.substr(1), queues, std::move(make_call));
  method.service = service.get();
  method.index = service->Add(name);
}

void CallDispatcher::RegisterWith(grpc::ServerBuilder* builder) {
  for (const auto& [name, service] : services_) builder->RegisterService(service.get());
  builder->RegisterAsyncGenericService(&generic_service_);
}

void CallDispatcher::AwaitCalls(CallQueue* queue, QueueKind kind) {
  for (StreamingMethod& method : streaming_methods_) {
    if (method.queues == kind) Await(queue, &method);
  }
  if (kind == QueueKind::kMain) Await(queue, nullptr);
}

void CallDispatcher::ForEachMethod(
    absl::FunctionRef<void(const std::string& name, const MethodCounters&)> visit) const {
  for (const Method& method : unary_methods_) visit(method.name, method.counters);
  for (const StreamingMethod& method : streaming_methods_) visit(method.name, method.counters);
  visit(unknown_method_.name, unknown_method_.counters);
}

void CallDispatcher::Await(CallQueue* queue, StreamingMethod* method) {
  (new PendingCall(this, queue, method))->Await();
}

void CallDispatcher::Dispatch(std::unique_ptr<GrpcCall> grpc_call, Method* method) {
  if (method == nullptr) {
    const auto unary = unary_by_name_.find(grpc_call->context().method());
    method = unary != unary_by_name_.end() ? unary->second : &unknown_method_;
  }
  grpc_call->SetCounters(&method->counters);
  method->make_call(std::move(grpc_call))->Start();
}

}  // namespace tensord::server
