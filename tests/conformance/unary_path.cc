// The execution path that uses unary calls to a real daemon.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/conformance/execution_path.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/integration/rpc_helpers.h"

namespace tensord::conformance {
namespace {

using integration::DaemonProcess;
using integration::RpcClient;
using integration::RpcSession;

class UnaryPath : public ExecutionPath {
 public:
  UnaryPath(std::unique_ptr<DaemonProcess> daemon, std::string cuda_unavailable_reason)
      : daemon_(std::move(daemon)),
        client_(daemon_->address()),
        session_(client_),
        cuda_unavailable_reason_(std::move(cuda_unavailable_reason)) {}

  absl::StatusOr<std::vector<HostTensor>> Run(absl::string_view op, const Attributes& attrs,
                                              absl::Span<const HostTensor> inputs,
                                              const std::string& device, int num_outputs) override {
    std::vector<uint64_t> handles;
    absl::StatusOr<std::vector<HostTensor>> result =
        RunIn(op, attrs, inputs, device, num_outputs, &handles);
    TENSORD_RETURN_IF_ERROR(session_.Delete(handles));
    return result;
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    const auto listed = integration::ListDevices(client_);
    if (listed.ok()) {
      for (const v1::Device& device : *listed) names.push_back(device.name());
    }
    return names;
  }

  std::string cuda_unavailable_reason() const override { return cuda_unavailable_reason_; }

 private:
  // Appends the handles of all tensors that it creates to `handles`.
  absl::StatusOr<std::vector<HostTensor>> RunIn(absl::string_view op, const Attributes& attrs,
                                                absl::Span<const HostTensor> inputs,
                                                const std::string& device, int num_outputs,
                                                std::vector<uint64_t>* handles) {
    for (const HostTensor& input : inputs) {
      const std::string bytes(input.bytes.begin(), input.bytes.end());
      TENSORD_RETURN_IF_ERROR(session_.Create(++last_handle_, input.spec, bytes, device).status());
      handles->push_back(last_handle_);
    }
    const std::vector<uint64_t> given = *handles;
    const uint64_t first = last_handle_ + 1;
    last_handle_ += num_outputs;
    absl::StatusOr<std::vector<v1::Tensor>> outputs;
    if (num_outputs > 1) {
      outputs = RunOps(op, attrs, given, first, num_outputs);
    } else {
      TENSORD_ASSIGN_OR_RETURN(v1::Tensor output,
                               Compute(std::string(op), attrs, given, first, device));
      outputs = std::vector<v1::Tensor>{std::move(output)};
    }
    TENSORD_RETURN_IF_ERROR(outputs.status());
    std::vector<HostTensor> results;
    for (const v1::Tensor& output : *outputs) {
      handles->push_back(output.handle());
      TENSORD_ASSIGN_OR_RETURN(const v1::ReadTensorResponse read, session_.Read(output.handle()));
      if (output.device() != device) {
        return absl::InternalError(output.device() + " is not " + device);
      }
      results.push_back({integration::FromProto(read.spec()),
                         std::vector<uint8_t>(read.data().begin(), read.data().end())});
    }
    return results;
  }

  // Runs an op with several outputs.
  absl::StatusOr<std::vector<v1::Tensor>> RunOps(absl::string_view op, const Attributes& attrs,
                                                 const std::vector<uint64_t>& inputs,
                                                 uint64_t first, int num_outputs) {
    v1::RunOpsRequest request;
    request.set_session(session_.id());
    v1::Op& proto = *request.add_ops();
    proto.set_name(std::string(op));
    proto.mutable_inputs()->Add(inputs.begin(), inputs.end());
    proto.set_output(first);
    proto.set_num_outputs(num_outputs);
    for (const auto& [name, value] : attrs) {
      (*proto.mutable_attrs())[name] = integration::ToProto(value);
    }
    TENSORD_ASSIGN_OR_RETURN(const v1::RunOpsResponse response,
                             client_.Call<v1::RunOpsResponse>("RunOps", request));
    return std::vector<v1::Tensor>(response.tensors().begin(), response.tensors().end());
  }

  // Uses the op's own call, if it has one, otherwise RunOp.
  absl::StatusOr<v1::Tensor> Compute(const std::string& op, const Attributes& attrs,
                                     const std::vector<uint64_t>& inputs, uint64_t output,
                                     const std::string& device) {
    if (op == "add" && inputs.size() == 2) return session_.Add(inputs[0], inputs[1], output);
    if (op == "matmul" && inputs.size() == 2) return MatMul(attrs, inputs, output);
    if (op == "linear") return LinearForward(attrs, inputs, output);
    return session_.Run(op, inputs, output, attrs, inputs.empty() ? device : "");
  }

  absl::StatusOr<v1::Tensor> MatMul(const Attributes& attrs, const std::vector<uint64_t>& inputs,
                                    uint64_t output) {
    v1::MatMulRequest request;
    request.set_session(session_.id());
    request.set_a(inputs[0]);
    request.set_b(inputs[1]);
    request.set_output(output);
    request.set_transpose_a(Flag(attrs, "transpose_a"));
    request.set_transpose_b(Flag(attrs, "transpose_b"));
    request.set_allow_tf32(Flag(attrs, "allow_tf32"));
    return client_.Call<v1::Tensor>("MatMul", request);
  }

  static bool Flag(const Attributes& attrs, absl::string_view name) {
    return attrs.Find(name) != nullptr && attrs.Bool(name);
  }

  absl::StatusOr<v1::Tensor> LinearForward(const Attributes& attrs,
                                           const std::vector<uint64_t>& inputs, uint64_t output) {
    v1::LinearForwardRequest request;
    request.set_session(session_.id());
    request.set_input(inputs[0]);
    request.set_weight(inputs[1]);
    if (inputs.size() > 2) request.set_bias(inputs[2]);
    request.set_output(output);
    if (attrs.Find("activation") != nullptr) request.set_activation(attrs.String("activation"));
    return client_.Call<v1::Tensor>("LinearForward", request);
  }

  std::unique_ptr<DaemonProcess> daemon_;
  mutable RpcClient client_;
  RpcSession session_;
  uint64_t last_handle_ = 0;
  std::string cuda_unavailable_reason_;
};

}  // namespace

const char* ExecutionPathName() { return "unary"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  TENSORD_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start({"--devices=cpu,cpu"}));
  RpcClient client(daemon->address());
  TENSORD_ASSIGN_OR_RETURN(
      const v1::ServerInfo info,
      client.Call<v1::ServerInfo>("GetServerInfo", v1::GetServerInfoRequest()));
  std::string why_no_gpu;
  for (const auto& devices : info.unavailable_devices()) {
    if (devices.kind() == "cuda") why_no_gpu = devices.reason();
  }
  if (why_no_gpu.empty()) {
    TENSORD_ASSIGN_OR_RETURN(daemon, DaemonProcess::Start({"--devices=cpu,cpu,cuda:0"}));
  }
  return std::make_unique<UnaryPath>(std::move(daemon), why_no_gpu);
}

}  // namespace tensord::conformance
