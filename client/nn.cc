#include "tensord/client/nn.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/new_seed.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::nn {
namespace {

struct NamedParameter {
  std::string name;
  Parameter* parameter;
};

std::vector<NamedParameter> Collect(Module* module) {
  std::vector<NamedParameter> parameters;
  module->VisitParameters("", [&](const std::string& name, Parameter* parameter) {
    parameters.push_back({name, parameter});
  });
  return parameters;
}

// Only callers that don't change the parameters may call this.
std::vector<NamedParameter> Collect(const Module* module) {
  return Collect(const_cast<Module*>(module));
}

absl::Status WithName(const std::string& name, const absl::Status& status) {
  return WithPrefix(status, absl::StrCat("parameter ", name, ": "));
}

// Returns the name of the module's class: "ReLU", "Sequential".
std::string KindOf(const Module& module) {
  const std::string text = module.ToString();  // "ReLU()"; that of a container has several lines
  return text.substr(0, text.find('('));
}

absl::string_view PythonBool(bool value) { return value ? "True" : "False"; }

}  // namespace

std::vector<std::pair<std::string, Tensor>> Module::Parameters() const {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (const auto& [name, parameter] : Collect(this)) {
    parameters.emplace_back(name, parameter->value);
  }
  return parameters;
}

Tensor Module::parameter(absl::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [own_name, parameter] : Collect(this)) {
    if (own_name == name) return parameter->value;
    names.push_back(own_name);
  }
  return Tensor::Failed(
      absl::NotFoundError(absl::StrCat(KindOf(*this), " has no parameter \"", name, "\"; it has ",
                                       names.empty() ? "none" : absl::StrJoin(names, ", "))));
}

StateDict Module::GetStateDict() const {
  StateDict state;
  for (const auto& [name, parameter] : Collect(this)) state[name] = parameter->value;
  return state;
}

int64_t Module::NumParameters() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : Collect(this)) count += parameter->spec.num_elements();
  return count;
}

absl::Status Module::To(const Device& device) {
  const std::vector<NamedParameter> parameters = Collect(this);
  std::vector<Tensor> before;
  for (const auto& [name, parameter] : parameters) before.push_back(parameter->value);

  Initialize(device);
  absl::Status status;
  std::vector<Tensor> moved;
  for (const auto& [name, parameter] : parameters) {
    moved.push_back(parameter->value.To(device));
    if (!moved.back().ok() && status.ok()) status = WithName(name, moved.back().status());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].parameter->value = status.ok() ? moved[i] : before[i];
  }
  return status;
}

absl::Status Module::LoadStateDict(const StateDict& state) {
  std::vector<std::string> problems;
  StateDict unexpected = state;
  const std::vector<NamedParameter> parameters = Collect(this);
  for (const auto& [name, parameter] : parameters) {
    const auto it = state.find(name);
    if (it == state.end()) {
      problems.push_back(absl::StrCat("missing ", name, " ", parameter->spec.shape.ToString()));
      continue;
    }
    unexpected.erase(name);
    if (!it->second.ok()) return WithName(name, it->second.status());
    if (it->second.shape() != parameter->spec.shape) {
      problems.push_back(absl::StrCat(name, " has shape ", it->second.shape().ToString(),
                                      " where the module has ", parameter->spec.shape.ToString()));
    }
  }
  for (const auto& [name, value] : unexpected) problems.push_back("unexpected " + name);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("LoadStateDict: ", absl::StrJoin(problems, "; ")));
  }

  std::vector<Tensor> values;
  for (const auto& [name, parameter] : parameters) {
    Tensor value = state.at(name).To(parameter->spec.dtype);
    if (parameter->has_value()) value = value.To(parameter->value.device());
    if (!value.ok()) return WithName(name, value.status());
    values.push_back(std::move(value));
  }
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].parameter->value = values[i];
  return absl::OkStatus();
}

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options)
    : in_features_(in_features),
      out_features_(out_features),
      has_bias_(options.bias),
      seed_(options.seed),
      activation_(options.activation),
      weight_{{options.dtype, {out_features, in_features}}, {}},
      bias_{{options.dtype, {out_features}}, {}} {
  if (options.device.valid()) Initialize(options.device);
}

Linear::Linear(Tensor weight, Tensor bias, Activation activation)
    : has_bias_(bias.state() != nullptr), activation_(activation) {
  if (weight.rank() == 2) {
    out_features_ = weight.shape().dim(0);
    in_features_ = weight.shape().dim(1);
  }
  weight_ = {weight.spec(), std::move(weight)};
  bias_ = {bias.spec(), std::move(bias)};
}

bool Linear::given_no_weight() const {
  return !weight_.has_value() && weight_.spec.dtype == DType::kUnspecified;
}

Tensor Linear::Forward(const Tensor& x) const {
  if (given_no_weight()) {
    return Tensor::Failed(absl::FailedPreconditionError(
        "nn::Linear: the weight that the constructor was given is an empty Tensor: no value was "
        "assigned to it"));
  }
  if (!weight_.has_value() || (has_bias_ && !bias_.has_value())) {
    return Tensor::Failed(absl::FailedPreconditionError(
        absl::StrCat("nn::", ToString(), " has no values yet: call To(device) or LoadStateDict")));
  }
  const tensord::LinearOptions options = {.activation = activation_};
  return has_bias_ ? tensord::Linear(x, weight_.value, bias_.value, options)
                   : tensord::Linear(x, weight_.value, options);
}

