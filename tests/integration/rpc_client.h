// A small interface to the generated stubs, so that tests needn't compile all of gRPC.
//
// Every call has a deadline. gRPC's status is returned as an absl::Status.
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

// An active Write call.
class WriteCall {
 public:
  virtual ~WriteCall() = default;
  // Returns false once the server has ended the call.
  virtual bool Send(const v1::WriteRequest& message) = 0;
  virtual absl::StatusOr<v1::Tensor> Finish() = 0;
  // Cancels the call without half-closing it.
  virtual void Cancel() = 0;
};

// An active Read call.
class ReadCall {
 public:
  virtual ~ReadCall() = default;
  // Blocks until the next message and returns it. Returns none at the end of the call.
  virtual std::optional<v1::ReadResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// An active SessionStream call.
class StreamCall {
 public:
  virtual ~StreamCall() = default;
  virtual bool Send(const v1::SessionStreamRequest& message) = 0;
  virtual void HalfClose() = 0;
  // Blocks until the next message and returns it. Returns none at the end of the call.
  virtual std::optional<v1::SessionStreamResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// An active SharedMemory call.
class SharedMemoryCall {
 public:
  virtual ~SharedMemoryCall() = default;
  virtual bool Send(const v1::SharedMemoryRequest& message) = 0;
  virtual void HalfClose() = 0;
  // Blocks until the next message and returns it. Returns none at the end of the call.
  virtual std::optional<v1::SharedMemoryResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

// An active Fetch call, as a destination server makes it.
class FetchCall {
 public:
  virtual ~FetchCall() = default;
  virtual bool Send(const v1::FetchRequest& message) = 0;
  virtual void HalfClose() = 0;
  // Blocks until the next message and returns it. Returns none at the end of the call.
  virtual std::optional<v1::FetchResponse> Next() = 0;
  virtual absl::Status Finish() = 0;
  virtual void Cancel() = 0;
};

struct RpcCredentials {
  std::string token;
  std::string ca_pem;  // if set, the connection uses TLS
  std::string cert_pem;
  std::string key_pem;
};

class RpcClient {
 public:
  explicit RpcClient(const std::string& address, RpcCredentials credentials = {});
  ~RpcClient();

  // Sets the deadline of every later call. The default is 60 seconds.
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

  // Calls a method of TensorService with bytes that needn't be a message.
  absl::Status CallRaw(const std::string& method, const std::string& bytes);

  std::unique_ptr<WriteCall> Write();
  std::unique_ptr<ReadCall> Read(const v1::ReadRequest& request);
  std::unique_ptr<StreamCall> SessionStream();
  std::unique_ptr<SharedMemoryCall> SharedMemory();
  std::unique_ptr<FetchCall> Fetch();

  // Returns the health of a service: "SERVING" or "NOT_SERVING". If the call fails, returns its
  // error, such as NOT_FOUND for an unknown service.
  absl::StatusOr<std::string> Health(const std::string& service);

  // Calls any method, "/package.Service/Method", unary or streaming. Sends one message and reads
  // all answers.
  absl::Status CallAnyKind(const std::string& path, const std::string& bytes);

  // Returns whether the server has the reflection service.
  bool HasReflection();

 private:
  absl::Status CallMethod(const std::string& method, const google::protobuf::Message& request,
                          google::protobuf::Message* response);

  struct Connection;
  std::unique_ptr<Connection> connection_;
  double deadline_seconds_ = 60;
};

}  // namespace tensord::integration
