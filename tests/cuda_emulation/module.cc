// Loads code that nvrtc.cc compiled, and launches its kernels.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/kernel.h"

namespace tensord::cuda_emulation {
namespace {

struct Kernel {
  void (*call)(void** arguments);
  std::vector<unsigned> parameter_bytes;
  std::shared_ptr<void> code;

  // HandleTable needs this function. A kernel belongs to no device; its library destroys it.
  int device() const { return 0; }
};

class Library {
 public:
  Library(int device, void* code)
      : device_(device), code_(code, [](void* loaded) { dlclose(loaded); }) {}
  int device() const { return device_; }

  const std::shared_ptr<void>& code() const { return code_; }
  void AddKernel(cudaKernel_t kernel) {
    MutexLock lock(&mu_);
    kernels_.push_back(kernel);
  }
  std::vector<cudaKernel_t> TakeKernels() {
    MutexLock lock(&mu_);
    return std::exchange(kernels_, {});
  }

 private:
  const int device_;                  // the device that was current when the library was loaded
  const std::shared_ptr<void> code_;  // queued launches keep the code loaded
  Mutex mu_;
  std::vector<cudaKernel_t> kernels_ ABSL_GUARDED_BY(mu_);
};

HandleTable<cudaLibrary_t, Library>& Libraries() {
  static auto* table = new HandleTable<cudaLibrary_t, Library>("a library");  // never destroyed
  return *table;
}

HandleTable<cudaKernel_t, Kernel>& Kernels() {
  static auto* table = new HandleTable<cudaKernel_t, Kernel>("a kernel");  // never destroyed
  return *table;
}

void DestroyKernels(Library& library) {
  for (cudaKernel_t kernel : library.TakeKernels()) Kernels().Remove(kernel, "cudaLibraryUnload");
}

}  // namespace

void ResetLibraries(int device) {
  for (const auto& library : Libraries().RemoveAllOf(device)) DestroyKernels(*library);
}

size_t LiveLibraries() { return Libraries().size(); }

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int kMaxParameters = 64;

// Returns the size of an ELF file. The headers of its sections are at its end.
size_t ElfBytes(const void* code) {
  const auto* bytes = static_cast<const unsigned char*>(code);
  uint64_t headers_at = 0;
  uint16_t header_bytes = 0, header_count = 0;
  std::memcpy(&headers_at, bytes + 0x28, sizeof(headers_at));
  std::memcpy(&header_bytes, bytes + 0x3a, sizeof(header_bytes));
  std::memcpy(&header_count, bytes + 0x3c, sizeof(header_count));
  return headers_at + size_t{header_bytes} * header_count;
}

// Loads the code from a new file: dlopen() returns the same object for the same file name.
void* LoadSharedObject(const void* code) {
  std::string name = (std::filesystem::temp_directory_path() / "tensord_cubin_XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) return nullptr;
  const auto bytes = static_cast<ssize_t>(ElfBytes(code));
  void* handle = nullptr;
  if (write(file, code, static_cast<size_t>(bytes)) == bytes) {
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  close(file);
  unlink(name.c_str());
  return handle;
}

// Copies of a launch's arguments, which the caller may change when the launch returns.
class Arguments {
 public:
  Arguments(const std::vector<unsigned>& sizes, void** arguments) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const char* data = static_cast<const char*>(arguments[i]);
      values_.emplace_back(data, data + sizes[i]);
      TranslateArguments(values_.back().data(), sizes[i]);
    }
  }
  // Stores pointers to the copies in `pointers`, for Kernel::call.
  void Fill(std::array<void*, kMaxParameters>& pointers) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      pointers[i] = const_cast<char*>(values_[i].data());
    }
  }

 private:
  std::vector<std::vector<char>> values_;
};

}  // namespace

extern "C" {

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  void* handle = LoadSharedObject(code);
  if (handle == nullptr) {
    const char* error = dlerror();
    Report(absl::StrCat("cudaLibraryLoadData: ",
                        error == nullptr ? "no temporary file can be written" : error));
    return RecordError(cudaErrorInvalidKernelImage);
  }
  *library = Libraries().Add(std::make_shared<Library>(CurrentDevice(), handle));
  return cudaSuccess;
}

// None of the library's kernels may be queued or running.
cudaError_t cudaLibraryUnload(cudaLibrary_t handle) {
  const auto library = Libraries().Remove(handle, "cudaLibraryUnload");
  if (library == nullptr) return RecordError(cudaErrorInvalidResourceHandle);
  DestroyKernels(*library);
  if (library->code().use_count() > 1 && StickyError(library->device()) == cudaSuccess) {
    Report("cudaLibraryUnload: a kernel of the library is queued, running or in a graph");
  }
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t handle, const char* name) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  const auto library = Libraries().Find(handle, "cudaLibraryGetKernel");
  if (library == nullptr) return RecordError(cudaErrorInvalidResourceHandle);
  void* code = library->code().get();
  void* call = dlsym(code, absl::StrCat("tensord_call_", name).c_str());
  void* parameters = dlsym(code, absl::StrCat("tensord_parameters_", name).c_str());
  if (call == nullptr || parameters == nullptr) return RecordError(cudaErrorSymbolNotFound);
  auto made = std::make_shared<Kernel>();
  made->call = reinterpret_cast<void (*)(void**)>(call);
  made->parameter_bytes.resize(kMaxParameters);
  made->parameter_bytes.resize(static_cast<size_t>(
      reinterpret_cast<int (*)(unsigned*)>(parameters)(made->parameter_bytes.data())));
  made->code = library->code();
  *kernel = Kernels().Add(std::move(made));
  library->AddKernel(*kernel);
  return cudaSuccess;
}

// `function` must be a cudaKernel_t. Kernels that are compiled with the program use launch.h
// instead.
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes != 0) {
    Report("cudaLaunchKernel: dynamic shared memory is not emulated");
    return RecordError(cudaErrorNotSupported);
  }
  const auto handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  const std::shared_ptr<Kernel> kernel = Kernels().Find(handle, "cudaLaunchKernel");
  if (kernel == nullptr) return RecordError(cudaErrorInvalidDeviceFunction);
  return EnqueueKernel(grid, block, stream,
                       [kernel, copies = Arguments(kernel->parameter_bytes, arguments)] {
                         std::array<void*, kMaxParameters> pointers;
                         copies.Fill(pointers);
                         kernel->call(pointers.data());
                       });
}

}  // extern "C"
