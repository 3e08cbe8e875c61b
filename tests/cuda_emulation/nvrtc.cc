// NVRTC by the host compiler. A "CUBIN" is a shared object; module.cc loads it.
#include <nvrtc.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/failure.h"

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

namespace fs = std::filesystem;

// The name is NVRTC's.
struct _nvrtcProgram {
  std::string name, source;
  std::map<std::string, std::string> headers;  // by the names by which they are included
  std::string log;
  std::string code;
};

namespace {

// -ffp-contract=off: the backend gives NVRTC the corresponding option. -nostdinc++: the program has
// its own headers in place of the C++ library's. -fsanitize: kernel.cc reports misaligned accesses.
constexpr char kCompiler[] = TENSORD_CUDA_EMULATION_COMPILER
    " -std=c++20 -O1 -ffp-contract=off -nostdinc++ -DTENSORD_CUDA_EMULATION_RTC -w -fPIC"
    " -fsanitize=alignment -fsanitize-undefined-trap-on-error";
constexpr char kDeviceCode[] = TENSORD_CUDA_EMULATION_FOLDER "/device_code.h";

// A folder that is removed when the process ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tensord_nvrtc_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      Report("NVRTC: no temporary folder can be made");
      std::abort();
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  // Makes a new folder in this folder.
  fs::path MakeFolder() {
    MutexLock lock(&mu_);
    const fs::path folder = path_ / std::to_string(count_++);
    fs::create_directories(folder);
    return folder;
  }

 private:
  fs::path path_;
  Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

TemporaryFolder& Temporary() {
  static TemporaryFolder folder;
  return folder;
}

void WriteFile(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Returns a folder with the program's headers and all.h, which includes all of them and is
// precompiled. Each header must have #pragma once. Makes one folder for each set of headers. If
// all.h doesn't compile, returns an empty string.
std::string HeaderFolder(const std::map<std::string, std::string>& headers) {
  static Mutex mu;
  static auto* folders = new std::map<std::map<std::string, std::string>, std::string>;
  MutexLock lock(&mu);
  const auto [it, is_new] = folders->try_emplace(headers);
  if (!is_new) return it->second;
  const fs::path folder = Temporary().MakeFolder();
  std::string all = absl::StrCat("#include \"", kDeviceCode, "\"\n");
  for (const auto& [name, text] : headers) {
    WriteFile(folder / name, text);
    absl::StrAppend(&all, "#include <", name, ">\n");
  }
  WriteFile(folder / "all.h", all);
  const std::string command = absl::StrCat(kCompiler, " -I ", folder.string(), " -x c++-header ",
                                           (folder / "all.h").string());
  if (std::system(command.c_str()) == 0) it->second = folder.string();
  return it->second;
}

// Returns the program's source under its name, followed by the entry functions that
// cudaLaunchKernel() calls, for each kernel.
std::string TextOf(const _nvrtcProgram& program) {
  static const std::regex kernel(R"re(extern "C" __global__ void (\w+)\()re");
  const std::string& source = program.source;
  std::string text = absl::StrCat("#line 1 \"", program.name, "\"\n", source);
  for (std::sregex_iterator it(source.begin(), source.end(), kernel), end; it != end; ++it) {
    absl::StrAppend(&text, "\nTENSORD_CUDA_EMULATION_ENTRY(", (*it)[1].str(), ")\n");
  }
  return text;
}

// Returns the compiler's log with source locations in NVRTC's form: file(line), not
// file:line:column.
std::string InNvrtcForm(const std::string& log) {
  static const std::regex place(R"re(([^\s:]+):(\d+)(:\d+)?: )re");
  return std::regex_replace(log, place, "$1($2): ");
}

}  // namespace

// The first statement of a function. If an error is injected, returns it from the function.
#define TENSORD_EMULATION_ENTER_NVRTC()                                            \
  if (const auto tensord_injected = static_cast<nvrtcResult>(CountCall(__func__)); \
      tensord_injected != NVRTC_SUCCESS)                                           \
  return tensord_injected

extern "C" {

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name,
                               int header_count, const char* const* headers,
                               const char* const* names) {
  TENSORD_EMULATION_ENTER_NVRTC();
  *program = new _nvrtcProgram;
  (*program)->name = name;
  (*program)->source = source;
  for (int i = 0; i < header_count; ++i) (*program)->headers[names[i]] = headers[i];
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int /*option_count*/,
                                const char* const* /*options*/) {
  TENSORD_EMULATION_ENTER_NVRTC();
  const std::string headers = HeaderFolder(program->headers);
  if (headers.empty()) return NVRTC_ERROR_INTERNAL_ERROR;
  const fs::path folder = Temporary().MakeFolder();
  WriteFile(folder / "kernel.cc", TextOf(*program));
  const std::string command =
      absl::StrCat(kCompiler, " -I ", headers, " -include ", headers,
                   "/all.h -shared -Wl,-Bsymbolic ", (folder / "kernel.cc").string(), " -o ",
                   (folder / "kernel.so").string(), " > ", (folder / "log").string(), " 2>&1");
  const int status = std::system(command.c_str());
  program->log = InNvrtcForm(ReadFile(folder / "log"));
  program->code = status == 0 ? ReadFile(folder / "kernel.so") : "";
  fs::remove_all(folder);
  return status == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  TENSORD_EMULATION_ENTER_NVRTC();
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  TENSORD_EMULATION_ENTER_NVRTC();
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  TENSORD_EMULATION_ENTER_NVRTC();
  *size = program->code.size();
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  TENSORD_EMULATION_ENTER_NVRTC();
  std::memcpy(code, program->code.data(), program->code.size());
  return NVRTC_SUCCESS;
}

}  // extern "C"
