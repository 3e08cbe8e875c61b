#include "tensord/client/nn/sequential.h"

#include <cstdio>
#include <cstdlib>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/module.h"
#include "tensord/common/status_details.h"

namespace tensord::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (std::shared_ptr<Module>& module : modules) AppendShared(std::move(module));
}

void Sequential::AppendShared(std::shared_ptr<Module> module) {
  AddSharedModule(absl::StrCat(size()), std::move(module));
}

Tensor Sequential::Forward(const Tensor& x) const {
  std::string failed;
  Tensor y = ForwardModules(x, &failed);
  if (failed.empty()) return y;
  return Tensor::Failed(WithPrefix(y.status(), absl::StrCat("module ", failed, ": ")));
}

Tensor Sequential::ForwardModules(const Tensor& x, std::string* failed) const {
  Tensor y = x;
  for (const auto& [name, shared] : modules()) {
    if (!y.ok()) break;
    const Module& module = *shared;
    // A derived class may have another Forward.
    const bool is_sequential = typeid(module) == typeid(Sequential);
    std::string inside;
    y = is_sequential ? static_cast<const Sequential&>(module).ForwardModules(y, &inside)
                      : module.Forward(y);
    if (y.ok()) continue;
    *failed = inside.empty() ? absl::StrCat(name, " (", internal::KindOf(module), ")")
                             : absl::StrCat(name, ".", inside);
  }
  return y;
}

Module& Sequential::operator[](int i) const {
  if (i < 0 || i >= size()) {
    std::fprintf(stderr, "nn::Sequential: there is no module %d: it has %d modules, from 0 on\n", i,
                 size());
    std::abort();
  }
  return *modules()[i].second;
}

}  // namespace tensord::nn
