// Calls with one request and one response, on the completion queues' threads.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// What a call has to do with gRPC, whatever its messages are. Lives until gRPC is done with it; who
// waits for something on its behalf holds a weak_ptr.
class UnaryCallBase : public std::enable_shared_from_this<UnaryCallBase> {
 public:
  virtual ~UnaryCallBase();
  UnaryCallBase(const UnaryCallBase&) = delete;
  UnaryCallBase& operator=(const UnaryCallBase&) = delete;

  // Ends the call: with its response, or with an error. Further calls do nothing, nor does any
  // where the client has gone. From any thread.
  void Finish(const absl::Status& status);

  // Whether the call has ended, or the client has gone.
  bool over() const;

  // Who calls.
  const PrincipalRef& principal() const { return admission_.principal(); }

  // Keeps the session in use until the call is over.
  void Use(SessionUse session);

  // The call uses a session: its connection is somebody's.
  void Trust() { admission_.Trust(); }
  // A large request is awaited, or no more.
  void ExpectMuch(bool expected) { admission_.ExpectMuch(expected); }

 protected:
  explicit UnaryCallBase(CallQueue* queue);

  // Asks for the client that this call is for; `tag` comes when there is one.
  void* BeginCall() { return called_.Begin(shared_from_this()); }
  // The client has come: another call is to wait for the next one, and this one is to be handled.
  virtual void AwaitNext() = 0;
  virtual void Handle() = 0;
  // What BeginRead began has ended.
  virtual void OnRead(bool /*ok*/) {}
  void* BeginRead() { return read_.Begin(shared_from_this()); }
  // Whether the call is handled without principal() too, where the gate doesn't let the caller in.
  virtual bool OpenToAll() const = 0;
  // Sends what the call ends with.
  virtual void Respond(const grpc::Status& status, void* tag) = 0;

  CallQueue* queue() const { return queue_; }
  grpc::GenericServerContext& context() { return context_; }

 private:
  friend class CallEvent<UnaryCallBase>;
  using Event = CallEvent<UnaryCallBase>;

  void OnCalled(bool ok);
  void OnFinished(bool /*ok*/) {}
  void OnDone(bool ok);
  void AfterEvent() {}

  CallQueue* const queue_;
  grpc::GenericServerContext context_;
  Event called_{&UnaryCallBase::OnCalled};
  Event read_{&UnaryCallBase::OnRead};
  Event finish_{&UnaryCallBase::OnFinished};
  Event done_{&UnaryCallBase::OnDone};
  bool begun_ = false;
  Admission admission_;

  mutable Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  SessionUse session_ ABSL_GUARDED_BY(mu_);
};

template <typename Request, typename Response>
class UnaryCall final : public UnaryCallBase {
 public:
  struct Method {
    // Asks gRPC for the next call: the generated service's Request….
    std::function<void(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                       grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void* tag)>
        request;
    // Finishes the call, at once or later. On the queue's thread, which it must not keep for long.
    std::function<void(const std::shared_ptr<UnaryCall>&)> handle;
    // What strangers may ask as well; null for nothing.
    bool (*open_to_all)(const Request&) = nullptr;
  };

  // Has `queue` wait for a client's call, and then for the next one.
  static void Await(std::shared_ptr<const Method> method, CallQueue* queue) {
    const std::shared_ptr<UnaryCall> call(new UnaryCall(std::move(method), queue));
    call->method_->request(&call->context(), &call->request_, &call->writer_, queue->get(),
                           queue->get(), call->BeginCall());
  }

  const Request& request() const { return request_; }
  Request* mutable_request() { return &request_; }
  // To be filled by one thread before the call is finished.
  Response* response() { return &response_; }

 private:
  UnaryCall(std::shared_ptr<const Method> method, CallQueue* queue)
      : UnaryCallBase(queue), method_(std::move(method)), writer_(&context()) {}

  std::shared_ptr<UnaryCall> self() {
    return std::static_pointer_cast<UnaryCall>(shared_from_this());
  }
  void AwaitNext() override { Await(method_, queue()); }
  void Handle() override { method_->handle(self()); }
  bool OpenToAll() const override {
    return method_->open_to_all != nullptr && method_->open_to_all(request_);
  }
  void Respond(const grpc::Status& status, void* tag) override {
    if (status.ok()) {
      writer_.Finish(response_, status, tag);
    } else {
      writer_.FinishWithError(status, tag);
    }
  }

  const std::shared_ptr<const Method> method_;
  Request request_;
  Response response_;
  grpc::ServerAsyncResponseWriter<Response> writer_;
};

// A call whose request may be large: nothing of it is read before the gate has let the caller in,
// while gRPC reads the requests of all other unary methods by itself. For one method that the
// server's services don't name: calls of any other that none of them has come here, too.
class LargeCall final : public UnaryCallBase {
 public:
  struct Method {
    grpc::AsyncGenericService* service;
    std::string name;  // "/package.Service/Method"
    // As in UnaryCall.
    std::function<void(const std::shared_ptr<LargeCall>&)> handle;
  };

  // Has `queue` wait for a client's call, and then for the next one.
  static void Await(std::shared_ptr<const Method> method, CallQueue* queue);

  grpc::ByteBuffer* mutable_request() { return &request_; }
  grpc::ByteBuffer* response() { return &response_; }

 private:
  LargeCall(std::shared_ptr<const Method> method, CallQueue* queue)
      : UnaryCallBase(queue), method_(std::move(method)), wire_(&context()) {}

  void AwaitNext() override { Await(method_, queue()); }
  bool OpenToAll() const override { return false; }
  void Handle() override;
  void OnRead(bool ok) override;
  void Respond(const grpc::Status& status, void* tag) override;

  const std::shared_ptr<const Method> method_;
  grpc::GenericServerAsyncReaderWriter wire_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

template <typename Request, typename Response>
using UnaryRef = std::shared_ptr<UnaryCall<Request, Response>>;

}  // namespace tensord::server
