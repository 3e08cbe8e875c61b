// Calls with one request and one response.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/parsed_size.h"
#include "tensord/server/rpc/server_call.h"
#include "tensord/server/rpc/worker_pool.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// A unary call without its message types. Code that waits for something on the call's behalf holds
// a weak_ptr.
class UnaryCallBase : public ServerCall {
 public:
  ~UnaryCallBase() override;

  // Ends the call: with its response if `status` is OK, otherwise with the error. If the call has
  // ended or the client has cancelled it, does nothing. Thread-safe.
  void Finish(const absl::Status& status);

  // Returns whether the call has ended or the client has cancelled it. Thread-safe.
  bool over() const { return finished(); }

  // Ends the call with OK and an encoded response.
  using ServerCall::FinishWith;
  // Sends initial metadata before the response. Call it at most once.
  using ServerCall::SendInitialMetadata;

  // The response takes the bytes until gRPC has sent or dropped it. Call it at most once.
  using ServerCall::WhenResponseFits;

  // Keeps the session in use until the call is over. If `made` is a tensor that isn't done by then,
  // abandons it (Session::Abandon).
  void Use(SessionUse session, TensorRef made = nullptr);

  // Destroys the call. If its request is large, a worker does this, because it takes long.
  void Delete();

  std::weak_ptr<UnaryCallBase> weak_from_this() {
    return std::static_pointer_cast<UnaryCallBase>(shared_from_this());
  }

 protected:
  // `workers` decode, handle and destroy large requests. They outlive the call.
  UnaryCallBase(WorkerPool* workers, ParsedCharge::AtLimit at_limit,
                std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)), workers_(workers), request_charge_(at_limit) {}

  virtual google::protobuf::Message& request_message() = 0;
  virtual const google::protobuf::MessageLite& response_message() const = 0;
  virtual void FreeResponse() = 0;
  // Returns whether some requests of the method are public: answered without credentials.
  virtual bool MayBePublic() const = 0;
  // Returns whether the request is public. Call it after the request has been decoded.
  virtual bool IsPublic() const = 0;
  // Runs the method's handler. Call it after the request has been decoded.
  virtual void Handle() = 0;

 private:
  friend class PublicCalls;

  bool MayWait(size_t bytes) const final;
  void OnAdmitted() final;
  // If MayBePublic() and the headers aren't too large, reads the request before it refuses the
  // call.
  void OnRefused(const absl::Status& status) final;
  void OnRead(bool ok) final;
  void OnDone() final;
  void EndUse();
  void Decode();

  WorkerPool* const workers_;
  ParsedCharge request_charge_;
  grpc::ByteBuffer request_bytes_;
  bool large_ = false;  // a worker handles the request
  absl::Status refused_;
  // This call's position in the list of PublicCalls. Guarded by that object's mutex.
  std::optional<std::list<std::weak_ptr<UnaryCallBase>>::iterator> public_position_;

  Mutex mu_;
  SessionUse session_ ABSL_GUARDED_BY(mu_);
  TensorRef made_ ABSL_GUARDED_BY(mu_);
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
    // What a request may take if the caller has reached its limit of host memory.
    ParsedCharge::AtLimit at_limit = ParsedCharge::AtLimit::kNothing;
  };

  UnaryCall(std::shared_ptr<const Method> method, WorkerPool* workers,
            std::unique_ptr<GrpcCall> grpc_call)
      : UnaryCallBase(workers, method->at_limit, std::move(grpc_call)),
        method_(std::move(method)) {}

  const Request& request() const { return request_; }
  // Only one thread may use the response, before it calls Finish().
  Response* response() { return &response_; }

 private:
  google::protobuf::Message& request_message() override { return request_; }
  const google::protobuf::MessageLite& response_message() const override { return response_; }
  void FreeResponse() override { response_ = Response(); }
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

// Returns the factory of a unary method's calls.
template <typename Request, typename Response>
CallFactory MakeUnaryFactory(WorkerPool* workers,
                             typename UnaryCall<Request, Response>::Method method) {
  using Call = UnaryCall<Request, Response>;
  const auto shared = std::make_shared<const typename Call::Method>(std::move(method));
  return [shared, workers](std::unique_ptr<GrpcCall> grpc_call) {
    // make_shared would keep the call's memory as long as any weak_ptr remains.
    return std::shared_ptr<ServerCall>(new Call(shared, workers, std::move(grpc_call)),
                                       [](Call* call) { call->Delete(); });
  };
}

}  // namespace tensord::server
