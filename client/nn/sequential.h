// Modules that are applied one after the other.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensord/client/nn/module.h"

namespace tensord::nn {

// Modules applied one after the other, named "0", "1", …:
//   nn::Sequential model(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10));
// Copies share their modules. If a module's Forward fails, the error names the module as a state
// dict does: "module 2 (Linear): …", or "module 1.0 (Linear): …" in a Sequential inside this one.
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);
  template <typename... Modules>
  requires(sizeof...(Modules) > 0 && (std::is_base_of_v<Module, std::decay_t<Modules>> &&
                                      ...)) explicit Sequential(Modules&&... modules)
      : Sequential(std::vector<std::shared_ptr<Module>>{
            std::make_shared<std::decay_t<Modules>>(std::forward<Modules>(modules))...}) {}

  template <typename M>
  Sequential& Append(M module) {
    AppendShared(std::make_shared<M>(std::move(module)));
    return *this;
  }

  Tensor Forward(const Tensor& x) const override;

  int size() const { return static_cast<int>(modules().size()); }
  // Returns module `i`, from 0 to size() - 1. With another `i`, prints an error that names `i` and
  // size(), and aborts the program.
  Module& operator[](int i) const;

 private:
  void AppendShared(std::shared_ptr<Module> module);
  // Does what Forward does, but leaves an error without the module's name. Sets `*failed` to that
  // name, such as "2 (Linear)" or "1.0 (Linear)", if a module has failed, and not if x has.
  Tensor ForwardModules(const Tensor& x, std::string* failed) const;
};

}  // namespace tensord::nn
