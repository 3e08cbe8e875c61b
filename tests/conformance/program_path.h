// An execution path through the C++ client and recorded programs. Each program has the op, and two
// more ops for each of its results, which don't change it. If the op can be part of a chain, the
// daemon fuses it with these, unless it has --no-fusion.
#pragma once

#include <vector>

#include "tensord/tests/conformance/client_path.h"

namespace tensord::conformance {

class ProgramPath : public ClientPath {
 public:
  using ClientPath::ClientPath;

 private:
  absl::StatusOr<std::vector<Tensor>> Compute(const Device& device, absl::string_view op,
                                              const Attributes& attrs,
                                              const std::vector<Tensor>& inputs,
                                              int num_outputs) override {
    std::vector<TensorSpec> specs;
    for (const Tensor& input : inputs) specs.push_back(input.spec());
    const Tensor yes = Full(device, {}, true);
    const auto body = [&](absl::Span<const Tensor> in) {
      absl::StatusOr<std::vector<Tensor>> results =
          RunAny(device, op, attrs, {in.begin(), in.end()}, num_outputs);
      if (!results.ok()) return std::vector<Tensor>{Tensor::Failed(results.status())};
      for (Tensor& result : *results) {
        for (int i = 0; i < 2; ++i) result = Where(yes, result, result);
      }
      return *std::move(results);
    };
    TENSORD_ASSIGN_OR_RETURN(const Program program, Program::Record(device, specs, body));
    return program.Run(inputs);
  }
};

}  // namespace tensord::conformance
