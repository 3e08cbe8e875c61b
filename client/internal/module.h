// Helpers of the layers in client/nn.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/nn/module.h"
#include "tensord/client/random.h"
#include "tensord/client/scalar.h"

namespace tensord::nn::internal {

// Returns the name of the module's class: "ReLU", "Sequential".
std::string KindOf(const Module& module);

inline absl::string_view PythonBool(bool value) { return value ? "True" : "False"; }
// Returns "(3, 3)", or "(3,)" for a single number.
std::string PythonTuple(absl::Span<const int64_t> values);

// Returns FAILED_PRECONDITION with the remedy if one of the parameters has no value. A null pointer
// is a parameter that the module doesn't have.
absl::Status RequireValues(const Module& module,
                           std::initializer_list<const Parameter*> parameters);

// Returns x·weightᵀ + bias.
Tensor Project(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias);

// Gives initial values to the parameters of a module. Each parameter uses its own stream of one
// seed.
class Initializer {
 public:
  // Without a seed, draws one.
  Initializer(const Device& device, std::optional<int64_t> seed);

  // If the parameter has a value, these do nothing. Uniform draws from [-bound, bound), and Normal
  // from the standard normal distribution.
  void Uniform(Parameter* parameter, double bound);
  void Normal(Parameter* parameter);
  void Fill(Parameter* parameter, Scalar value);

 private:
  RandomStream Next() { return {seed_, stream_++}; }

  const Device& device_;
  int64_t seed_;
  int64_t stream_ = 0;
};

// Returns 1 / √count, or 0 if the count is 0: the bound of PyTorch's initial values where `count`
// inputs contribute to each output (Kaiming-uniform with a = √5).
double FanInBound(int64_t count);

}  // namespace tensord::nn::internal
