// Generated services whose requests gRPC doesn't read before the gate has admitted the caller.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <string>

namespace tensord::server {

// gRPC itself reads the request of a method with a single request, up to the largest message's
// size. So this leaves all unary methods of `Base`, a generated service, to gRPC's generic service
// (unary_call.h), and serves one method with a stream of responses as a stream in both directions.
template <typename Base>
class GatedService : public Base {
 protected:
  // `service`: the full name of the service. `method`: the name of its method with one request and
  // a stream of responses. A derived class marks that method as raw or asynchronous.
  GatedService(const std::string& service, const std::string& method) {
    const google::protobuf::ServiceDescriptor& descriptor =
        *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
    for (int i = 0; i < descriptor.method_count(); ++i) {
      const google::protobuf::MethodDescriptor& each = *descriptor.method(i);
      if (!each.client_streaming() && !each.server_streaming()) this->MarkMethodGeneric(i);
    }
    index_ = descriptor.FindMethodByName(method)->index();
    this->MarkMethodStreamed(index_, nullptr);
  }

  int index() const { return index_; }

  // Waits for a call of that method, as a generated Request function does.
  template <typename Stream>
  void RequestStream(grpc::ServerContext* context, Stream* stream,
                     grpc::CompletionQueue* call_queue,
                     grpc::ServerCompletionQueue* notification_queue, void* tag) {
    this->RequestAsyncBidiStreaming(index_, context, stream, call_queue, notification_queue, tag);
  }

 private:
  int index_ = 0;
};

}  // namespace tensord::server
