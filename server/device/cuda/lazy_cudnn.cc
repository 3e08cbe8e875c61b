// Loads cuDNN. Tests that run on the CPU replace this file (tests/cuda_emulation).
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/cuda/cudnn_library.h"
#include "tensord/server/device/cuda/lazy_library.h"

namespace tensord::server::cuda {
namespace {

// The library of the major version that cudnn_library.h declares.
constexpr char kLibrary[] = "libcudnn.so.9";

absl::Status MissingError(absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat(
      "convolutions on a GPU need cuDNN 9: ", reason, "; install NVIDIA's package libcudnn9-cuda-",
      CUDART_VERSION / 1000, ", then restart the server"));
}

absl::StatusOr<const CudnnLibrary*> Load() {
  static const auto* const loaded = new LazyLibrary(kLibrary);
  if (!loaded->error().empty()) return MissingError(loaded->error());
  static CudnnLibrary library;
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    using Function = std::remove_pointer_t<std::remove_pointer_t<decltype(function)>>;
    *function = loaded->Find<Function>(name);
    if (*function == nullptr) missing = name;
  };
  find(&library.GetVersion, "cudnnGetVersion");
  find(&library.GetErrorString, "cudnnGetErrorString");
  find(&library.Create, "cudnnCreate");
  find(&library.Destroy, "cudnnDestroy");
  find(&library.SetStream, "cudnnSetStream");
  find(&library.CreateDescriptor, "cudnnBackendCreateDescriptor");
  find(&library.DestroyDescriptor, "cudnnBackendDestroyDescriptor");
  find(&library.SetAttribute, "cudnnBackendSetAttribute");
  find(&library.GetAttribute, "cudnnBackendGetAttribute");
  find(&library.Finalize, "cudnnBackendFinalize");
  find(&library.Execute, "cudnnBackendExecute");
  if (missing == nullptr) return &library;
  return MissingError(absl::StrCat(kLibrary, " has no ", missing));
}

}  // namespace

absl::StatusOr<const CudnnLibrary*> LoadCudnn() {
  static const auto* const result = new absl::StatusOr<const CudnnLibrary*>(Load());
  return *result;
}

}  // namespace tensord::server::cuda
