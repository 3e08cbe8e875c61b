#include "tensord/server/device/cuda/lazy_library.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server::cuda {

LazyLibrary::LazyLibrary(std::string name) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  handle_ = dlopen(name.c_str(), kFlags);
  if (handle_ != nullptr) return;
  const char* const reason = dlerror();
  error_ = absl::StrCat(name, " can't be loaded: ", reason == nullptr ? "unknown reason" : reason);
  handle_ = dlopen(absl::StrCat(TENSORD_CUDA_LIBRARY_FOLDER "/", name).c_str(), kFlags);
  if (handle_ != nullptr) error_.clear();
}

void* LazyLibrary::FindAddress(const char* function) const {
  return handle_ != nullptr ? dlsym(handle_, function) : nullptr;
}

}  // namespace tensord::server::cuda
