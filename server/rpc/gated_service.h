// A base of services whose requests are read only after the gate has admitted the call.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <string>

namespace tensord::server {

// If gRPC knows that a method takes one request, it reads the request before any handler runs, up
// to the maximum message size. Therefore GatedService marks the unary methods of `Base`, a
// generated service, as generic (unary_call.h serves them). It serves one method with a stream of
// responses as a bidirectional stream.
template <typename Base>
class GatedService : public Base {
 protected:
  // `service`: the full name of the service. `method`: the name of its method with one request and
  // a stream of responses. Both must exist. The derived class marks that method as raw or
  // asynchronous.
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

  // Returns the index of `method` in the service.
  int index() const { return index_; }

  // Waits for one call of `method`. The parameters are those of the generated Request… functions.
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
