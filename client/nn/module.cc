#include "tensord/client/nn/module.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensord/client/internal/module.h"
#include "tensord/common/status_details.h"

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

// Returns the name of the class of `module` without namespaces.
std::string ClassName(const Module& module) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), &std::free);
  const std::string name = status == 0 ? demangled.get() : typeid(module).name();
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace

std::string Module::ToString() const {
  std::string text = ClassName(*this) + "(";
  for (const auto& [name, module] : modules_) {
    const std::string inner = absl::StrReplaceAll(module->ToString(), {{"\n", "\n  "}});
    absl::StrAppend(&text, "\n  (", name, "): ", inner);
  }
  return text + (modules_.empty() ? ")" : "\n)");
}

void Module::VisitParameters(const std::string& prefix, const Visitor& visit) {
  for (const auto& [name, module] : modules_) {
    module->VisitParameters(absl::StrCat(prefix, name, "."), visit);
  }
}

void Module::Initialize(const Device& device) {
  for (const auto& [name, module] : modules_) module->Initialize(device);
}

void Module::Train(bool training) {
  training_ = training;
  for (const auto& [name, module] : modules_) module->Train(training);
}

std::vector<std::pair<std::string, Tensor>> Module::Parameters() const {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (const auto& [name, parameter] : Collect(this)) {
    if (!parameter->is_buffer) parameters.emplace_back(name, parameter->value);
  }
  return parameters;
}

Tensor Module::parameter(absl::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [own_name, parameter] : Collect(this)) {
    if (own_name == name) return parameter->value;
    names.push_back(own_name);
  }
  return Tensor::Failed(absl::NotFoundError(
      absl::StrCat(internal::KindOf(*this), " has no parameter \"", name, "\"; it has ",
                   names.empty() ? "none" : absl::StrJoin(names, ", "))));
}

StateDict Module::GetStateDict() const {
  StateDict state;
  for (const auto& [name, parameter] : Collect(this)) state[name] = parameter->value;
  return state;
}

int64_t Module::NumParameters() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : Collect(this)) {
    if (!parameter->is_buffer) count += parameter->spec.num_elements();
  }
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

}  // namespace tensord::nn
