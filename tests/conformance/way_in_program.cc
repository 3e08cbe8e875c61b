// The C++ client, each op as a recorded program, to the real daemon.
#include <utility>

#include "tensord/client/tensord.h"
#include "tensord/common/status_macros.h"
#include "tensord/tests/conformance/way_in.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::conformance {
namespace {

using integration::DaemonProcess;

class ProgramWayIn : public WayIn {
 public:
  ProgramWayIn(std::unique_ptr<DaemonProcess> daemon, Client client)
      : daemon_(std::move(daemon)), client_(std::move(client)) {}

  absl::StatusOr<HostTensor> Run(absl::string_view op, const Attributes& attrs,
                                 absl::Span<const HostTensor> inputs,
                                 const std::string& device_name) override {
    TENSORD_ASSIGN_OR_RETURN(const Device device, client_.device(device_name));
    std::vector<Tensor> tensors;
    for (const HostTensor& input : inputs) {
      tensors.push_back(FromBytes(device, input.spec, input.bytes));
    }
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : tensors) specs.push_back(tensor.spec());
    // What has no inputs is taken in as it is.
    TENSORD_ASSIGN_OR_RETURN(
        const Program program, Program::Record(device, specs, [&](absl::Span<const Tensor> in) {
          return std::vector<Tensor>{in.empty() ? RunOp(device, op, attrs) : RunOp(op, in, attrs)};
        }));
    const Tensor result = program.Run(tensors)[0];
    TENSORD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, result.ReadBytes());
    if (result.device() != device) {
      return absl::InternalError(result.device().name() + " is not " + device_name);
    }
    return HostTensor{result.spec(), std::move(bytes)};
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    for (const Device& device : client_.devices()) names.push_back(device.name());
    return names;
  }

  std::string cuda_unavailable_reason() const override {
    return client_.info().cuda_unavailable_reason;
  }

 private:
  std::unique_ptr<DaemonProcess> daemon_;
  Client client_;
};

}  // namespace

const char* WayInName() { return "program"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() {
  TENSORD_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start({"--devices=cpu,cpu"}));
  TENSORD_ASSIGN_OR_RETURN(Client client, Client::Connect(daemon->address()));
  if (client.info().cuda_unavailable_reason.empty()) {
    TENSORD_ASSIGN_OR_RETURN(daemon, DaemonProcess::Start({"--devices=cpu,cpu,cuda:0"}));
    TENSORD_ASSIGN_OR_RETURN(client, Client::Connect(daemon->address()));
  }
  return std::make_unique<ProgramWayIn>(std::move(daemon), std::move(client));
}

}  // namespace tensord::conformance
