#include "tensord/tests/integration/rpc_client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "tensord/common/status_details.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::integration {
namespace {

absl::Status ToAbsl(const grpc::Status& status) {
  return StatusFromCode(status.error_code(), status.error_message(), status.error_details());
}

struct CallSettings {
  double deadline_seconds;
  std::string token;
};

void Prepare(grpc::ClientContext& context, const CallSettings& settings) {
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::milliseconds(static_cast<int64_t>(settings.deadline_seconds * 1000)));
  if (!settings.token.empty()) context.AddMetadata("authorization", "Bearer " + settings.token);
}

class WriteCallImpl : public WriteCall {
 public:
  WriteCallImpl(v1::TensorService::Stub& stub, const CallSettings& settings) {
    Prepare(context_, settings);
    writer_ = stub.Write(&context_, &response_);
  }
  bool Send(const v1::WriteRequest& message) override { return writer_->Write(message); }
  absl::StatusOr<v1::Tensor> Finish() override {
    writer_->WritesDone();
    const grpc::Status status = writer_->Finish();
    if (!status.ok()) return ToAbsl(status);
    return response_;
  }
  void Cancel() override {
    context_.TryCancel();
    writer_->Finish();
  }

 private:
  grpc::ClientContext context_;
  v1::Tensor response_;
  std::unique_ptr<grpc::ClientWriter<v1::WriteRequest>> writer_;
};

class ReadCallImpl : public ReadCall {
 public:
  ReadCallImpl(v1::TensorService::Stub& stub, const v1::ReadRequest& request,
               const CallSettings& settings) {
    Prepare(context_, settings);
    reader_ = stub.Read(&context_, request);
  }
  std::optional<v1::ReadResponse> Next() override {
    v1::ReadResponse message;
    if (!reader_->Read(&message)) return std::nullopt;
    return message;
  }
  absl::Status Finish() override { return ToAbsl(reader_->Finish()); }
  void Cancel() override { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::ReadResponse>> reader_;
};

// Any bidirectional stream.
template <typename Call, typename Request, typename Response>
class StreamCallImpl : public Call {
 public:
  template <typename Start>
  StreamCallImpl(const Start& start, const CallSettings& settings) {
    Prepare(context_, settings);
    stream_ = start(&context_);
  }
  ~StreamCallImpl() override { context_.TryCancel(); }
  bool Send(const Request& message) override { return stream_->Write(message); }
  void HalfClose() override { stream_->WritesDone(); }
  std::optional<Response> Next() override {
    Response message;
    if (!stream_->Read(&message)) return std::nullopt;
    return message;
  }
  absl::Status Finish() override { return ToAbsl(stream_->Finish()); }
  void Cancel() override { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Request, Response>> stream_;
};

grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  buffer.Dump(&slices).ok();
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

struct RpcClient::Connection {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::TensorService::Stub> stub;
  std::unique_ptr<grpc::GenericStub> generic;
  std::string token;

