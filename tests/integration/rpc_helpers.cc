#include "tensord/tests/integration/rpc_helpers.h"

#include <thread>

namespace tensord::integration {

v1::TensorSpec ToProto(const TensorSpec& spec) {
  v1::TensorSpec proto;
  proto.set_dtype(static_cast<v1::DType>(spec.dtype));
  for (int64_t dim : spec.shape.dims()) proto.add_shape(dim);
  return proto;
}

TensorSpec FromProto(const v1::TensorSpec& proto) {
  TensorSpec spec{static_cast<DType>(proto.dtype()), {}};
  for (int64_t dim : proto.shape()) spec.shape.AppendDim(dim);
  return spec;
}

v1::AttrValue ToProto(const AttrValue& value) {
  v1::AttrValue proto;
  struct Visitor {
    v1::AttrValue& proto;
    void operator()(bool b) { proto.set_b(b); }
    void operator()(int64_t i) { proto.set_i(i); }
    void operator()(double f) { proto.set_f(f); }
    void operator()(const std::string& s) { proto.set_s(s); }
    void operator()(const std::vector<int64_t>& ints) {
      proto.mutable_ints();
      for (int64_t i : ints) proto.mutable_ints()->add_values(i);
    }
    void operator()(DType dtype) { proto.set_dtype(static_cast<v1::DType>(dtype)); }
    void operator()(const Bytes& bytes) { proto.set_data(bytes.data); }
  };
  std::visit(Visitor{proto}, value);
  return proto;
}

RpcSession::RpcSession(RpcClient& client, int64_t lease_seconds) : client_(client) {
  v1::OpenSessionRequest request;
  request.set_lease_seconds(lease_seconds);
  request.set_client_name("test");
  const auto opened = client.Call<v1::Session>("OpenSession", request);
  if (opened.ok()) id_ = opened->session();
}

absl::StatusOr<v1::Tensor> RpcSession::Create(uint64_t handle, const TensorSpec& spec,
                                              const std::string& bytes, const std::string& device) {
  v1::CreateTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  *request.mutable_spec() = ToProto(spec);
  request.set_device(device);
  request.set_data(bytes);
  return client_.Call<v1::Tensor>("CreateTensor", request);
}

absl::StatusOr<v1::Tensor> RpcSession::CreateFloats(uint64_t handle,
                                                    const std::vector<float>& values,
                                                    const std::string& device) {
  return Create(handle, {DType::kFloat32, {static_cast<int64_t>(values.size())}},
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4),
                device);
}

absl::StatusOr<v1::Tensor> RpcSession::Ones(uint64_t handle, std::vector<int64_t> shape,
                                            const std::string& device) {
  return Run("ones", {}, handle, {{"shape", std::move(shape)}}, device);
}

absl::StatusOr<v1::Tensor> RpcSession::Run(const std::string& op,
                                           const std::vector<uint64_t>& inputs, uint64_t output,
                                           const Attributes& attrs, const std::string& device) {
  v1::RunOpRequest request;
  request.set_session(id_);
  v1::Op& proto = *request.mutable_op();
  proto.set_name(op);
  for (uint64_t input : inputs) proto.add_inputs(input);
  proto.set_output(output);
  for (const auto& [name, value] : attrs) (*proto.mutable_attrs())[name] = ToProto(value);
  proto.set_device(device);
  return client_.Call<v1::Tensor>("RunOp", request);
}

absl::StatusOr<v1::Tensor> RpcSession::Add(uint64_t a, uint64_t b, uint64_t output) {
  v1::AddRequest request;
  request.set_session(id_);
  request.set_a(a);
  request.set_b(b);
  request.set_output(output);
  return client_.Call<v1::Tensor>("Add", request);
}

absl::StatusOr<v1::Tensor> RpcSession::Copy(uint64_t input, uint64_t output,
                                            const std::string& device) {
  v1::CopyToDeviceRequest request;
  request.set_session(id_);
  request.set_input(input);
  request.set_output(output);
  request.set_device(device);
  return client_.Call<v1::Tensor>("CopyToDevice", request);
}

absl::StatusOr<v1::Tensor> RpcSession::Get(uint64_t handle, uint64_t after_command) {
  v1::GetTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  request.set_after_command(after_command);
  return client_.Call<v1::Tensor>("GetTensor", request);
}

