// Awaits the clients' calls of all methods, and makes a handler for each call.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/method_counters.h"
#include "tensord/server/rpc/server_call.h"

namespace tensord::server {

// Makes the handler of a call that has arrived. Thread-safe.
using CallFactory = std::function<std::shared_ptr<ServerCall>(std::unique_ptr<GrpcCall>)>;

// Returns the factory of a handler whose constructor takes a Context* and the gRPC objects.
template <typename Call, typename Context>
CallFactory MakeCallFactory(Context* context) {
  return [context](std::unique_ptr<GrpcCall> grpc_call) {
    // make_shared would keep the call's memory as long as any weak_ptr remains.
    return std::shared_ptr<ServerCall>(new Call(context, std::move(grpc_call)));
  };
}

// The queues that serve a method: those of ops and messages, or those of bulk data.
enum class QueueKind { kMain, kBulk };

// The table of methods. A method's name is "/package.Service/Method". Add all methods before
// RegisterWith(); from then on this object is thread-safe.
//
// If gRPC knows that a method takes one request, it reads the request, up to the maximum message
// size, before the authenticator has checked the caller. gRPC doesn't read the requests of generic
// methods and of bidirectional streams. Therefore unary methods are generic, and all others are
// registered as bidirectional streams. The queue of a generic call must be chosen before its method
// is known, so unary methods are served by the main queues.
class CallDispatcher {
 public:
  CallDispatcher();
  ~CallDispatcher();
  CallDispatcher(const CallDispatcher&) = delete;
  CallDispatcher& operator=(const CallDispatcher&) = delete;

  void AddUnary(const std::string& name, CallFactory make_call);
  void AddStreaming(const std::string& name, QueueKind queues, CallFactory make_call);

  // Registers the methods with the server that is being built. This object outlives the server.
  void RegisterWith(grpc::ServerBuilder* builder);

  // Makes `queue` await calls of the methods of this kind. Call it after the server has been built.
  void AwaitCalls(CallQueue* queue, QueueKind kind);

  // Calls `visit` with the name, "package.Service/Method", and the counters of each method. The
  // last name is "unknown", for calls of methods that the server doesn't have.
  void ForEachMethod(
      absl::FunctionRef<void(const std::string& name, const MethodCounters&)> visit) const;

 private:
  class Service;
  class PendingCall;
  struct Method {
    Method(std::string name, Transfer transfer, CallFactory make_call)
        : name(std::move(name)), make_call(std::move(make_call)), counters(transfer) {}
    const std::string name;  // as ForEachMethod() passes it
    const CallFactory make_call;
    MethodCounters counters;
  };
  struct StreamingMethod : Method {
    StreamingMethod(std::string name, QueueKind queues, CallFactory make_call)
        : Method(std::move(name), queues == QueueKind::kBulk ? Transfer::kBulk : Transfer::kMessage,
                 std::move(make_call)),
          queues(queues) {}
    const QueueKind queues;
    Service* service = nullptr;
    int index = 0;  // in the service
  };

  // Awaits one call: of `method`, or of any unary method if it is null.
  void Await(CallQueue* queue, StreamingMethod* method);
  // Makes the handler of a call that has arrived, and starts it. Call it on the thread of the
  // call's queue.
  void Dispatch(std::unique_ptr<GrpcCall> grpc_call, Method* method);

  grpc::AsyncGenericService generic_service_;
  std::deque<Method> unary_methods_;
  absl::flat_hash_map<std::string, Method*> unary_by_name_;  // "/package.Service/Method"
  Method unknown_method_;
  std::map<std::string, std::unique_ptr<Service>> services_;  // by name
  std::deque<StreamingMethod> streaming_methods_;
};

}  // namespace tensord::server
