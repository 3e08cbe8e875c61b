// The execution path that sends single ops through the C++ client.
#include "tensord/tests/conformance/client_path.h"

namespace tensord::conformance {
namespace {

class PipelinedPath : public ClientPath {
 public:
  using ClientPath::ClientPath;

 private:
  absl::StatusOr<std::vector<Tensor>> Compute(const Device& device, absl::string_view op,
                                              const Attributes& attrs,
                                              const std::vector<Tensor>& inputs,
                                              int num_outputs) override {
    return RunAny(device, op, attrs, inputs, num_outputs);
  }
};

}  // namespace

const char* ExecutionPathName() { return "pipelined"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  return StartDaemonFor<PipelinedPath>();
}

}  // namespace tensord::conformance
