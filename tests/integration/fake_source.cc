#include "tensord/tests/integration/fake_source.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::integration {
namespace {

using Stream = grpc::ServerReaderWriter<v1::FetchResponse, v1::FetchRequest>;

class FakeStreamCall final : public FakeSource::Call {
 public:
  FakeStreamCall(grpc::ServerContext* context, Stream* stream)
      : context_(context), stream_(stream) {}
  bool Send(const v1::FetchResponse& message) override { return stream_->Write(message); }
  void Compress() override { context_->set_compression_algorithm(GRPC_COMPRESS_GZIP); }
  std::optional<v1::FetchRequest> Next() override {
    v1::FetchRequest message;
    if (!stream_->Read(&message)) return std::nullopt;
    return message;
  }

 private:
  grpc::ServerContext* const context_;
  Stream* const stream_;
};

}  // namespace

struct FakeSource::Server final : v1::PeerService::Service {
  grpc::Status Fetch(grpc::ServerContext* context, Stream* stream) override {
    FakeStreamCall call(context, stream);
    const int code = script(call);
    return grpc::Status(static_cast<grpc::StatusCode>(code), code == 0 ? "" : "as the script says");
  }

  Script script;
  std::unique_ptr<grpc::Server> grpc_server;
};

FakeSource::FakeSource(Script script) : server_(std::make_unique<Server>()) {
  server_->script = std::move(script);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(server_.get());
  builder.SetMaxSendMessageSize(-1);
  server_->grpc_server = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeSource::~FakeSource() {
  server_->grpc_server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

}  // namespace tensord::integration
