// The base of all layers, with parameters that are named as in PyTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::nn {

// Tensors by name: "0.weight", "2.bias".
using StateDict = std::map<std::string, Tensor>;

// A parameter or a buffer of a module, with or without a value.
struct Parameter {
  TensorSpec spec;    // every value must have this spec
  Tensor value = {};  // an empty Tensor if it has no value yet
  // A buffer is a part of the state that an optimizer doesn't change, such as a running mean.
  bool is_buffer = false;

  bool has_value() const { return value.state() != nullptr; }
};

// A module has parameters, other modules and a forward pass. Several threads may use a module, as
// long as no thread changes it (To, LoadStateDict, Initialize, Train, Eval).
//
// A class derived from Module adds the modules of which it consists in its constructor, and defines
// Forward:
//
//   class Block : public nn::Module {
//    public:
//     explicit Block(int64_t width)
//         : hidden_(AddModule("hidden", nn::Linear(width, 4 * width))),
//           output_(AddModule("output", nn::Linear(4 * width, width))) {}
//     Tensor Forward(const Tensor& x) const override {
//       return x + output_->Forward(Relu(hidden_->Forward(x)));
//     }
//
//    private:
//     std::shared_ptr<nn::Linear> hidden_, output_;
//   };
//
// Its parameters are "hidden.weight", "hidden.bias", "output.weight" and "output.bias". Copies of a
// module share the modules that were added to it.
class Module {
 public:
  virtual ~Module() = default;

  // Applies the module to x. Doesn't wait. Errors are in the result's status.
  virtual Tensor Forward(const Tensor& x) const = 0;
  Tensor operator()(const Tensor& x) const { return Forward(x); }

  // Returns what PyTorch prints: "Linear(in_features=64, out_features=10, bias=True)". The default
  // is the name of the class, and the added modules.
  virtual std::string ToString() const;

  // Calls `visit` with every parameter and buffer and its name, which begins with `prefix`. The
  // pointers are valid as long as the module. The default visits those of the added modules.
  using Visitor = std::function<void(const std::string& name, Parameter* parameter)>;
  virtual void VisitParameters(const std::string& prefix, const Visitor& visit);

  // Sets every parameter that has no value to its initial value, on `device`. To() calls this
  // function. The default calls it for the added modules.
  virtual void Initialize(const Device& device);

  // Makes this module and those in it behave as in training, or as in evaluation. Modules begin in
  // training mode. Only Dropout, batch normalization, and layers with dropout differ between the
  // two.
  virtual void Train(bool training = true);
  void Eval() { Train(false); }
  bool training() const { return training_; }

  // Returns the parameters with their names, in PyTorch's order, without buffers. Those without a
  // value are empty Tensors.
  std::vector<std::pair<std::string, Tensor>> Parameters() const;
  // Returns all parameters and buffers by name.
  StateDict GetStateDict() const;
  // Return the parameter or buffer with this name: model[0].weight(), model.parameter("0.weight").
  // If it has no value yet, return an empty Tensor. If the module has no such parameter, the result
  // has the error NOT_FOUND with the names of its parameters.
  Tensor parameter(absl::string_view name) const;
  Tensor weight() const { return parameter("weight"); }
  Tensor bias() const { return parameter("bias"); }
  // Returns the number of elements of all parameters, without buffers.
  int64_t NumParameters() const;

  // Copies every parameter and buffer to `device`, and initializes those without a value there.
  // Doesn't wait for the copies. If one can't be copied, returns the first such error and changes
  // nothing.
  absl::Status To(const Device& device);

  // Sets the parameters and buffers by name. If one is missing, a name is unknown or a shape
  // differs, returns INVALID_ARGUMENT with all these names. If a tensor has failed, returns its
  // error. After an error nothing has changed. Values are cast to the parameter's dtype. If the
  // parameter already has a value, the new one is copied to its device.
  absl::Status LoadStateDict(const StateDict& state);

 protected:
  // Adds a module, whose parameters are then named "name.weight", … Returns it.
  template <typename M>
  std::shared_ptr<M> AddModule(std::string name, M module) {
    auto added = std::make_shared<M>(std::move(module));
    AddSharedModule(std::move(name), added);
    return added;
  }
  void AddSharedModule(std::string name, std::shared_ptr<Module> module) {
    modules_.emplace_back(std::move(name), std::move(module));
  }
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules() const {
    return modules_;
  }

 private:
  bool training_ = true;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
};

}  // namespace tensord::nn
