// Code that nvrtc.cc compiled: loading it, and launching its kernels.
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
#include "tensord/tests/cuda_emulation/kernel.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int kMaxParameters = 64;
}  // namespace

// The names are cudart's.
struct CUkern_st {
  void (*call)(void** arguments);
  std::vector<unsigned> parameter_bytes;
};
struct CUlib_st {
  ~CUlib_st() { dlclose(shared_object); }

  void* shared_object;
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};

namespace {

// The bytes of an ELF file: its sections' headers lie at its end.
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
    }
  }
  // Stores pointers to the copies in `pointers`, for CUkern_st::call.
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
  *library = new CUlib_st{handle, {}};
  return cudaSuccess;
}

// None of the library's kernels may be queued or running.
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  delete library;
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  void* call = dlsym(library->shared_object, absl::StrCat("tensord_call_", name).c_str());
  void* parameters =
      dlsym(library->shared_object, absl::StrCat("tensord_parameters_", name).c_str());
  if (call == nullptr || parameters == nullptr) return RecordError(cudaErrorSymbolNotFound);
  auto made = std::make_unique<CUkern_st>();
  made->call = reinterpret_cast<void (*)(void**)>(call);
  made->parameter_bytes.resize(kMaxParameters);
  made->parameter_bytes.resize(static_cast<size_t>(
      reinterpret_cast<int (*)(unsigned*)>(parameters)(made->parameter_bytes.data())));
  *kernel = made.get();
  library->kernels.push_back(std::move(made));
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
  const auto* kernel = static_cast<const CUkern_st*>(function);
  return EnqueueKernel(
      grid, block, stream,
      [call = kernel->call, copies = Arguments(kernel->parameter_bytes, arguments)] {
        std::array<void*, kMaxParameters> pointers;
        copies.Fill(pointers);
        call(pointers.data());
      });
}

}  // extern "C"
