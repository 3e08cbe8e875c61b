#include "tensord/server/device/cuda/nvrtc.h"

#include <nvrtc.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/server/device/cuda/embedded_headers.h"

namespace tensord::server::cuda {
namespace {

// Owns an NVRTC program.
class Program {
 public:
  explicit Program(const std::string& source) {
    std::vector<const char*> names, texts;
    for (const EmbeddedHeader& header : EmbeddedHeaders()) {
      names.push_back(header.name);
      texts.push_back(header.text);
    }
    error_ = nvrtcCreateProgram(&program_, source.c_str(), "fused.cu",
                                static_cast<int>(names.size()), texts.data(), names.data());
  }
  ~Program() {
    if (program_ != nullptr) nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult Compile(const std::string& architecture) {
    if (error_ != NVRTC_SUCCESS) return error_;
    const std::string target = absl::StrCat("--gpu-architecture=", architecture);
    const char* const options[] = {target.c_str(), "--std=c++20", "--fmad=false",
                                   "--device-as-default-execution-space"};
    return nvrtcCompileProgram(program_, static_cast<int>(std::size(options)), options);
  }

  std::string Log() {
    size_t size = 0;
    if (program_ == nullptr || nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS) return "";
    std::string log(size, '\0');
    if (nvrtcGetProgramLog(program_, log.data()) != NVRTC_SUCCESS) return "";
    return log.c_str();  // removes the zero at the end
  }

  absl::StatusOr<std::string> Code() {
    size_t size = 0;
    nvrtcResult error = nvrtcGetCUBINSize(program_, &size);
    std::string code(size, '\0');
    if (error == NVRTC_SUCCESS) error = nvrtcGetCUBIN(program_, code.data());
    if (error == NVRTC_SUCCESS && size > 0) return code;
    return absl::InternalError(
        absl::StrCat("NVRTC returned no code: ", nvrtcGetErrorString(error)));
  }

 private:
  nvrtcProgram program_ = nullptr;
  nvrtcResult error_ = NVRTC_SUCCESS;
};

}  // namespace

absl::StatusOr<std::string> CompileForGpu(const std::string& source, int major, int minor) {
  Program program(source);
  const nvrtcResult error = program.Compile(absl::StrCat("sm_", major, minor));
  if (error == NVRTC_SUCCESS) return program.Code();
  const std::string text = absl::StrCat("NVRTC: ", nvrtcGetErrorString(error), ": ", program.Log());
  // The compiler doesn't know the GPU, or a part of the compiler isn't installed.
  if (error != NVRTC_ERROR_COMPILATION) return absl::UnimplementedError(text);
  return absl::InternalError(text);
}

}  // namespace tensord::server::cuda
