// Sequences of ops that are sent once and run many times.
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

// A recorded sequence of ops, kept by the server: running it takes one small message however many
// ops it has, and the server runs them as one. A value, cheap to copy, usable from any thread:
// copies name the same program, and when the last one goes the server is told to forget it.
//
//   auto step = Program::Record(device, {x.spec()}, [&](absl::Span<const Tensor> in) {
//     return std::vector<Tensor>{Relu(Linear(in[0], weight, bias))};
//   });
//   Tensor y = step->Run({x})[0];
class Program {
 public:
  // Computes with tensors that stand for the inputs, and for what is computed from them: they have
  // a spec and a device and no values, so that reading one, or copying it to another device, fails.
  // Other tensors that it uses (weights) are taken in as they are, and must lie on `device`.
  using Body = std::function<std::vector<Tensor>(absl::Span<const Tensor> inputs)>;

  // No program: Run fails with FAILED_PRECONDITION.
  Program() = default;

  // Calls `body` once, and keeps what it computes. Whatever it does besides (printing, counting)
  // happens at this call and never again. The error of an input's spec, of the device, of what
  // `body` returned (an op that was refused, say), or FAILED_PRECONDITION where that isn't computed
  // from the inputs.
  static absl::StatusOr<Program> Record(const Device& device, std::vector<TensorSpec> inputs,
                                        const Body& body);

  // The outputs, in the order in which `body` gave them. Doesn't wait. Where the inputs don't fit
  // (their number, specs, device) every output is that error; what the server finds sticks to all
  // of them.
  std::vector<Tensor> Run(absl::Span<const Tensor> inputs) const;

  // Fixed by Record; empty for no program.
  const std::vector<TensorSpec>& inputs() const;
  const std::vector<TensorSpec>& outputs() const;
  int64_t num_ops() const;

 private:
  explicit Program(std::shared_ptr<const internal::ProgramState> state)
      : state_(std::move(state)) {}

  std::shared_ptr<const internal::ProgramState> state_;
};

}  // namespace tensord
