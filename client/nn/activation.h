// Modules without parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tensord/client/nn/module.h"
#include "tensord/client/ops.h"

namespace tensord::nn {

// A module without parameters that applies `forward`. `description` is what ToString returns.
class Function : public Module {
 public:
  Function(std::string description, std::function<Tensor(const Tensor&)> forward)
      : description_(std::move(description)), forward_(std::move(forward)) {}

  Tensor Forward(const Tensor& x) const override { return forward_(x); }
  std::string ToString() const override { return description_; }

 private:
  std::string description_;
  std::function<Tensor(const Tensor&)> forward_;
};

class ReLU : public Function {
 public:
  ReLU();
};
class GELU : public Function {
 public:
  explicit GELU(GeluApproximation approximate = GeluApproximation::kNone);
};
class SiLU : public Function {
 public:
  SiLU();
};
class Sigmoid : public Function {
 public:
  Sigmoid();
};
class Tanh : public Function {
 public:
  Tanh();
};
class Softmax : public Function {
 public:
  explicit Softmax(int64_t axis = -1);
};
class LogSoftmax : public Function {
 public:
  explicit LogSoftmax(int64_t axis = -1);
};

// Returns its input.
class Identity : public Function {
 public:
  Identity();
};
// Joins the axes from start_axis to end_axis, both included: by default (N,…) -> (N,d).
class Flatten : public Function {
 public:
  explicit Flatten(int64_t start_axis = 1, int64_t end_axis = -1);
};

}  // namespace tensord::nn