  // Makes a unary call of any method, on a separate completion queue.
  grpc::Status CallAny(const std::string& method, const std::string& bytes, std::string* response,
                       double deadline_seconds) {
    grpc::ClientContext context;
    Prepare(context, {deadline_seconds, token});
    grpc::CompletionQueue queue;
    grpc::ByteBuffer answer;
    grpc::Status status;
    auto call = generic->PrepareUnaryCall(&context, method, ToByteBuffer(bytes), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (status.ok() && response != nullptr) *response = ToString(answer);
    return status;
  }
};

RpcClient::RpcClient(const std::string& address, RpcCredentials credentials)
    : connection_(new Connection) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Without this, all channels to one address would share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::InsecureChannelCredentials();
  if (!credentials.ca_pem.empty()) {
    channel = grpc::SslCredentials({credentials.ca_pem, credentials.key_pem, credentials.cert_pem});
  }
  connection_->token = std::move(credentials.token);
  connection_->channel = grpc::CreateCustomChannel(address, channel, arguments);
  connection_->stub = v1::TensorService::NewStub(connection_->channel);
  connection_->generic = std::make_unique<grpc::GenericStub>(connection_->channel);
}

RpcClient::~RpcClient() = default;

absl::Status RpcClient::CallMethod(const std::string& method,
                                   const google::protobuf::Message& request,
                                   google::protobuf::Message* response) {
  std::string bytes;
  const grpc::Status status =
      connection_->CallAny("/tensord.v1.TensorService/" + method, request.SerializeAsString(),
                           &bytes, deadline_seconds_);
  if (!status.ok()) return ToAbsl(status);
  if (!response->ParseFromString(bytes)) return absl::DataLossError("the answer can't be parsed");
  return absl::OkStatus();
}

absl::Status RpcClient::CallRaw(const std::string& method, const std::string& bytes) {
  return ToAbsl(connection_->CallAny("/tensord.v1.TensorService/" + method, bytes, nullptr,
                                     deadline_seconds_));
}

std::unique_ptr<WriteCall> RpcClient::Write() {
  return std::make_unique<WriteCallImpl>(*connection_->stub,
                                         CallSettings{deadline_seconds_, connection_->token});
}

std::unique_ptr<ReadCall> RpcClient::Read(const v1::ReadRequest& request) {
  return std::make_unique<ReadCallImpl>(*connection_->stub, request,
                                        CallSettings{deadline_seconds_, connection_->token});
}

std::unique_ptr<StreamCall> RpcClient::SessionStream() {
  return std::make_unique<
      StreamCallImpl<StreamCall, v1::SessionStreamRequest, v1::SessionStreamResponse>>(
      [this](grpc::ClientContext* context) { return connection_->stub->SessionStream(context); },
      CallSettings{deadline_seconds_, connection_->token});
}

std::unique_ptr<SharedMemoryCall> RpcClient::SharedMemory() {
  return std::make_unique<
      StreamCallImpl<SharedMemoryCall, v1::SharedMemoryRequest, v1::SharedMemoryResponse>>(
      [this](grpc::ClientContext* context) { return connection_->stub->SharedMemory(context); },
      CallSettings{deadline_seconds_, connection_->token});
}

std::unique_ptr<FetchCall> RpcClient::Fetch() {
  using Impl = StreamCallImpl<FetchCall, v1::FetchRequest, v1::FetchResponse>;
  return std::make_unique<Impl>(
      [this](grpc::ClientContext* context) {
        return v1::PeerService::NewStub(connection_->channel)->Fetch(context);
      },
      CallSettings{deadline_seconds_, connection_->token});
}

absl::StatusOr<std::string> RpcClient::Health(const std::string& service) {
  // grpc.health.v1: HealthCheckRequest{service = 1}, HealthCheckResponse{status = 1}.
  std::string request;
  if (!service.empty()) {
    request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  }
  std::string response;
  const grpc::Status status =
      connection_->CallAny("/grpc.health.v1.Health/Check", request, &response, deadline_seconds_);
  if (!status.ok()) return ToAbsl(status);
  constexpr const char* kNames[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
  const unsigned number = response.size() == 2 ? static_cast<unsigned char>(response[1]) : 0;
  return kNames[number & 3];
}

absl::Status RpcClient::CallAnyKind(const std::string& path, const std::string& bytes) {
  grpc::ClientContext context;
  Prepare(context, {deadline_seconds_, connection_->token});
  grpc::CompletionQueue queue;
  const auto call = connection_->generic->PrepareCall(&context, path, &queue);
  // Blocks until the started operation ends. Returns whether it succeeded.
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  if (await()) {
    call->WriteLast(ToByteBuffer(bytes), grpc::WriteOptions(), nullptr);
    await();
  }
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (await());
  grpc::Status status;
  call->Finish(&status, nullptr);
  await();
  return ToAbsl(status);
}

bool RpcClient::HasReflection() {
  const grpc::Status status =
      connection_->CallAny("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "",
                           nullptr, deadline_seconds_);
  return status.error_code() != grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace tensord::integration
