// The C++ client, each op as a recorded program.
#include "tensord/tests/conformance/client_way_in.h"

namespace tensord::conformance {
namespace {

class ProgramWayIn : public ClientWayIn {
 public:
  using ClientWayIn::ClientWayIn;

 private:
  absl::StatusOr<Tensor> Compute(const Device& device, absl::string_view op,
                                 const Attributes& attrs,
                                 const std::vector<Tensor>& inputs) override {
    std::vector<TensorSpec> specs;
    for (const Tensor& input : inputs) specs.push_back(input.spec());
    // What has no inputs is taken in as it is.
    TENSORD_ASSIGN_OR_RETURN(
        const Program program, Program::Record(device, specs, [&](absl::Span<const Tensor> in) {
          return std::vector<Tensor>{in.empty() ? RunOp(device, op, attrs) : RunOp(op, in, attrs)};
        }));
    return program.Run(inputs)[0];
  }
};

}  // namespace

const char* WayInName() { return "program"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() { return StartDaemonFor<ProgramWayIn>(); }

}  // namespace tensord::conformance
