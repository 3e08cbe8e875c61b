// Helpers that make messages and call TensorService's methods in one line.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/tests/integration/rpc_client.h"

namespace tensord::integration {

v1::TensorSpec ToProto(const TensorSpec& spec);
TensorSpec FromProto(const v1::TensorSpec& proto);
v1::AttrValue ToProto(const AttrValue& value);

// The lease of sessions in tests that wait until it has expired. If a pause between two calls is
// longer, the session ends. So the lease leaves time for a few calls on a busy machine.
inline constexpr int64_t kShortLeaseSeconds = 3;

// A session, and calls that use it. The destructor doesn't close the session.
class RpcSession {
 public:
  // Opens a session. `client` must outlive this object. If that fails, id() is empty.
  explicit RpcSession(RpcClient& client, int64_t lease_seconds = 0);

  const std::string& id() const { return id_; }
  RpcClient& client() const { return client_; }

  absl::StatusOr<v1::Tensor> Create(uint64_t handle, const TensorSpec& spec,
                                    const std::string& bytes, const std::string& device = "cpu:0");
  // Creates a float32 tensor of shape (n).
  absl::StatusOr<v1::Tensor> CreateFloats(uint64_t handle, const std::vector<float>& values,
                                          const std::string& device = "cpu:0");
  // Creates a float32 tensor of ones.
  absl::StatusOr<v1::Tensor> Ones(uint64_t handle, std::vector<int64_t> shape,
                                  const std::string& device = "cpu:0");
  absl::StatusOr<v1::Tensor> Run(const std::string& op, const std::vector<uint64_t>& inputs,
                                 uint64_t output, const Attributes& attrs = {},
                                 const std::string& device = "");
  absl::StatusOr<v1::Tensor> Add(uint64_t a, uint64_t b, uint64_t output);
  absl::StatusOr<v1::Tensor> Copy(uint64_t input, uint64_t output, const std::string& device);
  absl::StatusOr<v1::Tensor> Get(uint64_t handle, uint64_t after_command = 0);
  absl::StatusOr<v1::ReadTensorResponse> Read(uint64_t handle, uint64_t after_command = 0);
  absl::StatusOr<std::vector<float>> ReadFloats(uint64_t handle);
  absl::StatusOr<v1::ListTensorsResponse> List(int page_size = 0, const std::string& token = "");
  absl::Status Delete(const std::vector<uint64_t>& handles);
  absl::StatusOr<int64_t> Close();

  // Returns the first message of a Write.
  v1::WriteRequest FirstWrite(uint64_t handle, const TensorSpec& spec,
                              const std::string& device = "cpu:0") const;
  v1::ReadRequest ReadRequest(uint64_t handle) const;
  // Returns the first message of a stream of this session, without commands.
  v1::SessionStreamRequest Attach() const;

 private:
  RpcClient& client_;
  std::string id_;
};

// Adds a definition of the op `op`, without attributes, under `number`. Returns the definition.
v1::Definition& AddDefinition(v1::SessionStreamRequest* message, uint32_t number,
                              const std::string& op, uint32_t num_inputs);
// Adds a program for cpu:0 with one input. The program runs definition 1, an op with one input,
// `ops` times: first on the program's input, then on the previous result. The program's output is
// the last result.
void AddChainProgram(v1::SessionStreamRequest* message, uint32_t number, const TensorSpec& input,
                     uint32_t ops);

// Sends the messages on a new session stream, half-closes it and reads all answers. If `on_answer`
// is set, calls it with each answer. Returns the status that ends the stream.
absl::Status RunStream(
    RpcClient& client, const std::vector<v1::SessionStreamRequest>& messages,
    const std::function<void(const v1::SessionStreamResponse&)>& on_answer = nullptr);

absl::StatusOr<std::vector<v1::Device>> ListDevices(RpcClient& client);
// Returns the bytes in use on a device, or -1 if the call fails or the device doesn't exist.
int64_t UsedBytes(RpcClient& client, const std::string& device);

}  // namespace tensord::integration