absl::StatusOr<v1::ReadTensorResponse> RpcSession::Read(uint64_t handle, uint64_t after_command) {
  v1::ReadTensorRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  request.set_after_command(after_command);
  return client_.Call<v1::ReadTensorResponse>("ReadTensor", request);
}

absl::StatusOr<std::vector<float>> RpcSession::ReadFloats(uint64_t handle) {
  const auto read = Read(handle);
  if (!read.ok()) return read.status();
  std::vector<float> values(read->data().size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), read->data().data(), read->data().size());
  return values;
}

absl::StatusOr<v1::ListTensorsResponse> RpcSession::List(int page_size, const std::string& token) {
  v1::ListTensorsRequest request;
  request.set_session(id_);
  request.set_page_size(page_size);
  request.set_page_token(token);
  return client_.Call<v1::ListTensorsResponse>("ListTensors", request);
}

absl::Status RpcSession::Delete(const std::vector<uint64_t>& handles) {
  v1::DeleteTensorsRequest request;
  request.set_session(id_);
  for (uint64_t handle : handles) request.add_handles(handle);
  return client_.Call<v1::DeleteTensorsResponse>("DeleteTensors", request).status();
}

absl::StatusOr<int64_t> RpcSession::Close() {
  v1::CloseSessionRequest request;
  request.set_session(id_);
  const auto closed = client_.Call<v1::CloseSessionResponse>("CloseSession", request);
  if (!closed.ok()) return closed.status();
  return closed->tensors_freed();
}

v1::WriteRequest RpcSession::FirstWrite(uint64_t handle, const TensorSpec& spec,
                                        const std::string& device) const {
  v1::WriteRequest request;
  request.mutable_spec()->set_session(id_);
  request.mutable_spec()->set_handle(handle);
  *request.mutable_spec()->mutable_spec() = ToProto(spec);
  request.mutable_spec()->set_device(device);
  return request;
}

v1::ReadRequest RpcSession::ReadRequest(uint64_t handle) const {
  v1::ReadRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  return request;
}

v1::SessionStreamRequest RpcSession::Attach() const {
  v1::SessionStreamRequest message;
  message.mutable_attach()->set_session(id_);
  return message;
}

v1::Definition& AddDefinition(v1::SessionStreamRequest* message, uint32_t number,
                              const std::string& op, uint32_t num_inputs) {
  v1::Definition& definition = *message->add_commands()->mutable_define();
  definition.set_number(number);
  definition.set_name(op);
  definition.set_num_inputs(num_inputs);
  return definition;
}

void AddChainProgram(v1::SessionStreamRequest* message, uint32_t number, const TensorSpec& input,
                     uint32_t ops) {
  v1::Program& program = *message->add_commands()->mutable_program();
  program.set_number(number);
  program.set_device("cpu:0");
  *program.add_inputs() = ToProto(input);
  for (uint32_t value = 0; value < ops; ++value) {
    program.add_ops(1);
    program.add_ops(value);
  }
  program.add_outputs(ops);
}

absl::Status RunStream(RpcClient& client, const std::vector<v1::SessionStreamRequest>& messages,
                       const std::function<void(const v1::SessionStreamResponse&)>& on_answer) {
  const auto stream = client.SessionStream();
  // A separate thread sends, because the server stops reading if its answers aren't read.
  std::thread sender([&] {
    for (const v1::SessionStreamRequest& message : messages) stream->Send(message);
    stream->HalfClose();
  });
  while (const auto answer = stream->Next()) {
    if (on_answer) on_answer(*answer);
  }
  sender.join();
  return stream->Finish();
}

absl::StatusOr<std::vector<v1::Device>> ListDevices(RpcClient& client) {
  const auto listed = client.Call<v1::ListDevicesResponse>("ListDevices", v1::ListDevicesRequest());
  if (!listed.ok()) return listed.status();
  return std::vector<v1::Device>(listed->devices().begin(), listed->devices().end());
}

int64_t UsedBytes(RpcClient& client, const std::string& device) {
  const auto devices = ListDevices(client);
  if (!devices.ok()) return -1;
  for (const v1::Device& candidate : *devices) {
    if (candidate.name() == device) return candidate.memory_used_bytes();
  }
  return -1;
}

}  // namespace tensord::integration
