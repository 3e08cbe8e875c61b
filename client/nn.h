// Neural network layers, named and composed as in PyTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/ops.h"
#include "tensord/client/random.h"
#include "tensord/client/tensor.h"

namespace tensord::nn {

// Tensors by name: "0.weight", "2.bias".
using StateDict = std::map<std::string, Tensor>;

// A parameter of a module, with or without a value.
struct Parameter {
  TensorSpec spec;  // every value must have this spec
  Tensor value;     // an empty Tensor if it has no value yet

  bool has_value() const { return value.state() != nullptr; }
};

// A module has parameters and a forward pass. Several threads may use a module, as long as no
// thread changes it (To, LoadStateDict, Initialize, Train, Eval).
class Module {
 public:
  virtual ~Module() = default;

  // Applies the module to x. Doesn't wait. Errors are in the result's status.
  virtual Tensor Forward(const Tensor& x) const = 0;
  Tensor operator()(const Tensor& x) const { return Forward(x); }

  // Returns what PyTorch prints: "Linear(in_features=64, out_features=10, bias=True)".
  virtual std::string ToString() const = 0;

  // Calls `visit` with every parameter and its name, which begins with `prefix`, in PyTorch's
  // order. The pointers are valid as long as the module.
  using Visitor = std::function<void(const std::string& name, Parameter* parameter)>;
  virtual void VisitParameters(const std::string& /*prefix*/, const Visitor& /*visit*/) {}

  // Sets every parameter that has no value to its initial value, on `device`. To calls it.
  virtual void Initialize(const Device& /*device*/) {}

  // Makes this module and those in it behave as in training, or as in evaluation. Modules begin in
  // training mode. Only Dropout differs between the two.
  virtual void Train(bool training = true) { training_ = training; }
  void Eval() { Train(false); }
  bool training() const { return training_; }

  // Returns the parameters with their names, in PyTorch's order. Those without a value are empty
  // Tensors.
  std::vector<std::pair<std::string, Tensor>> Parameters() const;
  // Returns Parameters() as a map.
  StateDict GetStateDict() const;
  // Return the parameter with this name: model[0].weight(), model.parameter("0.weight"). If it has
  // no value yet, return an empty Tensor. If the module has no such parameter, the result has the
  // error NOT_FOUND with the names of its parameters.
  Tensor parameter(absl::string_view name) const;
  Tensor weight() const { return parameter("weight"); }
  Tensor bias() const { return parameter("bias"); }
  // Returns the number of elements of all parameters.
  int64_t NumParameters() const;

  // Copies every parameter to `device`, and initializes parameters without a value there. Doesn't
  // wait for the copies. If a parameter can't be copied, returns the first such error and changes
  // nothing.
  absl::Status To(const Device& device);

  // Sets the parameters by name. If a parameter is missing, a name is unknown or a shape differs,
  // returns INVALID_ARGUMENT with all these names. If a tensor has failed, returns its error. After
  // an error nothing has changed. Values are cast to the parameter's dtype. If the parameter
  // already has a value, the new one is copied to its device.
  absl::Status LoadStateDict(const StateDict& state);

 private:
  bool training_ = true;
};

struct LinearOptions {
  bool bias = true;
  Device device = {};                         // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;              // must be floating
  std::optional<int64_t> seed = {};           // of the initial values; none: a random seed
  Activation activation = Activation::kNone;  // fused into the op
};

// y = activation(x·Wᵀ + b): (…,in) -> (…,out). W and b have the initial distribution of
// torch.nn.Linear: uniform in [-1/√in, 1/√in).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  // `weight` is (out,in). `bias` is (out), or an empty Tensor if there is no bias.
  explicit Linear(Tensor weight, Tensor bias = {}, Activation activation = Activation::kNone);

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

  int64_t in_features() const { return in_features_; }
  int64_t out_features() const { return out_features_; }
  const Tensor& weight() const { return weight_.value; }
  // Returns the bias. If the layer has none, returns an empty Tensor.
  const Tensor& bias() const { return bias_.value; }

 private:
  // Returns whether this layer was made of tensors, and the weight was an empty Tensor.
  bool given_no_weight() const;

  int64_t in_features_ = 0;
  int64_t out_features_ = 0;
  bool has_bias_ = false;
  std::optional<int64_t> seed_;
  Activation activation_ = Activation::kNone;
  Parameter weight_;
  Parameter bias_;
};

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

// In training mode, sets each element to 0 with probability p, from 0 to 1, and divides the others
// by 1 - p. Each call of Forward draws other elements: those of the next stream of the seed. In
// evaluation mode, returns its input. Copies share the generator. If several threads call Forward,
// the order of their calls decides which of them gets which stream.
//
// In training mode, Forward fails with FAILED_PRECONDITION while a program is recorded: each run of
// the program would drop the same elements. There, call tensord::Dropout with a state.
class Dropout : public Module {
 public:
  // Without a seed, draws one from the system's random numbers.
  explicit Dropout(double p = 0.5, std::optional<int64_t> seed = {});

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;

 private:
  double p_;
  std::shared_ptr<Generator> generator_;
};

// Modules applied one after the other, named "0", "1", …:
//   nn::Sequential model(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10));
// Copies share their modules. If a module's Forward fails, the error names the module as a state dict
// does: "module 2 (Linear): …", or "module 1.0 (Linear): …" in a Sequential inside this one.
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules)
      : modules_(std::move(modules)) {}
  template <typename... Modules>
  requires(sizeof...(Modules) > 0 && (std::is_base_of_v<Module, std::decay_t<Modules>> &&
                                      ...)) explicit Sequential(Modules&&... modules)
      : modules_{std::make_shared<std::decay_t<Modules>>(std::forward<Modules>(modules))...} {}

  template <typename M>
  Sequential& Append(M module) {
    modules_.push_back(std::make_shared<M>(std::move(module)));
    return *this;
  }

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;
  void Train(bool training = true) override;

  int size() const { return static_cast<int>(modules_.size()); }
  // Returns module `i`, from 0 to size() - 1. With another `i`, prints an error that names `i` and
  // size(), and aborts the program.
  Module& operator[](int i) const;

 private:
  // Does what Forward does, but leaves an error without the module's name. Sets `*failed` to that
  // name, such as "2 (Linear)" or "1.0 (Linear)", if a module has failed, and not if x has.
  Tensor ForwardModules(const Tensor& x, std::string* failed) const;

  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace tensord::nn
