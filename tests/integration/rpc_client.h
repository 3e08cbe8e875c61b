// The generated stubs behind a small face, so that tests needn't compile all of gRPC.
//
// Every call has a deadline, and gRPC's status comes back as an absl::Status.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::integration {

class RpcClient;

// A Write under way.
class WriteCall {
 public:
  virtual ~WriteCall() = default;
  // False once the server has ended the call.
  virtual bool Send(const v1::WriteRequest& message) = 0;
  virtual absl::StatusOr<v1::Tensor> Finish() = 0;
  // Drops the call without half-closing it.
  virtual void Cancel() = 0;
};

// A Read under way.
class ReadCall {
 public:
  virtual ~ReadCall() = default;
  // The next message; none at the end.
  virtual std::optional<v1::ReadResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// A session stream.
class StreamCall {
 public:
  virtual ~StreamCall() = default;
  virtual bool Send(const v1::SessionStreamRequest& message) = 0;
  virtual void HalfClose() = 0;
  // The next message; none at the end.
  virtual std::optional<v1::SessionStreamResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// A ring of shared memory.
class SharedMemoryCall {
 public:
  virtual ~SharedMemoryCall() = default;
  virtual bool Send(const v1::SharedMemoryRequest& message) = 0;
  virtual void HalfClose() = 0;
  // The next message; none at the end.
  virtual std::optional<v1::SharedMemoryResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// A Fetch under way, as another server would have it.
class FetchCall {
 public:
  virtual ~FetchCall() = default;
  virtual bool Send(const v1::FetchRequest& message) = 0;
  virtual void HalfClose() = 0;
  // The next message; none at the end.
  virtual std::optional<v1::FetchResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// Who a client is, and how it connects.
struct RpcCredentials {
  std::string token;
  std::string ca_pem;  // TLS where this is set
  std::string cert_pem;
  std::string key_pem;
};

class RpcClient {
 public:
  explicit RpcClient(const std::string& address, RpcCredentials credentials = {});
  ~RpcClient();

  // `deadline_seconds` for each call from now on; 60 to begin with.
  void set_deadline_seconds(double deadline_seconds) { deadline_seconds_ = deadline_seconds; }

  // Calls one of TensorService's unary methods by its name.
  template <typename Response>
  absl::StatusOr<Response> Call(const std::string& method,
                                const google::protobuf::Message& request) {
    Response response;
    absl::Status status = CallMethod(method, request, &response);
    if (!status.ok()) return status;
    return response;
  }

  // The same with bytes that needn't be a message.
  absl::Status CallRaw(const std::string& method, const std::string& bytes);

  std::unique_ptr<WriteCall> Write();
  std::unique_ptr<ReadCall> Read(const v1::ReadRequest& request);
  std::unique_ptr<StreamCall> SessionStream();
  std::unique_ptr<SharedMemoryCall> SharedMemory();
  std::unique_ptr<FetchCall> Fetch();

  // The health service's word for a service: "SERVING", "NOT_SERVING"; NOT_FOUND as it comes.
  absl::StatusOr<std::string> Health(const std::string& service);

  // Any method, "/package.Service/Method", of any kind: sends one message, reads to the end.
  absl::Status CallAnyKind(const std::string& path, const std::string& bytes);

  // Whether the server has the reflection service.
  bool HasReflection();

 private:
  absl::Status CallMethod(const std::string& method, const google::protobuf::Message& request,
                          google::protobuf::Message* response);

  struct Connection;
  std::unique_ptr<Connection> connection_;
  double deadline_seconds_ = 60;
};

}  // namespace tensord::integration