std::string Linear::ToString() const {
  return absl::StrCat("Linear(in_features=", in_features_, ", out_features=", out_features_,
                      ", bias=", PythonBool(has_bias_), ")");
}

void Linear::VisitParameters(const std::string& prefix, const Visitor& visit) {
  visit(prefix + "weight", &weight_);
  if (has_bias_) visit(prefix + "bias", &bias_);
}

void Linear::Initialize(const Device& device) {
  if (given_no_weight()) return;
  // The bound of torch.nn.Linear, which uses Kaiming-uniform with a = √5.
  const double bound = in_features_ > 0 ? 1 / std::sqrt(static_cast<double>(in_features_)) : 0;
  const int64_t seed = seed_.has_value() ? *seed_ : internal::NewSeed();
  const auto draw = [&](const TensorSpec& spec, int64_t own_seed) {
    if (bound == 0) return Zeros(device, spec.shape, {.dtype = spec.dtype});
    return Uniform(device, spec.shape, own_seed,
                   {.low = -bound, .high = bound, .dtype = spec.dtype});
  };
  if (!weight_.has_value()) weight_.value = draw(weight_.spec, seed);
  if (has_bias_ && !bias_.has_value()) bias_.value = draw(bias_.spec, ~seed);
}

ReLU::ReLU() : Function("ReLU()", [](const Tensor& x) { return Relu(x); }) {}

GELU::GELU(GeluApproximation approximate)
    : Function(absl::StrCat("GELU(approximate='",
                            approximate == GeluApproximation::kTanh ? "tanh" : "none", "')"),
               [approximate](const Tensor& x) { return Gelu(x, approximate); }) {}

SiLU::SiLU() : Function("SiLU()", [](const Tensor& x) { return Silu(x); }) {}

Sigmoid::Sigmoid() : Function("Sigmoid()", [](const Tensor& x) { return tensord::Sigmoid(x); }) {}

Tanh::Tanh() : Function("Tanh()", [](const Tensor& x) { return tensord::Tanh(x); }) {}

Softmax::Softmax(int64_t axis)
    : Function(absl::StrCat("Softmax(dim=", axis, ")"),
               [axis](const Tensor& x) { return tensord::Softmax(x, axis); }) {}

LogSoftmax::LogSoftmax(int64_t axis)
    : Function(absl::StrCat("LogSoftmax(dim=", axis, ")"),
               [axis](const Tensor& x) { return tensord::LogSoftmax(x, axis); }) {}

Dropout::Dropout(double p, std::optional<int64_t> seed)
    : p_(p),
      generator_(seed.has_value() ? std::make_shared<Generator>(*seed)
                                  : std::make_shared<Generator>()) {}

Tensor Dropout::Forward(const Tensor& x) const {
  if (!training()) return x;
  if (internal::IsRecorded(x)) {
    return Tensor::Failed(absl::FailedPreconditionError(absl::StrCat(
        "nn::", ToString(),
        " in a program would drop the same elements in each run: call Eval() before recording, or "
        "tensord::Dropout with a state that is an input of the program")));
  }
  return tensord::Dropout(x, p_, *generator_);
}

std::string Dropout::ToString() const { return absl::StrCat("Dropout(p=", p_, ", inplace=False)"); }

Tensor Sequential::Forward(const Tensor& x) const {
  std::string failed;
  Tensor y = ForwardModules(x, &failed);
  if (failed.empty()) return y;
  return Tensor::Failed(WithPrefix(y.status(), absl::StrCat("module ", failed, ": ")));
}

Tensor Sequential::ForwardModules(const Tensor& x, std::string* failed) const {
  Tensor y = x;
  for (size_t i = 0; i < modules_.size() && y.ok(); ++i) {
    const Module& module = *modules_[i];
    // A derived class may have another Forward.
    const bool is_sequential = typeid(module) == typeid(Sequential);
    std::string inside;
    y = is_sequential ? static_cast<const Sequential&>(module).ForwardModules(y, &inside)
                      : module.Forward(y);
    if (y.ok()) continue;
    *failed =
        inside.empty() ? absl::StrCat(i, " (", KindOf(module), ")") : absl::StrCat(i, ".", inside);
  }
  return y;
}

Module& Sequential::operator[](int i) const {
  if (i < 0 || i >= size()) {
    std::fprintf(stderr, "nn::Sequential: there is no module %d: it has %d modules, from 0 on\n", i,
                 size());
    std::abort();
  }
  return *modules_[i];
}

std::string Sequential::ToString() const {
  std::string text = "Sequential(";
  for (size_t i = 0; i < modules_.size(); ++i) {
    const std::string inner = absl::StrReplaceAll(modules_[i]->ToString(), {{"\n", "\n  "}});
    absl::StrAppend(&text, "\n  (", i, "): ", inner);
  }
  return text + (modules_.empty() ? ")" : "\n)");
}

void Sequential::VisitParameters(const std::string& prefix, const Visitor& visit) {
  for (size_t i = 0; i < modules_.size(); ++i) {
    modules_[i]->VisitParameters(absl::StrCat(prefix, i, "."), visit);
  }
}

void Sequential::Initialize(const Device& device) {
  for (const std::shared_ptr<Module>& module : modules_) module->Initialize(device);
}

void Sequential::Train(bool training) {
  Module::Train(training);
  for (const std::shared_ptr<Module>& module : modules_) module->Train(training);
}

}  // namespace tensord::nn
