#include "tensord/server/device/cuda/lazy_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tensord::server::cuda {

LazyLibrary::LazyLibrary(std::string name) {
  std::vector<std::string> paths = {name, absl::StrCat(TENSORD_CUDA_LIBRARY_FOLDER "/", name)};
  if (const char* const folder = std::getenv("TENSORD_CUDA_LIBRARY_FOLDER")) {
    paths = {absl::StrCat(folder, "/", name)};
  }
  for (const std::string& path : paths) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) break;
    if (!error_.empty()) continue;  // reports why the first path failed
    const char* const reason = dlerror();
    error_ =
        absl::StrCat(name, " can't be loaded: ", reason == nullptr ? "unknown reason" : reason);
  }
  if (handle_ != nullptr) error_.clear();
}

void* LazyLibrary::FindAddress(const char* function) const {
  return handle_ != nullptr ? dlsym(handle_, function) : nullptr;
}

}  // namespace tensord::server::cuda
