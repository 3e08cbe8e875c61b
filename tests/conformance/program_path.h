// An execution path through the C++ client and recorded programs. Each program has the op and two
// more ops that don't change its result. If the op can be part of a chain, the daemon fuses it with
// these, unless it has --no-fusion.
#pragma once

#include <vector>

#include "tensord/tests/conformance/client_path.h"

namespace tensord::conformance {

class ProgramPath : public ClientPath {
 public:
  using ClientPath::ClientPath;

 private:
  absl::StatusOr<Tensor> Compute(const Device& device, absl::string_view op,
                                 const Attributes& attrs,
                                 const std::vector<Tensor>& inputs) override {
    std::vector<TensorSpec> specs;
    for (const Tensor& input : inputs) specs.push_back(input.spec());
    const Tensor yes = Full(device, {}, true);
    TENSORD_ASSIGN_OR_RETURN(
        const Program program, Program::Record(device, specs, [&](absl::Span<const Tensor> in) {
          Tensor result = in.empty() ? RunOp(device, op, attrs) : RunOp(op, in, attrs);
          for (int i = 0; i < 2; ++i) result = Where(yes, result, result);
          return std::vector<Tensor>{result};
        }));
    return program.Run(inputs)[0];
  }
};

}  // namespace tensord::conformance
