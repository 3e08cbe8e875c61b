// The way in that sends single ops through the C++ client.
#include "tensord/tests/conformance/client_way_in.h"

namespace tensord::conformance {
namespace {

class PipelinedWayIn : public ClientWayIn {
 public:
  using ClientWayIn::ClientWayIn;

 private:
  absl::StatusOr<Tensor> Compute(const Device& device, absl::string_view op,
                                 const Attributes& attrs,
                                 const std::vector<Tensor>& inputs) override {
    return inputs.empty() ? RunOp(device, op, attrs) : RunOp(op, inputs, attrs);
  }
};

}  // namespace

const char* WayInName() { return "pipelined"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() { return StartDaemonFor<PipelinedWayIn>(); }

}  // namespace tensord::conformance
