// An execution path through the C++ client: the session stream of a real daemon.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/conformance/execution_path.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::conformance {

class ClientPath : public ExecutionPath {
 public:
  ClientPath(std::unique_ptr<integration::DaemonProcess> daemon, Client client)
      : daemon_(std::move(daemon)), client_(std::move(client)) {}

  absl::StatusOr<std::vector<HostTensor>> Run(absl::string_view op, const Attributes& attrs,
                                              absl::Span<const HostTensor> inputs,
                                              const std::string& device_name,
                                              int num_outputs) override {
    TENSORD_ASSIGN_OR_RETURN(const Device device, client_.device(device_name));
    std::vector<Tensor> tensors;
    for (const HostTensor& input : inputs) {
      tensors.push_back(FromBytes(device, input.spec, input.bytes));
    }
    TENSORD_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                             Compute(device, op, attrs, tensors, num_outputs));
    std::vector<HostTensor> outputs;
    for (const Tensor& result : results) {
      TENSORD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, result.ReadBytes());
      if (result.device() != device) {
        return absl::InternalError(result.device().name() + " is not " + device_name);
      }
      outputs.push_back({result.spec(), std::move(bytes)});
    }
    return outputs;
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    for (const Device& device : client_.devices()) names.push_back(device.name());
    return names;
  }

  std::string cuda_unavailable_reason() const override {
    const auto& unavailable = client_.info().unavailable_devices;
    const auto cuda = unavailable.find("cuda");
    return cuda == unavailable.end() ? "" : cuda->second;
  }

 protected:
  // Calls the op. Returns its results, or the error of the call.
  virtual absl::StatusOr<std::vector<Tensor>> Compute(const Device& device, absl::string_view op,
                                                      const Attributes& attrs,
                                                      const std::vector<Tensor>& inputs,
                                                      int num_outputs) = 0;

  // Runs an op by the client function that fits the number of its inputs and outputs.
  static absl::StatusOr<std::vector<Tensor>> RunAny(const Device& device, absl::string_view op,
                                                    const Attributes& attrs,
                                                    const std::vector<Tensor>& inputs,
                                                    int num_outputs) {
    if (num_outputs > 1) return RunOpWithOutputs(op, inputs, attrs);
    Tensor result = inputs.empty() ? RunOp(device, op, attrs) : RunOp(op, inputs, attrs);
    return std::vector<Tensor>{std::move(result)};
  }

 private:
  std::unique_ptr<integration::DaemonProcess> daemon_;
  Client client_;
};

// Starts a daemon with two CPU devices and, if there is a GPU, cuda:0. Returns an execution path to
// it.
template <typename Path>
absl::StatusOr<std::unique_ptr<ExecutionPath>> StartDaemonFor(std::vector<std::string> flags = {}) {
  flags.push_back("--devices=cpu,cpu");
  TENSORD_ASSIGN_OR_RETURN(auto daemon, integration::DaemonProcess::Start(flags));
  TENSORD_ASSIGN_OR_RETURN(Client client, Client::Connect(daemon->address()));
  if (!client.info().unavailable_devices.contains("cuda")) {
    flags.back() += ",cuda:0";
    TENSORD_ASSIGN_OR_RETURN(daemon, integration::DaemonProcess::Start(flags));
    TENSORD_ASSIGN_OR_RETURN(client, Client::Connect(daemon->address()));
  }
  return std::make_unique<Path>(std::move(daemon), std::move(client));
}

}  // namespace tensord::conformance
