// Sequences of ops that are recorded once and run many times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

namespace internal {
struct ProgramState;
}

// A recorded sequence of ops that the server keeps. A run sends one small message, regardless of
// the number of ops. A Program is a value that is cheap to copy: copies share the program, and when
// the last one is destroyed, the server frees it. Thread-safe.
//
//   auto step = Program::Record(device, {x.spec()}, [&](absl::Span<const Tensor> in) {
//     return std::vector<Tensor>{Relu(Linear(in[0], weight, bias))};
//   });
//   Tensor y = step->Run({x})[0];
class Program {
 public:
  // The code to record. Its inputs, and the tensors that it computes from them, are placeholders:
  // they have a spec and a device but no values. Reading a placeholder, or copying it to another
  // device, fails with FAILED_PRECONDITION. Other tensors that the code uses (weights) become
  // constants of the program and must be on `device`.
  using Body = std::function<std::vector<Tensor>(absl::Span<const Tensor> inputs)>;

  // Makes an empty Program: Run returns one output, with the error FAILED_PRECONDITION.
  Program() = default;

  // Calls `body` once, and makes the server keep the ops that it computes from its inputs.
  // Everything else that `body` does (printing, counting) happens only during this call, not in
  // Run. Doesn't wait for the server. Errors:
  //   INVALID_ARGUMENT     a spec isn't valid, `body` returns nothing, or it uses a tensor of
  //                        another device.
  //   FAILED_PRECONDITION  `device` isn't valid(), or `body` returns a value of another program.
  //   RESOURCE_EXHAUSTED   the connection has too many programs.
  //   any other            the status of a tensor that `body` returned.
  static absl::StatusOr<Program> Record(const Device& device, std::vector<TensorSpec> inputs,
                                        const Body& body);

  // Runs the program, and returns its outputs in the order in which `body` returned them. Doesn't
  // wait. If the inputs don't fit (their number, specs, device), every output has that error. An
  // error that the server finds sticks to every output.
  std::vector<Tensor> Run(absl::Span<const Tensor> inputs) const;

  // These are fixed by Record. An empty Program has none.
  const std::vector<TensorSpec>& inputs() const;
  const std::vector<TensorSpec>& outputs() const;
  int64_t num_ops() const;

 private:
  explicit Program(std::shared_ptr<const internal::ProgramState> state)
      : state_(std::move(state)) {}

  std::shared_ptr<const internal::ProgramState> state_;
};

}  // namespace tensord
