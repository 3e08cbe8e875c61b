// Calls with one request and one response, on the completion queues' threads.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

struct GrpcUnaryCall;

// A call without its message types. Lives until gRPC is done with it. Code that waits for something
// on the call's behalf holds a weak_ptr.
class UnaryCallBase : public std::enable_shared_from_this<UnaryCallBase> {
 public:
  virtual ~UnaryCallBase();
  UnaryCallBase(const UnaryCallBase&) = delete;
  UnaryCallBase& operator=(const UnaryCallBase&) = delete;

  // Ends the call: with its response if `status` is OK, with the error otherwise. If the call has
  // ended or the client has cancelled it, does nothing. Thread-safe.
  void Finish(const absl::Status& status);

  // Returns whether the call has ended or the client has cancelled it. Thread-safe.
  bool over() const;

  // The caller.
  const PrincipalRef& principal() const { return admission_.principal(); }

  // Keeps the session in use until the call is over.
  void Use(SessionUse session);

  // Reports that the call uses a session. The server trusts its connection from now on.
  void SessionUsed() { admission_.SessionUsed(); }

 protected:
  UnaryCallBase(CallQueue* queue, std::unique_ptr<GrpcUnaryCall> grpc_call);

  virtual google::protobuf::MessageLite& request_message() = 0;
  virtual const google::protobuf::MessageLite& response_message() const = 0;
  // Returns whether the server has a handler for the method.
  virtual bool HasHandler() const = 0;
  // Returns whether some requests of the method are public: answered without credentials.
  virtual bool MayBePublic() const = 0;
  // Returns whether the request is public. Call it after the request has been decoded.
  virtual bool IsPublic() const = 0;
  // Runs the method's handler. Call it after the request has been decoded.
  virtual void Handle() = 0;

 private:
  friend class CallEvent<UnaryCallBase>;
  friend class PublicCalls;
  friend class UnaryDispatcher;
  friend struct GrpcUnaryCall;

  // Begins the call once the client has made it. If the gate refuses the call, its request is read
  // only if MayBePublic().
  void Start(WorkerPool* workers);
  void OnRead(bool ok);
  void OnFinished(bool /*ok*/) {}
  void OnDone(bool ok);
  void AfterEvent() {}
  void Decode();

  CallQueue* const queue_;
  const std::unique_ptr<GrpcUnaryCall> grpc_call_;
  CallEvent<UnaryCallBase> read_{&UnaryCallBase::OnRead};
  CallEvent<UnaryCallBase> finish_{&UnaryCallBase::OnFinished};
  WorkerPool* workers_ = nullptr;
  grpc::ByteBuffer request_bytes_;
  absl::Status admitted_;
  // This call's position in the list of PublicCalls. Guarded by that object's mutex.
  std::optional<std::list<std::weak_ptr<UnaryCallBase>>::iterator> public_position_;
  Admission admission_;

  mutable Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  SessionUse session_ ABSL_GUARDED_BY(mu_);
};

// The gRPC objects of one call. They must exist before the client makes the call.
struct GrpcUnaryCall {
  GrpcUnaryCall() : stream(&context) {}

  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream;
  CallEvent<UnaryCallBase> done{&UnaryCallBase::OnDone};
};

template <typename Request, typename Response>
class UnaryCall final : public UnaryCallBase {
 public:
  struct Method {
    // Handles the call, and calls Finish() now or later. Runs on the queue's thread, or on a
    // worker's thread if the request is large. It must not block for long.
    std::function<void(const std::shared_ptr<UnaryCall>&)> handle;
    // Returns whether a request is public: answered without credentials. Null if no request is.
    bool (*is_public)(const Request&) = nullptr;
  };

  UnaryCall(std::shared_ptr<const Method> method, CallQueue* queue,
            std::unique_ptr<GrpcUnaryCall> grpc_call)
      : UnaryCallBase(queue, std::move(grpc_call)), method_(std::move(method)) {}

  const Request& request() const { return request_; }
  // One thread fills it before the call is finished.
  Response* response() { return &response_; }

 private:
  google::protobuf::MessageLite& request_message() override { return request_; }
  const google::protobuf::MessageLite& response_message() const override { return response_; }
  bool HasHandler() const override { return method_->handle != nullptr; }
  bool MayBePublic() const override { return method_->is_public != nullptr; }
  bool IsPublic() const override {
    return method_->is_public != nullptr && method_->is_public(request_);
  }
  void Handle() override {
    method_->handle(std::static_pointer_cast<UnaryCall>(shared_from_this()));
  }

  const std::shared_ptr<const Method> method_;
  Request request_;
  Response response_;
};

template <typename Request, typename Response>
using UnaryRef = std::shared_ptr<UnaryCall<Request, Response>>;

// Receives the calls of all unary methods, and hands each to its handler by the method's name.
//
// If gRPC knows that a method takes one request, it reads the request before the gate has seen the
// caller, up to the maximum message size. It leaves the requests of generic methods unread. So all
// unary methods are generic.
class UnaryDispatcher {
 public:
  // `workers` decode and handle large requests. They outlive this object.
  explicit UnaryDispatcher(WorkerPool* workers);

  // Serves the method of this name, such as "/package.Service/Method". Call it before Await().
  template <typename Request, typename Response>
  void Add(std::string name, typename UnaryCall<Request, Response>::Method method) {
    methods_[std::move(name)] = MakeFactory<Request, Response>(std::move(method));
  }

  // Returns the service to register with the server.
  grpc::AsyncGenericService* service() { return &service_; }

  // Makes `queue` wait for calls. Call it after the server has been built.
  void Await(CallQueue* queue);

 private:
  class PendingCall;
  using CallFactory =
      std::function<std::shared_ptr<UnaryCallBase>(CallQueue*, std::unique_ptr<GrpcUnaryCall>)>;

  template <typename Request, typename Response>
  static CallFactory MakeFactory(typename UnaryCall<Request, Response>::Method method) {
    using Call = UnaryCall<Request, Response>;
    const auto shared = std::make_shared<const typename Call::Method>(std::move(method));
    return [shared](CallQueue* queue, std::unique_ptr<GrpcUnaryCall> grpc_call) {
      return std::make_shared<Call>(shared, queue, std::move(grpc_call));
    };
  }
  void Dispatch(CallQueue* queue, std::unique_ptr<GrpcUnaryCall> grpc_call);

  WorkerPool* const workers_;
  grpc::AsyncGenericService service_;
  const CallFactory unknown_method_;
  absl::flat_hash_map<std::string, CallFactory> methods_;
};

}  // namespace tensord::server
