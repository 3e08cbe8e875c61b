// The functions of NVRTC that nvrtc.cc calls. The library is loaded at the first call. If it can't
// be loaded, every call fails with NVRTC_ERROR_INTERNAL_ERROR, and nvrtcGetErrorString() returns
// the reason.
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/cuda/lazy_library.h"

namespace tensord::server::cuda {
namespace {

const LazyLibrary& Nvrtc() {
  static const auto* const library =
      new LazyLibrary(absl::StrCat("libnvrtc.so.", CUDART_VERSION / 1000));
  return *library;
}

}  // namespace

#define TENSORD_NVRTC_FUNCTION(function, parameters, arguments)              \
  TENSORD_LAZY_FUNCTION(Nvrtc, nvrtcResult, function, parameters, arguments, \
                        NVRTC_ERROR_INTERNAL_ERROR)

TENSORD_LAZY_FUNCTION(Nvrtc, const char*, nvrtcGetErrorString, (nvrtcResult result), (result),
                      Nvrtc().error().c_str())
TENSORD_NVRTC_FUNCTION(nvrtcCreateProgram,
                       (nvrtcProgram * program, const char* source, const char* name, int headers,
                        const char* const* texts, const char* const* names),
                       (program, source, name, headers, texts, names))
TENSORD_NVRTC_FUNCTION(nvrtcDestroyProgram, (nvrtcProgram * program), (program))
TENSORD_NVRTC_FUNCTION(nvrtcCompileProgram,
                       (nvrtcProgram program, int count, const char* const* options),
                       (program, count, options))
TENSORD_NVRTC_FUNCTION(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t* size),
                       (program, size))
TENSORD_NVRTC_FUNCTION(nvrtcGetProgramLog, (nvrtcProgram program, char* log), (program, log))
TENSORD_NVRTC_FUNCTION(nvrtcGetCUBINSize, (nvrtcProgram program, size_t* size), (program, size))
TENSORD_NVRTC_FUNCTION(nvrtcGetCUBIN, (nvrtcProgram program, char* code), (program, code))

}  // namespace tensord::server::cuda
