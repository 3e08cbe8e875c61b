#include <gmock/gmock.h>
#include <nvrtc.h>

#include <string>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr char kSource[] = R"(#include "scale.h"
extern "C" __global__ void scale(int* data, int size) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < size) data[i] *= kFactor;
}
)";

class NvrtcEmulationTest : public EmulationTest {
 protected:
  // Compiles kSource with a header that is `header`; the log goes to log_.
  nvrtcResult Compile(const char* header) {
    const char* name = "scale.h";
    EXPECT_EQ(nvrtcCreateProgram(&program_, kSource, "scale.cu", 1, &header, &name), NVRTC_SUCCESS);
    const nvrtcResult result = nvrtcCompileProgram(program_, 0, nullptr);
    size_t size = 0;
    EXPECT_EQ(nvrtcGetProgramLogSize(program_, &size), NVRTC_SUCCESS);
    log_.resize(size);
    EXPECT_EQ(nvrtcGetProgramLog(program_, log_.data()), NVRTC_SUCCESS);
    log_.pop_back();  // the zero at its end
    return result;
  }
  std::string Code() {
    size_t size = 0;
    EXPECT_EQ(nvrtcGetCUBINSize(program_, &size), NVRTC_SUCCESS);
    std::string code(size, '\0');
    EXPECT_EQ(nvrtcGetCUBIN(program_, code.data()), NVRTC_SUCCESS);
    return code;
  }
  void TearDown() override {
    nvrtcDestroyProgram(&program_);
    EmulationTest::TearDown();
  }

  nvrtcProgram program_ = nullptr;
  std::string log_;
};

TEST_F(NvrtcEmulationTest, ACompiledKernelRuns) {
  ASSERT_EQ(Compile("#pragma once\nconstexpr int kFactor = 3;"), NVRTC_SUCCESS) << log_;
  cudaLibrary_t library = nullptr;
  ASSERT_EQ(cudaLibraryLoadData(&library, Code().data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            cudaSuccess);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "another"), cudaErrorSymbolNotFound);
  ASSERT_EQ(cudaLibraryGetKernel(&kernel, library, "scale"), cudaSuccess);
  int* data = MakeInts(100, 5);
  {
    const StreamBlocker blocker(first_);
    int* parameter = data;
    int size = 100;
    void* arguments[] = {&parameter, &size};
    ASSERT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(2), dim3(64), arguments,
                               0, first_),
              cudaSuccess);
    size = 0;  // the launch has copied it
  }
  EXPECT_THAT(Download(data, 100, first_), Each(15));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaLibraryUnload(library), cudaSuccess);
}

TEST_F(NvrtcEmulationTest, AnErrorIsInTheLog) {
  EXPECT_EQ(Compile("#pragma once\nconstexpr int kAnother = 3;"), NVRTC_ERROR_COMPILATION);
  EXPECT_THAT(log_, HasSubstr("scale.cu(4)"));
  EXPECT_THAT(log_, HasSubstr("kFactor"));
}

}  // namespace
}  // namespace tensord::cuda_emulation
